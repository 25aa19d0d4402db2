package identity

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/api/gpu"
)

// PodGVK is a pod that is a job of its own.
var PodGVK = corev1.SchemeGroupVersion.WithKind("Pod")

// PodJob is the job that a pod makes up alone or with the others of its group.
// ok is false for a pod that belongs to an owner object, and for one that
// Muster has no business with: it has no queue, asks for no GPU and claims nothing
// that might be one. It reads nothing but the pod, because it runs under the
// scheduling queue's lock.
func PodJob(pod *corev1.Pod) (owner Owner, ok bool) {
	if _, owned := ownedSlot(pod); owned {
		return Owner{}, false
	}
	if owner, _, ok := ReplicaOf(pod); ok {
		return owner, true
	}
	gvk, group := GroupOf(pod)
	key := types.NamespacedName{Namespace: pod.Namespace, Name: group}
	switch {
	case group != "":
		return Owner{GroupVersionKind: gvk, NamespacedName: key, UID: GroupUID(gvk, key)}, true
	case pod.Labels[QueueLabel] != "", AsksGPU(pod), len(pod.Spec.ResourceClaims) > 0:
		key.Name = pod.Name
		return Owner{GroupVersionKind: PodGVK, NamespacedName: key, UID: pod.UID}, true
	}
	return Owner{}, false
}

// AsksGPU says that a container of the pod asks for a GPU. What the pod claims does
// not count.
func AsksGPU(pod *corev1.Pod) bool {
	asks := func(c corev1.Container) bool {
		for name := range c.Resources.Requests {
			if gpu.Is(name) {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(pod.Spec.Containers, asks) || slices.ContainsFunc(pod.Spec.InitContainers, asks)
}
