package workload

import (
	"math"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Unnumbered is the Completion of a pod whose Job numbers no pods.
const Unnumbered int32 = -1

// AnySlot is the index of a pod that may fill any free slot of its pod set.
const AnySlot int32 = -1

// MainPodSet is the one pod set of a batch Job.
const MainPodSet = string(kueue.DefaultPodSetName)

// Slot is one pod's place in a job, as the pod itself knows it: the Job
// (Replica) of the replicated job PodSet, and the completion index in that Job.
// It is comparable. PodSet.Index turns it into an index, PodSet.Slot back.
type Slot struct {
	PodSet     string
	Replica    int32
	Completion int32
	// Rank is the number of a pod of a group from 1 on, 0 if it has none. It says
	// which slot the pod takes where that is free: see PodSet.FirstRank.
	Rank int32
}

// SlotOf reads from a pod which slot it fills, and of which job: the UID is
// Job.PodOwnerUID. ok is false for a pod that is no job's. It reads the pod and
// nothing else, because it runs under the scheduling queue's lock. A user may
// copy labels: a pod that no controller owns has no slot in a JobSet or a Job,
// and whoever gives a slot away compares the pod's namespace with the job's.
//
// The slot of a group's pod has no pod set: RoleOf names it.
func SlotOf(pod *corev1.Pod) (podOwner types.UID, slot Slot, ok bool) {
	if s, owned := ownedSlot(pod); owned {
		return s.podOwner, s.Slot, true
	}
	owner, ok := PodJob(pod)
	if !ok {
		return "", Slot{}, false
	}
	switch owner.GroupVersionKind {
	case podGVK:
		slot = Slot{PodSet: MainPodSet}
	case ReplicaGVK:
		_, slot, _ = replicaOf(pod)
	default:
		slot = Slot{Completion: Unnumbered, Rank: rankOf(pod)}
	}
	return owner.UID, slot, true
}

// rankOf is the Rank of a group's pod: by Kueue's label, by the label that Kueue's
// annotation names in its place, or by that of StatefulSets.
func rankOf(pod *corev1.Pod) int32 {
	named := pod.Annotations[kueue.PodGroupPodIndexLabelAnnotation]
	for _, label := range []string{kueue.PodGroupPodIndexLabel, named, appsv1.PodIndexLabel} {
		if n, ok := ordinal(pod.Labels[label]); ok && n < math.MaxInt32 {
			return n + 1
		}
	}
	return 0
}

// ownerSlot is a slot of the job with an owner object.
type ownerSlot struct {
	podOwner types.UID
	Slot
}

// ownedSlot is the slot of a pod that an owner object's controller made: a
// JobSet's, by its labels, or a training job's, a RayCluster's or a batch Job's,
// by its controller reference.
//
// JobSet 0.8.2 and older do not write the UID label; their pods are told from
// their Jobs, which are not managed.
func ownedSlot(pod *corev1.Pod) (ownerSlot, bool) {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return ownerSlot{}, false
	}
	if pod.Labels[jobset.JobSetUIDKey] != "" {
		podOwner, slot, ok := jobSetSlot(pod)
		return ownerSlot{podOwner, slot}, ok
	}
	if isTraining(owner) {
		slot, ok := trainingSlot(pod)
		return ownerSlot{owner.UID, slot}, ok
	}
	if isRay(owner, rayClusterGVK.Kind) {
		podOwner, slot := raySlot(pod, owner)
		return ownerSlot{podOwner, slot}, true
	}
	if !isBatchJob(owner) {
		return ownerSlot{}, false
	}
	if isMPILauncher(pod, owner.Name) {
		return ownerSlot{owner.UID, Slot{PodSet: strings.ToLower(mpiLauncher)}}, true
	}
	slot := Slot{PodSet: MainPodSet, Completion: Unnumbered}
	// What the author of a Job that numbers no pods wrote there means nothing.
	if completion, numbered, ok := completionOf(pod); numbered && ok {
		slot.Completion = completion
	}
	return ownerSlot{owner.UID, slot}, true
}

func jobSetSlot(pod *corev1.Pod) (podOwner types.UID, slot Slot, ok bool) {
	name := pod.Labels[jobset.ReplicatedJobNameKey]
	replica, ok := ordinal(pod.Labels[jobset.JobIndexKey])
	if name == "" || !ok {
		return "", Slot{}, false
	}
	completion, numbered, ok := completionOf(pod)
	switch {
	case !numbered:
		completion = Unnumbered
	case !ok:
		return "", Slot{}, false
	}
	return types.UID(pod.Labels[jobset.JobSetUIDKey]), Slot{PodSet: name, Replica: replica, Completion: completion}, true
}

// completionOf is the pod's completion index; numbered says that it has one,
// and ok that it is a number.
func completionOf(pod *corev1.Pod) (completion int32, numbered, ok bool) {
	// An Indexed Job writes its index as an annotation, and since Kubernetes
	// 1.28 as a label too.
	index, numbered := pod.Labels[batchv1.JobCompletionIndexAnnotation]
	if !numbered {
		index, numbered = pod.Annotations[batchv1.JobCompletionIndexAnnotation]
	}
	completion, ok = ordinal(index)
	return completion, numbered, ok
}

// ordinal reads a number of 0 or more.
func ordinal(s string) (int32, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	return int32(n), err == nil
}

// Index is the slot's index in the pod set, in [0, Count), replica by replica.
// It is AnySlot where the pod's Job numbers no pods, or the completion index is
// beyond the pods that run at a time, so that it has no place of its own. ok is
// false where the slot is not one of the set's.
func (p *PodSet) Index(s Slot) (index int32, ok bool) {
	if s.PodSet != p.Name || p.PodsPerReplica <= 0 ||
		s.Replica < 0 || s.Replica >= p.Count/p.PodsPerReplica {
		return 0, false
	}
	if s.Completion < 0 || s.Completion >= p.PodsPerReplica {
		return AnySlot, true
	}
	return s.Replica*p.PodsPerReplica + s.Completion, true
}

// Preferred is the index that a pod of a group has by its Rank, AnySlot if it has
// none.
func (p *PodSet) Preferred(s Slot) int32 {
	if i := s.Rank - p.FirstRank; p.FirstRank > 0 && s.Rank > 0 && i >= 0 && i < p.Count {
		return i
	}
	return AnySlot
}

// Slot is the inverse of Index: the slot of the pod with that index, which
// must be in [0, Count).
func (p *PodSet) Slot(index int32) Slot {
	return Slot{PodSet: p.Name, Replica: index / p.PodsPerReplica, Completion: index % p.PodsPerReplica}
}
