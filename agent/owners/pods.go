package owners

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-gpu/muster/workload/identity"
)

// podsOf watches the pods of a node, and keeps of them what is used.
func podsOf(client rest.Interface, node string) (cache.SharedIndexInformer, error) {
	watch := cache.NewListWatchFromClient(client, "pods", metav1.NamespaceAll, fields.OneTermEqualSelector("spec.nodeName", node))
	informer := cache.NewSharedIndexInformer(watch, &corev1.Pod{}, 0, cache.Indexers{})
	if err := informer.SetTransform(func(object any) (any, error) {
		if pod, ok := object.(*corev1.Pod); ok {
			return stripped(pod), nil
		}
		return object, nil
	}); err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	return informer, nil
}

// stripped is a pod without what is of no use here; a node has a hundred of them.
func stripped(pod *corev1.Pod) *corev1.Pod {
	kept := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
			Labels: pod.Labels, Annotations: pod.Annotations, OwnerReferences: pod.OwnerReferences,
		},
		Spec: corev1.PodSpec{ResourceClaims: pod.Spec.ResourceClaims, SchedulingGroup: pod.Spec.SchedulingGroup},
		Status: corev1.PodStatus{
			Phase: pod.Status.Phase, ContainerStatuses: running(pod.Status.ContainerStatuses),
			ExtendedResourceClaimStatus: pod.Status.ExtendedResourceClaimStatus,
		},
	}
	bare := func(containers []corev1.Container) []corev1.Container {
		out := make([]corev1.Container, len(containers))
		for i, c := range containers {
			out[i] = corev1.Container{Name: c.Name, Resources: c.Resources}
		}
		return out
	}
	kept.Spec.Containers, kept.Spec.InitContainers = bare(pod.Spec.Containers), bare(pod.Spec.InitContainers)
	return kept
}

func running(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	var kept []corev1.ContainerStatus
	for _, s := range statuses {
		if s.State.Running != nil {
			kept = append(kept, corev1.ContainerStatus{Name: s.Name, State: corev1.ContainerState{Running: s.State.Running}})
		}
	}
	return kept
}

// mayHold says that a pod asks for GPUs or claims something.
func mayHold(pod *corev1.Pod) bool {
	return identity.AsksGPU(pod) || len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil
}

// started is when the last of the containers started that have GPUs: one that was
// restarted loads its data again. A pod of which none runs holds its GPUs since it was
// made.
func started(pod *corev1.Pod) time.Time {
	last := pod.CreationTimestamp.Time
	for _, s := range pod.Status.ContainerStatuses {
		if has(pod, s.Name) && s.State.Running.StartedAt.After(last) {
			last = s.State.Running.StartedAt.Time
		}
	}
	return last
}

// has says that a container asks for GPUs or claims something.
func has(pod *corev1.Pod, container string) bool {
	at := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == container })
	if at < 0 {
		return false
	}
	c := pod.Spec.Containers[at]
	return len(c.Resources.Claims) > 0 || identity.AsksGPU(&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{c}}})
}
