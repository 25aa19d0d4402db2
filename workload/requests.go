package workload

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/muster-gpu/muster/api/gpu"
)

// Requests is what one pod of the template will request as the scheduler
// counts it: the larger of the init containers and the containers, sidecars
// added, overhead added, and pod-level requests in place of the containers'.
// Requests that are left out take the limit, as the API server fills them in
// on pods and not on templates.
func Requests(t *corev1.PodTemplateSpec) corev1.ResourceList {
	pod := corev1.Pod{Spec: t.Spec}
	pod.Spec.Containers = withRequests(t.Spec.Containers)
	pod.Spec.InitContainers = withRequests(t.Spec.InitContainers)
	pod.Spec.Resources = podLevelResources(&pod)
	return resourcehelper.PodRequests(&pod, resourcehelper.PodResourcesOptions{})
}

// withRequests is a copy of the containers in which every limit is requested.
func withRequests(containers []corev1.Container) []corev1.Container {
	containers = slices.Clone(containers)
	for i := range containers {
		containers[i].Resources.Requests = filled(containers[i].Resources.Requests, containers[i].Resources.Limits)
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
