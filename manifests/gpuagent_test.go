package manifests_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/yaml"

	"github.com/muster-gpu/muster/manifests"
)

// The labels are as NVIDIA's operator, its driver manager and its MIG manager set them.
func TestTheGPUAgentLeavesANodeWhoseDriverIsToBeReplaced(t *testing.T) {
	content, err := manifests.FS.ReadFile("base/gpu-agent/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var set appsv1.DaemonSet
	if err := yaml.UnmarshalStrict(content, &set); err != nil {
		t.Fatal(err)
	}
	affinity := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: set.Spec.Template.Spec})
	const (
		client, plugin, validator = "nvidia.com/gpu.deploy.client", "nvidia.com/gpu.deploy.device-plugin", "nvidia.com/gpu.deploy.operator-validator"
		upgrade, mig              = "paused-for-driver-upgrade", "paused-for-mig-change"
	)
	for name, test := range map[string]struct {
		labels map[string]string
		runs   bool
	}{
		"no operator, and the label of a GPU":              {nil, true},
		"an operator that knows clients":                   {map[string]string{client: "true", plugin: "true", validator: "true"}, true},
		"one that upgrades the driver":                     {map[string]string{client: upgrade, plugin: upgrade, validator: upgrade}, false},
		"one that cuts GPUs anew":                          {map[string]string{client: mig, plugin: mig, validator: "true"}, false},
		"clients are not wanted":                           {map[string]string{client: "false"}, false},
		"an older operator":                                {map[string]string{plugin: "true", validator: "true"}, true},
		"an older one that upgrades the driver":            {map[string]string{plugin: upgrade, validator: upgrade}, false},
		"an older one that cuts GPUs anew":                 {map[string]string{plugin: mig, validator: "true"}, false},
		"an older one without device plugin":               {map[string]string{plugin: "false", validator: "true"}, true},
		"an older one without it that upgrades":            {map[string]string{plugin: "false", validator: upgrade}, false},
		"an admin has paused it":                           {map[string]string{"muster.dev/gpu-agent": "paused"}, false},
		"an admin has paused it, where clients are wanted": {map[string]string{"muster.dev/gpu-agent": "paused", client: "true"}, false},
		"a node without a GPU":                             {map[string]string{"nvidia.com/gpu.present": "false", client: "true"}, false},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{"nvidia.com/gpu.present": "true"}}}
		for label, value := range test.labels {
			node.Labels[label] = value
		}
		runs, err := affinity.Match(node)
		if err != nil || runs != test.runs {
			t.Errorf("%s: it runs is %t, want %t (%v)", name, runs, test.runs, err)
		}
	}
}
