package simulator

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestNewNode(t *testing.T) {
	node := newNode(Options{GPUsPerNode: 8, GPUProduct: "H200", Labels: NodeLabels{
		"*":      {"rack": "r1", "zone": "z1"},
		"node-3": {"rack": "r2"},
	}}, 3, begin)
	wantLabels := map[string]string{
		"kubernetes.io/hostname": "node-3", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
		"nvidia.com/gpu.product": "H200", "nvidia.com/gpu.count": "8",
		"sim.muster.dev/node": "true", "rack": "r2", "zone": "z1",
	}
	if diff := cmp.Diff(wantLabels, node.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	got := map[string]string{}
	for name, quantity := range node.Status.Allocatable {
		got[string(name)] = quantity.String()
	}
	want := map[string]string{"cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("allocatable (-want +got):\n%s", diff)
	}
	for _, condition := range node.Status.Conditions {
		if healthy := condition.Type == corev1.NodeReady; (condition.Status == corev1.ConditionTrue) != healthy {
			t.Errorf("condition %s is %s", condition.Type, condition.Status)
		}
	}
}

func TestAddressesAreDistinct(t *testing.T) {
	seen := map[string]int{}
	for i := range 10000 {
		for _, address := range []string{nodeIP(i), podIP(i)} {
			if other, ok := seen[address]; ok {
				t.Fatalf("%s is the address of number %d and of number %d", address, i, other)
			}
			seen[address] = i
		}
	}
}

func TestReadNodeLabels(t *testing.T) {
	write := func(content string) string {
		path := filepath.Join(t.TempDir(), "labels.yaml")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	labels, err := ReadNodeLabels(write("\"*\": {rack: r1}\nnode-0:\n  rack: r0\n"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(NodeLabels{"*": {"rack": "r1"}, "node-0": {"rack": "r0"}}, labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	path := write("node-0: rack\n")
	if _, err := ReadNodeLabels(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error of a bad file = %v, want one that names %s", err, path)
	}
}
