package workload

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func resources(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func container(requests, limits corev1.ResourceList) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
}

func TestRequests(t *testing.T) {
	sidecar := container(resources("cpu", "1"), nil)
	sidecar.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	for name, tc := range map[string]struct {
		spec corev1.PodSpec
		want corev1.ResourceList
	}{
		"containers add up": {
			corev1.PodSpec{Containers: []corev1.Container{container(resources("cpu", "1"), nil), container(resources("cpu", "2"), nil)}},
			resources("cpu", "3"),
		},
		"a limit is a request where there is none": {
			corev1.PodSpec{Containers: []corev1.Container{container(resources("cpu", "1"), resources("cpu", "4", "nvidia.com/gpu", "8"))}},
			resources("cpu", "1", "nvidia.com/gpu", "8"),
		},
		"an init container counts if it is larger, limits too": {
			corev1.PodSpec{
				InitContainers: []corev1.Container{container(nil, resources("cpu", "5", "memory", "1Gi"))},
				Containers:     []corev1.Container{container(resources("cpu", "2", "memory", "2Gi"), nil)},
			},
			resources("cpu", "5", "memory", "2Gi"),
		},
		"a sidecar adds to the containers": {
			corev1.PodSpec{InitContainers: []corev1.Container{sidecar}, Containers: []corev1.Container{container(resources("cpu", "2"), nil)}},
			resources("cpu", "3"),
		},
		"the overhead of the runtime class is added": {
			corev1.PodSpec{Overhead: resources("cpu", "250m"), Containers: []corev1.Container{container(resources("cpu", "2"), nil)}},
			resources("cpu", "2250m"),
		},
		"requests of the pod stand for the containers'": {
			corev1.PodSpec{
				Resources:  &corev1.ResourceRequirements{Requests: resources("cpu", "6")},
				Containers: []corev1.Container{container(resources("cpu", "2"), resources("nvidia.com/gpu", "1"))},
			},
			resources("cpu", "6", "nvidia.com/gpu", "1"),
		},
		"a limit of the pod is a request only where no container asks": {
			corev1.PodSpec{
				Resources:  &corev1.ResourceRequirements{Limits: resources("cpu", "6", "memory", "8Gi")},
				Containers: []corev1.Container{container(resources("cpu", "2"), nil)},
			},
			resources("cpu", "2", "memory", "8Gi"),
		},
		"no containers request nothing": {corev1.PodSpec{}, resources()},
	} {
		t.Run(name, func(t *testing.T) {
			template := &corev1.PodTemplateSpec{Spec: tc.spec}
			before := template.DeepCopy()
			if diff := cmp.Diff(tc.want, Requests(template)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, template); diff != "" {
				t.Errorf("the template was changed:\n%s", diff)
			}
		})
	}
}

// TestSameSize has two pods that differ in one word.
func TestSameSize(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(spec *corev1.PodSpec)
		want   bool
	}{
		"nothing differs":           {func(*corev1.PodSpec) {}, true},
		"a container asks for more": {func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests = resources("cpu", "2") }, false},
		"a container has a limit that is not requested": {
			func(s *corev1.PodSpec) { s.Containers[0].Resources.Limits = resources("nvidia.com/gpu", "1") }, false,
		},
		"a container has a limit that counts for nothing": {
			func(s *corev1.PodSpec) { s.Containers[0].Resources.Limits = resources("cpu", "4") }, true,
		},
		"an init container asks for more": {func(s *corev1.PodSpec) { s.InitContainers[0].Resources.Requests = resources("cpu", "5") }, false},
		"an init container is a sidecar":  {func(s *corev1.PodSpec) { s.InitContainers[0].RestartPolicy = new(corev1.ContainerRestartPolicyAlways) }, false},
		"a container more that asks for nothing": {
			func(s *corev1.PodSpec) { s.Containers = append(s.Containers, corev1.Container{}) }, true,
		},
		"the runtime class has overhead": {func(s *corev1.PodSpec) { s.Overhead = resources("cpu", "1") }, false},
		"the pod itself asks for more": {
			func(s *corev1.PodSpec) {
				s.Resources = &corev1.ResourceRequirements{Requests: resources("cpu", "8")}
			}, false,
		},
		"what is asked for is written otherwise": {func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests = resources("cpu", "1000m") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{
				Containers:     []corev1.Container{container(resources("cpu", "1"), nil)},
				InitContainers: []corev1.Container{container(resources("cpu", "1"), nil)},
			}}
			template := &corev1.PodTemplateSpec{Spec: *pod.Spec.DeepCopy()}
			tc.change(&template.Spec)
			if got := SameSize(pod, template); got != tc.want {
				t.Errorf("they are of one size: %t, want %t", got, tc.want)
			}
		})
	}
}

func TestGPUs(t *testing.T) {
	for name, tc := range map[string]struct {
		list corev1.ResourceList
		want int64
	}{
		"nothing":                        {nil, 0},
		"NVIDIA":                         {resources("nvidia.com/gpu", "8", "cpu", "64"), 8},
		"MIG slices of two profiles":     {resources("nvidia.com/mig-1g.10gb", "2", "nvidia.com/mig-3g.40gb", "1"), 3},
		"AMD and Intel":                  {resources("amd.com/gpu", "4", "gpu.intel.com/i915", "1", "gpu.intel.com/xe", "1"), 6},
		"GPU memory is not a GPU":        {resources("nvidia.com/gpumem", "3000", "gpu.intel.com/memory.max", "9", "gpu.intel.com/millicores", "500"), 0},
		"a resource that only looks so":  {resources("example.com/nvidia.com-gpu", "1", "nvidia.com/mig", "1"), 0},
		"network cards and huge pages":   {resources("rdma/hca", "8", "hugepages-2Mi", "1Gi"), 0},
		"time slices count as requested": {resources("nvidia.com/gpu.shared", "2"), 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := GPUs(tc.list); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}
