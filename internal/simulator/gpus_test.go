package simulator

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

func TestAllocate(t *testing.T) {
	book := newGPUBook()
	allocate := func(pod string, count int) string {
		indices, fresh, err := book.allocate("n", 8, types.UID(pod), nil, count)
		if err != nil {
			return "error: " + err.Error()
		}
		return fmt.Sprintf("%s fresh=%v", formatIndices(indices), fresh)
	}
	got := []string{
		allocate("a", 4),
		allocate("a", 4), // Asked again: the same answer.
		allocate("b", 3),
		allocate("c", 2),
	}
	book.release("a")
	book.release("a")
	got = append(got, allocate("c", 2), allocate("none", 0))
	want := []string{
		"0,1,2,3 fresh=true",
		"0,1,2,3 fresh=false",
		"4,5,6 fresh=true",
		"error: allocate failed due to requested number of devices unavailable for nvidia.com/gpu: requested 2, available 1",
		"0,1 fresh=true",
		" fresh=false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("allocations (-want +got):\n%s", diff)
	}
}

func TestAdoptRefusesAnIndexThatIsHeld(t *testing.T) {
	book := newGPUBook()
	if err := book.adopt("n", "a", []int{2, 3}); err != nil {
		t.Fatal(err)
	}
	if err := book.adopt("n", "a", []int{2, 3}); err != nil {
		t.Errorf("adopting a pod twice: %v", err)
	}
	if err := book.adopt("n", "b", []int{1, 2}); err == nil {
		t.Error("index 2 was adopted for two pods")
	}
	if err := book.adopt("other", "b", []int{1, 2}); err != nil {
		t.Errorf("the same index of another node: %v", err)
	}
	indices, _, err := book.allocate("n", 4, "c", nil, 2)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{0, 1}, indices); diff != "" {
		t.Errorf("indices beside the adopted ones (-want +got):\n%s", diff)
	}
}

// TestNoIndexIsHeldTwice: in any order of allocations, adoptions, releases and
// restarts, an index has one holder, and nothing is lost.
func TestNoIndexIsHeldTwice(t *testing.T) {
	const total = 8
	rapid.Check(t, func(t *rapid.T) {
		book := newGPUBook()
		model := map[types.UID]holding{}
		free := func(node string) int {
			n := total
			for _, h := range model {
				if h.node == node {
					n -= len(h.indices)
				}
			}
			return n
		}
		t.Repeat(map[string]func(*rapid.T){
			"allocate": func(t *rapid.T) {
				pod := types.UID(rapid.StringMatching("[a-f]").Draw(t, "pod"))
				node := rapid.SampledFrom([]string{"n0", "n1"}).Draw(t, "node")
				count := rapid.IntRange(1, total).Draw(t, "count")
				if h, ok := model[pod]; ok {
					node, count = h.node, len(h.indices)
				} else if count > free(node) {
					if _, _, err := book.allocate(node, total, pod, nil, count); err == nil {
						t.Fatalf("%d GPUs given where %d are free", count, free(node))
					}
					return
				}
				indices, _, err := book.allocate(node, total, pod, nil, count)
				if err != nil || len(indices) != count {
					t.Fatalf("asked for %d GPUs of %d free, got %v, %v", count, free(node), indices, err)
				}
				model[pod] = holding{node, indices}
			},
			"release": func(t *rapid.T) {
				pod := types.UID(rapid.StringMatching("[a-f]").Draw(t, "pod"))
				book.release(pod)
				delete(model, pod)
			},
			"restart": func(t *rapid.T) {
				book = newGPUBook()
				for pod, h := range model {
					if err := book.adopt(h.node, pod, h.indices); err != nil {
						t.Fatal(err)
					}
				}
			},
			"": func(t *rapid.T) {
				seen := map[string]types.UID{}
				for pod, h := range model {
					for _, index := range h.indices {
						place := fmt.Sprint(h.node, "/", index)
						if other, ok := seen[place]; ok {
							t.Fatalf("GPU %s is held by %s and %s", place, pod, other)
						}
						if index < 0 || index >= total {
							t.Fatalf("GPU %s does not exist", place)
						}
						seen[place] = pod
					}
				}
			},
		})
	})
}

func TestGPUsAsked(t *testing.T) {
	container := func(gpus int64) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{GPUResource: *resource.NewQuantity(gpus, resource.DecimalSI)}}}
	}
	sidecar := container(1)
	sidecar.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	cases := []struct {
		name string
		spec corev1.PodSpec
		want int
	}{
		{name: "containers add up", spec: corev1.PodSpec{Containers: []corev1.Container{container(2), container(3)}}, want: 5},
		{name: "init containers use the same ones", spec: corev1.PodSpec{
			InitContainers: []corev1.Container{container(4)}, Containers: []corev1.Container{container(2)}}, want: 4},
		{name: "a sidecar holds its own", spec: corev1.PodSpec{
			InitContainers: []corev1.Container{sidecar}, Containers: []corev1.Container{container(2)}}, want: 3},
		{name: "none", spec: corev1.PodSpec{Containers: []corev1.Container{{}}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := gpusAsked(&corev1.Pod{Spec: c.spec}); got != c.want {
				t.Errorf("gpusAsked = %d, want %d", got, c.want)
			}
		})
	}
}

func TestParseIndices(t *testing.T) {
	for _, value := range []string{"", "0", "0,3,7"} {
		indices, err := parseIndices(value)
		if err != nil || formatIndices(indices) != value {
			t.Errorf("parseIndices(%q) = %v, %v", value, indices, err)
		}
	}
	for _, value := range []string{"x", "1,", "-1"} {
		if indices, err := parseIndices(value); err == nil {
			t.Errorf("parseIndices(%q) = %v, want an error", value, indices)
		}
	}
}
