package quota

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestRequestsOfUsesKueuesUnits(t *testing.T) {
	got := RequestsOf(corev1.ResourceList{
		"cpu":               resource.MustParse("1500m"),
		"memory":            resource.MustParse("2Gi"),
		nvidiaGPU:           resource.MustParse("8"),
		"ephemeral-storage": resource.MustParse("1500m"),
		"example.com/debt":  resource.MustParse("-3"),
		"example.com/huge":  resource.MustParse("100E"),
		"hugepages-2Mi":     resource.MustParse("4Mi"),
	})
	want := Requests{
		"cpu": 1500, "memory": 2 << 30, nvidiaGPU: 8, "ephemeral-storage": 2,
		"example.com/debt": 0, "example.com/huge": math.MaxInt64, "hugepages-2Mi": 4 << 20,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if got := RequestsOf(corev1.ResourceList{"cpu": resource.MustParse("1E")})["cpu"]; got != math.MaxInt64 {
		t.Errorf("10^18 cores are %d milli, want the largest int64", got)
	}
}

func TestAmountsReadWell(t *testing.T) {
	tests := map[string]struct {
		name  corev1.ResourceName
		value int64
		want  string
	}{
		"several GPUs":              {nvidiaGPU, 8, "8 GPUs"},
		"one GPU":                   {nvidiaGPU, 1, "1 GPU"},
		"GPUs of another vendor":    {"amd.com/gpu", 2, "2 GPUs"},
		"a slice of a GPU":          {"nvidia.com/mig-1g.10gb", 2, "2 nvidia.com/mig-1g.10gb"},
		"half a core":               {"cpu", 500, "500m cpu"},
		"two cores":                 {"cpu", 2000, "2 cpu"},
		"memory":                    {"memory", 2 << 30, "2Gi memory"},
		"huge pages":                {"hugepages-2Mi", 4 << 20, "4Mi hugepages-2Mi"},
		"one pod":                   {"pods", 1, "1 pod"},
		"several pods":              {"pods", 4, "4 pods"},
		"thousands stay as numbers": {nvidiaGPU, 1024, "1024 GPUs"},
		"a round thousand too":      {nvidiaGPU, 2000, "2000 GPUs"},
		"more than can be counted":  {nvidiaGPU, math.MaxInt64, "over 9E GPUs"},
		"cores without end":         {"cpu", math.MaxInt64, "over 9P cpu"},
		"memory without end":        {"memory", math.MaxInt64, "over 7Ei memory"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, FormatAmount(tc.name, tc.value)); diff != "" {
				t.Errorf("amount (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRequestsListDevicesFirst(t *testing.T) {
	got := Requests{"cpu": 500, "memory": 2 << 30, nvidiaGPU: 8}.String()
	if diff := cmp.Diff("8 GPUs, 500m cpu, 2Gi memory", got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}
