package invariants

import (
	"context"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// seeBatchJob takes in a Job. The pods of a JobSet's Jobs are the JobSet's, and
// those of a launcher the MPIJob's.
func (c *Checker) seeBatchJob(o *batchv1.Job, gone bool) {
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil && owner.Kind == "JobSet" {
		return
	}
	js := &jobSet{ref: ref("Job", o), namespace: o.Namespace, phases: map[string]int{workload.MainPodSet: 0}}
	js.queued = o.Labels[queueLabel] != "" && (o.Spec.ManagedBy == nil || *o.Spec.ManagedBy == batchv1.JobControllerName)
	js.suspended = o.Spec.Suspend != nil && *o.Spec.Suspend
	if owner := metav1.GetControllerOfNoCopy(o); isTraining(owner) {
		// An MPIJob's launcher.
		js.owner, js.queued = owner.UID, false
	}
	if owner := metav1.GetControllerOfNoCopy(o); isRay(owner) {
		// It submits a RayJob.
		js.owner, js.queued, js.submits = owner.UID, false, true
		js.phases[submitterSet] = 1
	}
	if js.queued {
		js.main = podSetOf(o)
	}
	was := c.jobSets[o.UID]
	c.keepJobSet(o.UID, js, gone)
	if was != nil && was.main != nil && js.main != nil {
		c.failedForGood(c.byOwner[o.UID], was.main.Ended, js.main.Ended)
	}
}

// podSetOf is the pod set of a Job, nil if it cannot be read.
func podSetOf(o *batchv1.Job) *workload.PodSet {
	for _, kind := range workload.Kinds(workload.Options{}) {
		if kind.GroupVersionKind() != batchv1.SchemeGroupVersion.WithKind("Job") {
			continue
		}
		if job, managed, _, err := kind.Read(context.Background(), nil, o); managed && err == nil {
			return job.PodSet(workload.MainPodSet)
		}
	}
	return nil
}

// failedForGood gives up the slots of a Job's indices that are over without
// having succeeded. Those that succeeded were given up with their pods.
func (c *Checker) failedForGood(cl *claim, was, now *workload.Ended) {
	if cl == nil {
		return
	}
	for _, index := range now.Indices {
		if slices.Contains(was.Indices, index) {
			continue
		}
		var failed *pod
		succeeded := false
		for _, p := range c.podsOf(cl.owner, workload.MainPodSet) {
			if p.index == index && p.ended {
				failed, succeeded = p, succeeded || p.succeeded
			}
		}
		if failed != nil && !succeeded {
			cl.done[place{workload.MainPodSet, failed.node}]++
		}
	}
}

// overBefore gives up the slots of a Workload that was just admitted for which
// no pod will come: its Job ran before, and some of its pods are over. Which
// slots those are the API says only where pods are numbered; of others Muster
// gives up the last.
func (c *Checker) overBefore(cl *claim, o *kueue.Workload) {
	js := c.jobSets[cl.owner]
	if js == nil || js.main == nil || o.Status.Admission == nil {
		return
	}
	for i := range o.Status.Admission.PodSetAssignments {
		nodes, err := workload.DecodeNodes(o.Status.Admission.PodSetAssignments[i].TopologyAssignment)
		if err != nil {
			continue
		}
		over := js.main.Ended.Indices
		if over == nil {
			for n := js.main.Ended.Count - (js.main.Completions - js.main.Count); n > 0; n-- {
				over = append(over, js.main.Count-n)
			}
		}
		for _, index := range over {
			if int(index) < len(nodes) {
				cl.done[place{workload.MainPodSet, c.nodeNamed(nodes[index])}]++
			}
		}
	}
}
