package show

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload"
)

// The states of jobs by which they are chosen.
const (
	pending  = "pending"
	running  = "running"
	finished = "finished"
)

// States are the values of --state.
var States = []string{pending, running, finished}

// Job is one job as it is shown: what its Workload says.
type Job struct {
	Kind      string `json:"kind"`
	Group     string `json:"group,omitempty"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Workload  string `json:"workload"`
	// Queue is the LocalQueue, ClusterQueue where the job is admitted.
	Queue        string `json:"queue"`
	ClusterQueue string `json:"clusterQueue,omitempty"`
	Priority     int32  `json:"priority"`
	GPUs         int64  `json:"gpus"`
	// Ready are the pods of the job that are ready or have succeeded, of Pods in all.
	Ready int32 `json:"ready"`
	Pods  int32 `json:"pods"`
	// State is Pending, Deactivated, Running, Stopping, Succeeded or Failed, and Phase
	// which of States that counts as.
	State string `json:"state"`
	Phase string `json:"phase"`
	// Position is the place among the jobs of its LocalQueue that wait, from 1 on; 0 if
	// it waits not.
	Position int `json:"position,omitempty"`
	// Since is when it began to wait or to run, or ended.
	Since metav1.Time `json:"since,omitzero"`
	// Reason is the class of why it waits, or what is wrong with it while it runs;
	// Message says it in full.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Placement is how the scheduler says that it was admitted: with how many GPUs, on
	// how many nodes and in which domains, and how few would do.
	Placement string `json:"placement,omitempty"`

	created time.Time
	uid     string
	nodes   []string
}

// jobOf is the job of a Workload.
func jobOf(wl *kueue.Workload) Job {
	owner := ownerOf(wl)
	j := Job{
		Kind: owner.Kind, Group: owner.Group, Namespace: wl.Namespace, Name: owner.Name, Workload: wl.Name,
		Queue: string(wl.Spec.QueueName), Priority: ptr.Deref(wl.Spec.Priority, 0),
		created: wl.CreationTimestamp.Time, uid: string(owner.UID),
	}
	j.size(wl)
	j.state(wl)
	return j
}

// ownerOf is whose Workload it is; that of nobody is its own.
func ownerOf(wl *kueue.Workload) workload.Owner {
	owner, ok := workload.OwnerOf(wl)
	if !ok {
		owner.GroupVersionKind, owner.Name, owner.UID = kueue.SchemeGroupVersion.WithKind("Workload"), wl.Name, wl.UID
	}
	if refs := wl.OwnerReferences; len(refs) == 1 && refs[0].Kind == "Pod" {
		owner.GroupVersionKind, owner.Name = corev1.SchemeGroupVersion.WithKind("Pod"), refs[0].Name
	}
	return owner
}

// size counts the job's pods and GPUs: what it was admitted with, else what it asks for.
func (j *Job) size(wl *kueue.Workload) {
	if a := wl.Status.Admission; a != nil {
		j.ClusterQueue = string(a.ClusterQueue)
		for i := range a.PodSetAssignments {
			set := &a.PodSetAssignments[i]
			j.Pods += ptr.Deref(set.Count, 0)
			j.GPUs += workload.GPUs(set.ResourceUsage)
			// A plan that does not end in nodes is another program's.
			if nodes, err := workload.DecodeNodes(set.TopologyAssignment); err == nil {
				j.nodes = append(j.nodes, nodes...)
			}
		}
		return
	}
	for i := range wl.Spec.PodSets {
		set := &wl.Spec.PodSets[i]
		j.Pods += set.Count
		j.GPUs += int64(set.Count) * workload.GPUs(workload.Requests(&set.Template))
	}
}

// state is what the conditions of the Workload come to.
func (j *Job) state(wl *kueue.Workload) {
	is := func(kind string) *metav1.Condition {
		if c := apimeta.FindStatusCondition(wl.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionTrue {
			return c
		}
		return nil
	}
	admitted, evicted := is(kueue.WorkloadAdmitted), is(kueue.WorkloadEvicted)
	switch c := is(kueue.WorkloadFinished); {
	case c != nil:
		j.State, j.Phase, j.Since, j.Message = "Succeeded", finished, c.LastTransitionTime, c.Message
		if c.Reason != kueue.WorkloadFinishedReasonSucceeded {
			j.State, j.Reason = "Failed", c.Reason
		}
	case admitted != nil:
		j.State, j.Phase, j.Since = "Running", running, admitted.LastTransitionTime
		j.Placement = strings.TrimPrefix(admitted.Message, "admitted: ")
		if evicted != nil {
			j.State, j.Reason, j.Message = "Stopping", evicted.Reason, evicted.Message
		} else if idle := is("muster.dev/Idle"); idle != nil {
			j.Reason, j.Message = "GPUs"+idle.Reason, idle.Message
		}
	default:
		j.State, j.Phase, j.Since = "Pending", pending, wl.CreationTimestamp
		if evicted != nil {
			j.Since = evicted.LastTransitionTime
		}
		if c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved); c != nil {
			j.Reason, j.Message = c.Reason, c.Message
		}
		if !ptr.Deref(wl.Spec.Active, true) {
			j.State = "Deactivated"
			if j.Reason == "" {
				j.Reason = string(reason.Deactivated)
			}
			if evicted != nil {
				j.Message = cmp.Or(j.Message, evicted.Message)
			}
		}
	}
}

// rank numbers the jobs of each LocalQueue that wait, in queue order.
func rank(jobs []Job) {
	last := map[[2]string]int{}
	for i := range jobs {
		if j := &jobs[i]; j.State == "Pending" {
			queue := [2]string{j.Namespace, j.Queue}
			last[queue]++
			j.Position = last[queue]
		}
	}
}

// phases is the order in which jobs are listed.
var phases = map[string]int{running: 0, pending: 1, finished: 2}

// sortJobs lists those that run before those that wait, each in queue order.
func sortJobs(jobs []Job) {
	slices.SortFunc(jobs, func(a, b Job) int {
		return cmp.Or(
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(phases[a.Phase], phases[b.Phase]), cmp.Compare(a.Queue, b.Queue),
			cmp.Compare(b.Priority, a.Priority), a.created.Compare(b.created), strings.Compare(a.uid, b.uid))
	})
}

// id is the job as kubectl names it.
func (j *Job) id() string {
	kind := strings.ToLower(j.Kind)
	if j.Group != "" {
		kind += "." + j.Group
	}
	return kind + "/" + j.Name
}

// String is the job as people name it.
func (j *Job) String() string { return j.Kind + " " + j.Namespace + "/" + j.Name }
