package workload

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	"github.com/muster-gpu/muster/api/gpu"
)

// Requests is what one pod of the template will request as the scheduler
// counts it: the larger of the init containers and the containers, sidecars
// added, overhead added, and pod-level requests in place of the containers'.
// Requests that are left out take the limit, as the API server fills them in
// on pods and not on templates.
func Requests(t *corev1.PodTemplateSpec) corev1.ResourceList {
	return requestsOf(&t.Spec, everyResource)
}

func everyResource(corev1.ResourceName) bool { return true }

// requestsOf are Requests without the containers' requests for what is not to be kept:
// adding quantities up is most of what it costs to read a large job.
func requestsOf(spec *corev1.PodSpec, keep func(corev1.ResourceName) bool) corev1.ResourceList {
	pod := corev1.Pod{Spec: *spec}
	pod.Spec.Containers = withRequests(spec.Containers, keep)
	pod.Spec.InitContainers = withRequests(spec.InitContainers, keep)
	pod.Spec.Resources = podLevelResources(&pod)
	return resourcehelper.PodRequests(&pod, resourcehelper.PodResourcesOptions{})
}

// asksInSameWords says that two pods say the same of the resources that they ask for:
// then Requests of them are the same, and need not be summed.
func asksInSameWords(a, b *corev1.PodSpec) bool {
	list := func(x, y corev1.ResourceList) bool { return maps.EqualFunc(x, y, resource.Quantity.Equal) }
	container := func(x, y corev1.Container) bool {
		return ptr.Equal(x.RestartPolicy, y.RestartPolicy) &&
			list(x.Resources.Requests, y.Resources.Requests) && list(x.Resources.Limits, y.Resources.Limits)
	}
	return slices.EqualFunc(a.Containers, b.Containers, container) && slices.EqualFunc(a.InitContainers, b.InitContainers, container) &&
		equality.Semantic.DeepEqual(a.Resources, b.Resources) && list(a.Overhead, b.Overhead)
}

// withRequests is a copy of the containers in which every limit is requested.
func withRequests(containers []corev1.Container, keep func(corev1.ResourceName) bool) []corev1.Container {
	containers = slices.Clone(containers)
	for i := range containers {
		r := &containers[i].Resources
		all := make(corev1.ResourceList, len(r.Requests)+len(r.Limits))
		for _, list := range []corev1.ResourceList{r.Limits, r.Requests} {
			for name, quantity := range list {
				if keep(name) {
					all[name] = quantity
				}
			}
		}
		r.Requests = all
	}
	return containers
}

// filled is requests with the resources it lacks taken from others.
func filled(requests, others corev1.ResourceList) corev1.ResourceList {
	all := make(corev1.ResourceList, len(requests)+len(others))
	maps.Copy(all, others)
	maps.Copy(all, requests)
	return all
}

// podLevelResources are the pod's own resources with the requests that the API
// server fills in where there are pod-level limits: for CPU and memory first
// the sum of the containers, then the limit; for huge pages the limit.
func podLevelResources(pod *corev1.Pod) *corev1.ResourceRequirements {
	own := pod.Spec.Resources
	if own == nil || len(own.Limits) == 0 {
		return own
	}
	requests := maps.Clone(own.Requests)
	sum := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	maps.DeleteFunc(sum, func(name corev1.ResourceName, _ resource.Quantity) bool {
		return name != corev1.ResourceCPU && name != corev1.ResourceMemory
	})
	requests = filled(filled(requests, sum), own.Limits)
	return &corev1.ResourceRequirements{Limits: own.Limits, Requests: requests, Claims: own.Claims}
}

// GPUs is the number of GPUs in a list of resources, over all the kinds of GPU
// that Muster knows.
func GPUs(list corev1.ResourceList) int64 {
	var n int64
	for name, quantity := range list {
		if gpu.Is(name) {
			n += quantity.Value()
		}
	}
	return n
}
