package manifests_test

import (
	"encoding/json"
	"io/fs"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/muster-gpu/muster/internal/kustomization"
	"github.com/muster-gpu/muster/manifests"
	"github.com/muster-gpu/muster/metrics"
)

// TestMonitoring renders what is applied for monitoring.
func TestMonitoring(t *testing.T) {
	resources, err := kustomization.Build("monitoring", map[string]fs.FS{"": manifests.FS}, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := overlay(resources.Resources())
	t.Run("Grafana's sidecar finds each dashboard", func(t *testing.T) { hasDashboards(t, o) })
	t.Run("no label of a metric is replaced by one of the pod that serves it", func(t *testing.T) { keepsLabels(t, o) })
}

// annotationLimit is of all annotations of an object, in bytes. "kubectl apply" keeps the
// object itself in one.
const annotationLimit = 256 << 10

func hasDashboards(t *testing.T, o overlay) {
	var found []string
	for name, c := range every[corev1.ConfigMap](t, o, "ConfigMap") {
		if c.Labels["grafana_dashboard"] != "1" || c.Namespace != namespace {
			t.Errorf("%s is in %s with the labels %v", name, c.Namespace, c.Labels)
		}
		object, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if len(object) > annotationLimit*9/10 {
			t.Errorf("%s has %d bytes, which kubectl apply can soon not keep", name, len(object))
		}
		for file, content := range c.Data {
			var dashboard struct{ UID string }
			if err := json.Unmarshal([]byte(content), &dashboard); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if dashboard.UID+".json" != file {
				t.Errorf("%s has the uid %q", file, dashboard.UID)
			}
			found = append(found, file)
		}
	}
	files, err := fs.Glob(manifests.FS, "monitoring/dashboards/*.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 || len(found) != len(files) {
		t.Errorf("of the files %v there are %v", files, found)
	}
}

// podMonitor is what Prometheus Operator reads of a PodMonitor that matters here.
type podMonitor struct {
	Metadata struct{ Name string }
	Spec     struct {
		PodMetricsEndpoints []struct{ HonorLabels bool }
	}
}

// fromPod are the labels that Prometheus Operator gives to all that a pod serves. A label
// of the metric's own under the same name is renamed, unless it is honoured.
var fromPod = []string{"namespace", "pod", "container", "job", "endpoint", "instance"}

func keepsLabels(t *testing.T, o overlay) {
	replaced := map[string]string{}
	for _, d := range metrics.Definitions() {
		for _, label := range d.Labels {
			if slices.Contains(fromPod, label) {
				replaced["muster-"+string(d.Program)] = d.Name
			}
		}
	}
	monitors := 0
	for _, r := range o {
		if r.GetKind() != "PodMonitor" {
			continue
		}
		monitors++
		content, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		var m podMonitor
		if err := yaml.Unmarshal(content, &m); err != nil {
			t.Fatal(err)
		}
		for _, e := range m.Spec.PodMetricsEndpoints {
			if metric := replaced[m.Metadata.Name]; metric != "" && !e.HonorLabels {
				t.Errorf("%s does not honour labels, as %s needs it", m.Metadata.Name, metric)
			}
		}
	}
	if monitors != 3 {
		t.Errorf("there are %d PodMonitors, for three programs", monitors)
	}
}
