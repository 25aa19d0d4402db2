package identity

import (
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Unnumbered is the Completion of a pod whose Job numbers no pods.
const Unnumbered int32 = -1

// AnySlot is the index of a pod that may fill any free slot of its pod set.
const AnySlot int32 = -1

// MainPodSet is the one pod set of a batch Job.
const MainPodSet = string(kueue.DefaultPodSetName)

// The labels of JobSets, of Jobs and of StatefulSets, whose packages are not linked for
// them.
const (
	jobSetUID        = "jobset.sigs.k8s.io/jobset-uid"
	jobSetReplicated = "jobset.sigs.k8s.io/replicatedjob-name"
	jobSetJobIndex   = "jobset.sigs.k8s.io/job-index"
	completionIndex  = "batch.kubernetes.io/job-completion-index"
	statefulIndex    = "apps.kubernetes.io/pod-index"
)

// Slot is one pod's place in a job, as the pod itself knows it: the Job
// (Replica) of the replicated job PodSet, and the completion index in that Job.
// It is comparable. A pod set of package workload turns it into an index, and back.
type Slot struct {
	PodSet     string
	Replica    int32
	Completion int32
	// Rank is the number of a pod of a group from 1 on, 0 if it has none. It says
	// which slot the pod takes where that is free.
	Rank int32
}

// SlotOf reads from a pod which slot it fills, and of which job: the UID is
// by which its pods name the job. ok is false for a pod that is no job's. It reads the pod and
// nothing else, because it runs under the scheduling queue's lock. A user may
// copy labels: a pod that no controller owns has no slot in a JobSet or a Job,
// and whoever gives a slot away compares the pod's namespace with the job's.
//
// The slot of a group's pod has no pod set.
func SlotOf(pod *corev1.Pod) (podOwner types.UID, slot Slot, ok bool) {
	if s, owned := ownedSlot(pod); owned {
		return s.podOwner, s.Slot, true
	}
	owner, ok := PodJob(pod)
	if !ok {
		return "", Slot{}, false
	}
	switch owner.GroupVersionKind {
	case PodGVK:
		slot = Slot{PodSet: MainPodSet}
	case ReplicaGVK:
		_, slot, _ = ReplicaOf(pod)
	default:
		slot = Slot{Completion: Unnumbered, Rank: RankOf(pod)}
	}
	return owner.UID, slot, true
}

// RankOf is the Rank of a group's pod: by Kueue's label, by the label that Kueue's
// annotation names in its place, or by that of StatefulSets.
func RankOf(pod *corev1.Pod) int32 {
	named := pod.Annotations[kueue.PodGroupPodIndexLabelAnnotation]
	for _, label := range []string{kueue.PodGroupPodIndexLabel, named, statefulIndex} {
		if n, ok := Ordinal(pod.Labels[label]); ok && n < math.MaxInt32 {
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
	if pod.Labels[jobSetUID] != "" {
		podOwner, slot, ok := jobSetSlot(pod)
		return ownerSlot{podOwner, slot}, ok
	}
	if isTraining(owner) {
		slot, ok := trainingSlot(pod)
		return ownerSlot{owner.UID, slot}, ok
	}
	if IsRay(owner, "RayCluster") {
		podOwner, slot := raySlot(pod, owner)
		return ownerSlot{podOwner, slot}, true
	}
	if !isBatchJob(owner) {
		return ownerSlot{}, false
	}
	if isMPILauncher(pod, owner.Name) {
		return ownerSlot{owner.UID, Slot{PodSet: strings.ToLower(MPILauncher)}}, true
	}
	slot := Slot{PodSet: MainPodSet, Completion: Unnumbered}
	// What the author of a Job that numbers no pods wrote there means nothing.
	if completion, numbered, ok := completionOf(pod); numbered && ok {
		slot.Completion = completion
	}
	return ownerSlot{owner.UID, slot}, true
}

func jobSetSlot(pod *corev1.Pod) (podOwner types.UID, slot Slot, ok bool) {
	name := pod.Labels[jobSetReplicated]
	replica, ok := Ordinal(pod.Labels[jobSetJobIndex])
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
	return types.UID(pod.Labels[jobSetUID]), Slot{PodSet: name, Replica: replica, Completion: completion}, true
}

// completionOf is the pod's completion index; numbered says that it has one,
// and ok that it is a number.
func completionOf(pod *corev1.Pod) (completion int32, numbered, ok bool) {
	// An Indexed Job writes its index as an annotation, and since Kubernetes
	// 1.28 as a label too.
	index, numbered := pod.Labels[completionIndex]
	if !numbered {
		index, numbered = pod.Annotations[completionIndex]
	}
	completion, ok = Ordinal(index)
	return completion, numbered, ok
}

func isBatchJob(ref *metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && gv.Group == "batch" && ref.Kind == "Job"
}

// Ordinal reads a number of 0 or more.
func Ordinal(s string) (int32, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	return int32(n), err == nil
}
