package workload

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Job is one owner object read as a unit of decision. It is a value: reading
// the owner again gives a new Job.
type Job struct {
	Owner Owner
	// Queue is the LocalQueue's name, from the label kueue.x-k8s.io/queue-name.
	Queue string
	// PriorityClass is the WorkloadPriorityClass's name, from the label
	// kueue.x-k8s.io/priority-class; empty if none is named.
	PriorityClass string
	// PodPriorityClass is the PriorityClass that the pod templates name;
	// it counts only where PriorityClass is empty.
	PodPriorityClass string
	// MaxExecTime is the label kueue.x-k8s.io/max-exec-time-seconds as it was
	// written, nil without it; MaxExecutionSeconds reads it.
	MaxExecTime *string
	// PodOwnerUID is the UID by which the job's pods name it: the JobSet's,
	// which may be a TrainJob's child, or a batch Job's own. Empty while there
	// is no JobSet yet. SlotOf returns the same value.
	PodOwnerUID types.UID
	// OtherPodOwners are further UIDs by which some of its pods name it: those
	// of Jobs that its controller makes for them.
	OtherPodOwners []types.UID
	// Elastic says that the owner may have more or fewer pods in a set while it
	// runs, without starting anew.
	Elastic bool

	Created time.Time
	// Suspended says that the owner creates no pods now, and of a Gated job that
	// none of its pods is on a node.
	Suspended bool
	// Gated says that the pods exist before the job is admitted and cannot be
	// unmade: the scheduler's gate keeps them waiting. Pods are then the live
	// ones.
	Gated bool
	Pods  []*corev1.Pod
	// Templated says that the pod sets of a Gated job are those of the templates
	// that its pods are made from, and not read from the pods themselves.
	Templated bool
	// WorkloadOwner owns the job's Workload where the Owner is no object of its
	// own, nor pods that make up a group.
	WorkloadOwner *metav1.OwnerReference
	// Keeper replaces the job, which is a pod, by another one when it goes; zero
	// for other jobs.
	Keeper Keeper
	// Hints are what the owner's annotations say about being preempted. Kinds
	// leave them to who reads the owner.
	Hints Hints
	// Deleting says that the owner has a deletion timestamp.
	Deleting bool
	// TimeLimit is after how many seconds the owner's controller ends the whole
	// job, whatever becomes of its pods until then; nil without such an end.
	TimeLimit *int64
	// Finish is set once the owner has succeeded or failed for good.
	Finish  *Finish
	PodSets []PodSet
}

// Finish is how a job ended.
type Finish struct {
	Succeeded bool
	Message   string
}

// PodSet is Count identical pods of a job.
type PodSet struct {
	// Name is unique in the job: the replicated job's name, or MainPodSet.
	Name string
	// Count is the number of pods that exist at the same time.
	Count int32
	// MinCount is with how few pods the set can do, 0 if it must be whole. Whole is
	// how many it asks for where it runs with fewer, and 0 where it does not.
	MinCount, Whole int32
	// SyncCompletions: a set that is given fewer pods has as few completions.
	SyncCompletions bool
	// Completions is the number of pods that must succeed over the life of the
	// set. It is above Count where pods follow each other in fewer slots, and
	// never below.
	Completions int32
	// Ended is what the owner's status says of the pods that are over for
	// good. It is nil where that status says nothing of single pods, so that
	// they are counted as they succeed.
	Ended *Ended
	// PodsPerReplica is the number of pods in each of the replicas that the
	// set is made of (min(parallelism, completions) of each Job of a
	// replicated job). Index turns a Slot into an index of the set with it.
	PodsPerReplica int32
	// FirstRank is the lowest Rank of a group's pods where they are numbered one
	// after the other, else 0.
	FirstRank int32
	// Phase orders pod sets in time: pods of a phase may depend on those of
	// earlier ones being ready or complete. The sets of one phase depend on the
	// same, so they, and only they, can be waited for together.
	Phase int
	// Stamp is what the controllers write on the pods beyond the template, and
	// Exclusive how JobSet keeps the replicas apart.
	Stamp     Stamp
	Exclusive Exclusive
	// Template is the pod template as its author wrote it: requests are not
	// defaulted, and what an earlier Resume injected is taken out again.
	Template corev1.PodTemplateSpec
	// Rendered is the template as pods of it will be; nil until someone has
	// rendered it, which Read does not.
	Rendered *Rendered
	// Claimed is what the pods get through claims; none until it was rendered.
	Claimed Claimed
	// Deadline is how many seconds the pods run at most: the activeDeadlineSeconds
	// of the Jobs that make them, as often as these are made anew, or of pods that
	// nobody makes again; nil without one.
	Deadline *int64
	// Topology is what the template's topology annotations ask for, in the
	// form that Kueue writes into a Workload; never nil on a read Job.
	Topology *kueue.PodSetTopologyRequest
}

// Ended is the pods of a set that are over for good: they have succeeded, or
// have failed and are not tried again.
type Ended struct {
	// Count is their number, of the set's Completions.
	Count int32
	// Indices are theirs, where each pod of the set has a slot of its own; nil
	// where pods follow each other in the slots, or have no numbers.
	Indices []int32
}

// PodOwners are all UIDs by which the job's pods name it.
func (j *Job) PodOwners() []types.UID {
	if j.PodOwnerUID == "" {
		return j.OtherPodOwners
	}
	return append([]types.UID{j.PodOwnerUID}, j.OtherPodOwners...)
}

// Own is a slot that a pod of podOwner names, as the job has it: a Job that
// submits a RayJob makes pods of one set, which do not know which.
func (j *Job) Own(podOwner types.UID, s Slot) Slot {
	if s.PodSet == MainPodSet && j.PodSet(submitterPodSet) != nil && slices.Contains(j.OtherPodOwners, podOwner) {
		s.PodSet = submitterPodSet
	}
	return s
}

// PodSet returns the pod set of that name, or nil.
func (j *Job) PodSet(name string) *PodSet {
	for i := range j.PodSets {
		if j.PodSets[i].Name == name {
			return &j.PodSets[i]
		}
	}
	return nil
}

// Asks is the number of pods that the set's owner asks for.
func (p *PodSet) Asks() int32 {
	if p.Whole > 0 {
		return p.Whole
	}
	return p.Count
}

// PodSetInfo is what a resume injects into one pod set: the node labels and
// tolerations of its flavors, and labels and annotations of the pods.
type PodSetInfo struct {
	Name string
	// Count is the number of pods of a set that is given fewer than it asks for;
	// 0 is all of them.
	Count        int32
	NodeSelector map[string]string
	Tolerations  []corev1.Toleration
	Labels       map[string]string
	Annotations  map[string]string
}
