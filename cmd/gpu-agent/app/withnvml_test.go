//go:build cgo

package app

import (
	"path/filepath"
	"strings"
	"testing"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
)

func TestAnAgentWithoutADriverStaysUp(t *testing.T) {
	c := configuration(t)
	c.Reader = configv1alpha1.GPUAgentReader{Kind: configv1alpha1.ReaderNVML, Library: filepath.Join(t.TempDir(), "libnvidia-ml.so.1")}
	_, metrics, stop := start(t, c)
	defer stop()
	_, text := get(t, metrics, "/metrics")
	for _, want := range []string{
		`muster_gpu_agent_driver_calls_total{call="devices",result="error"} 1`,
		`muster_gpu_agent_condition{condition="DriverReady"} 0`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics lack %s:\n%s", want, text)
		}
	}
}
