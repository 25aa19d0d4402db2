package identity

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// The labels by which the pods of a LeaderWorkerSet know their place, and the
// names of the pod sets of each of its replicas.
const (
	LWSNameLabel   = "leaderworkerset.sigs.k8s.io/name"
	LWSIndexLabel  = "leaderworkerset.sigs.k8s.io/group-index"
	LWSWorkerLabel = "leaderworkerset.sigs.k8s.io/worker-index"

	LeaderPodSet = "leader"
	WorkerPodSet = "worker"
)

// ReplicaGVK is the LeaderWorkerSet, of which each replica is a job.
var ReplicaGVK = schema.GroupVersionKind{Group: "leaderworkerset.x-k8s.io", Version: "v1", Kind: "LeaderWorkerSet"}

// ReplicaOf names the replica that a pod is of, by its labels; a StatefulSet
// must have made it. ok is false for any other pod.
func ReplicaOf(pod *corev1.Pod) (owner Owner, slot Slot, ok bool) {
	by := metav1.GetControllerOfNoCopy(pod)
	set, index := pod.Labels[LWSNameLabel], pod.Labels[LWSIndexLabel]
	worker, numbered := Ordinal(pod.Labels[LWSWorkerLabel])
	if _, isIndex := Ordinal(index); by == nil || by.Kind != "StatefulSet" || set == "" || !isIndex || !numbered {
		return Owner{}, Slot{}, false
	}
	key := types.NamespacedName{Namespace: pod.Namespace, Name: set + "-" + index}
	slot = Slot{PodSet: LeaderPodSet}
	if worker > 0 {
		slot = Slot{PodSet: WorkerPodSet, Completion: worker - 1}
	}
	return Owner{GroupVersionKind: ReplicaGVK, NamespacedName: key, UID: GroupUID(ReplicaGVK, key)}, slot, true
}
