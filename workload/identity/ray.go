package identity

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// The labels of KubeRay's pods, and the name of the head.
const (
	RayGroup         = "ray.io"
	RayNodeTypeLabel = "ray.io/node-type"
	RayGroupLabel    = "ray.io/group"
	RayHead          = "head"
	// HeadPodSet is the pod set of a Ray cluster's head; those of its workers
	// have the names of their groups.
	HeadPodSet = "head"
)

// IsRay says that a reference is to one of KubeRay's objects of that kind.
func IsRay(ref *metav1.OwnerReference, kind string) bool {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && gv.Group == RayGroup && ref.Kind == kind
}

// raySlot is the slot of a pod that a RayCluster controls. The pods of a group
// are alike.
func raySlot(pod *corev1.Pod, owner *metav1.OwnerReference) (podOwner types.UID, slot Slot) {
	set := string(kueue.NewPodSetReference(pod.Labels[RayGroupLabel]))
	if pod.Labels[RayNodeTypeLabel] == RayHead {
		set = HeadPodSet
	}
	return owner.UID, Slot{PodSet: set, Completion: Unnumbered}
}
