package app

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
)

// kubeconfig names an API server that is not there.
const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
users: [{name: a, user: {token: x}}]
current-context: a
`

func get(t *testing.T, address, path string) (int, string) {
	t.Helper()
	response, err := http.Get("http://" + address + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// configuration has nothing around it: no kubelet, no API server, and devices that do
// what the activities say.
func configuration(t *testing.T, activities ...string) *configv1alpha1.GPUAgentConfiguration {
	t.Helper()
	folder := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var devices []string
	for i, a := range activities {
		devices = append(devices, fmt.Sprintf(`{"UUID": "GPU-%d", "Minor": %d, "GPUInstance": -1, "MemoryBytes": 1024, "Product": "NVIDIA H200", "Share": {"Parts": 1, "Of": 1}, "activity": %q}`, i, i, a))
	}
	c := configv1alpha1.DefaultGPUAgent()
	c.NodeName, c.ClientConnection.Kubeconfig = "node-1", write("kubeconfig", kubeconfig)
	c.Kubelet.Socket = filepath.Join(folder, "kubelet.sock")
	c.Reader.Kind, c.Reader.Script = configv1alpha1.ReaderScripted, write("script.json", `{"devices": [`+strings.Join(devices, ", ")+`]}`)
	c.Health.BindAddress, c.Metrics.BindAddress = "127.0.0.1:0", "127.0.0.1:0"
	c.Tick.Duration = time.Second
	return c
}

// start runs an agent, which is ready when it returns, and returns where it serves. stop
// fails the test if it does not end well.
func start(t *testing.T, c *configv1alpha1.GPUAgentConfiguration) (health, metrics string, stop func()) {
	t.Helper()
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	health, metrics = a.listeners.health.Addr().String(), a.listeners.metrics.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if code, _ := get(t, health, "/readyz"); code == http.StatusOK {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it does not become ready")
		}
	}
	return health, metrics, func() {
		t.Helper()
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(30 * time.Second):
			t.Error("it does not end")
		}
	}
}

func TestAnAgentWithNothingAroundItStaysUpAndSaysWhatIsWrong(t *testing.T) {
	health, metrics, stop := start(t, configuration(t, "busy", "hang"))
	if code, body := get(t, health, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d %s", code, body)
	}
	_, text := get(t, metrics, "/metrics")
	for _, want := range []string{
		`muster_gpu_busy_ratio{GPU_I_ID="",GPU_I_PROFILE="",Hostname="node-1",UUID="GPU-0",device="nvidia0",gpu="0",modelName="NVIDIA H200"} 0.97`,
		`muster_gpu_held{GPU_I_ID="",GPU_I_PROFILE="",Hostname="node-1",UUID="GPU-1",device="nvidia1",gpu="1",modelName="NVIDIA H200"} 0`,
		`muster_gpu_agent_driver_calls_out{call="health"} 1`,
		`muster_gpu_agent_ticks_total{result="incomplete"}`,
		`muster_gpu_agent_writes_total{result="error"} 1`,
		`muster_gpu_agent_condition{condition="DriverReady"} 1`,
		`muster_gpu_agent_condition{condition="HoldersKnown"} 0`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics lack %s:\n%s", want, text)
		}
	}
	if strings.Contains(text, `muster_gpu_busy_ratio{GPU_I_ID="",GPU_I_PROFILE="",Hostname="node-1",UUID="GPU-1"`) {
		t.Error("the use of a device that hangs is made up")
	}
	stop()
}

func TestAFieldThatCannotBeFollowedIsNamed(t *testing.T) {
	for want, change := range map[string]func(*configv1alpha1.GPUAgentConfiguration){
		"nodeName":            func(c *configv1alpha1.GPUAgentConfiguration) { c.NodeName = "" },
		"reader.kind":         func(c *configv1alpha1.GPUAgentConfiguration) { c.Reader.Kind = "smi" },
		"health.bindAddress":  func(c *configv1alpha1.GPUAgentConfiguration) { c.Health.BindAddress = "192.0.2.1:80" },
		"metrics.bindAddress": func(c *configv1alpha1.GPUAgentConfiguration) { c.Metrics.BindAddress = "192.0.2.1:80" },
	} {
		c := configuration(t)
		change(c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
