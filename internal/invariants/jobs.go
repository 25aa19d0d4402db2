package invariants

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-gpu/muster/workload"
)

const (
	queueLabel         = "kueue.x-k8s.io/queue-name"
	trainJobController = "trainer.kubeflow.org/trainjob-controller"
)

// jobSet is what matters of a JobSet, or of what is like a JobSet of one
// replicated job: a batch Job of its own, or a pod or a group of pods without an
// owner object. It is what pods are known by the UID of.
type jobSet struct {
	ref, namespace string
	// owner is the TrainJob or MPIJob that made it; empty for one of its own.
	owner     types.UID
	queued    bool
	suspended bool
	// submits says that it is a Job that submits a RayJob.
	submits bool
	// phases tells which replicated jobs start together.
	phases map[string]int
	// main is the pod set of a queued batch Job, with what its status says of
	// pods that are over; nil for a JobSet.
	main *workload.PodSet
}

type trainJob struct {
	ref       string
	queued    bool
	suspended bool
}

func ref(kind string, o metav1.Object) string {
	if o.GetNamespace() == "" {
		return kind + " " + o.GetName()
	}
	return kind + " " + o.GetNamespace() + "/" + o.GetName()
}

func (c *Checker) seeJobSet(o *jobset.JobSet, gone bool) {
	js := &jobSet{ref: ref("JobSet", o), namespace: o.Namespace, phases: phases(o)}
	js.queued = o.Labels[queueLabel] != "" && (o.Spec.ManagedBy == nil || *o.Spec.ManagedBy == jobset.JobSetControllerName)
	js.suspended = o.Spec.Suspend != nil && *o.Spec.Suspend
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil && owner.Kind == "TrainJob" {
		js.owner = owner.UID
	}
	c.keepJobSet(o.UID, js, gone)
}

func (c *Checker) keepJobSet(uid types.UID, js *jobSet, gone bool) {
	was := c.jobSets[uid]
	c.jobSets[uid] = js
	c.noteJob(js.ref, was != nil, gone, was != nil && was.suspended, js.suspended, js.ref, c.jobRef(uid))
	if gone {
		c.endJob(uid)
	}
}

// seeAlone records the job that a pod without an owner object is, alone or with
// its group. It is queued once a pod of it names a queue; a pod without one may
// be sent to a default queue, which only its Workload tells.
func (c *Checker) seeAlone(o *corev1.Pod, p *pod) {
	js := c.jobSets[p.jobSet]
	if js == nil {
		js = &jobSet{ref: p.ref, namespace: o.Namespace, phases: map[string]int{}}
		c.jobSets[p.jobSet] = js
	}
	js.queued = js.queued || o.Labels[queueLabel] != "" || c.byOwner[p.jobSet] != nil
	if !p.ended && !p.leaving {
		delete(c.ended, p.jobSet)
	}
}

func (c *Checker) seeTrainJob(o *unstructured.Unstructured, gone bool) {
	tj := &trainJob{ref: ref(o.GetKind(), o)}
	// A field of another type counts as absent.
	managedBy, _, _ := unstructured.NestedString(o.Object, "spec", "managedBy")
	tj.suspended, _, _ = unstructured.NestedBool(o.Object, "spec", "suspend")
	tj.queued = o.GetLabels()[queueLabel] != "" && (managedBy == "" || managedBy == trainJobController)
	was := c.trainJobs[o.GetUID()]
	c.trainJobs[o.GetUID()] = tj
	c.noteJob(tj.ref, was != nil, gone, was != nil && was.suspended, tj.suspended, tj.ref)
	if gone {
		c.endJob(o.GetUID())
	}
}

// endJob records that a job was deleted. No pod will come any more, so its
// Workload holds nothing and is charged only while pods of it are on nodes;
// the garbage collector may leave it in the API for a while.
func (c *Checker) endJob(job types.UID) {
	c.ended[job] = true
	if cl := c.byOwner[job]; cl != nil && !cl.gone {
		c.settleClaim(cl)
	}
}

func (c *Checker) noteJob(name string, known, gone, wasSuspended, suspended bool, about ...string) {
	state := map[bool]string{true: "suspended", false: "not suspended"}
	switch {
	case gone:
		c.note(name+" is gone", about...)
	case !known:
		c.note(fmt.Sprintf("%s is there, %s", name, state[suspended]), about...)
	case wasSuspended != suspended:
		c.note(fmt.Sprintf("%s is now %s", name, state[suspended]), about...)
	}
}

// jobOf is the UID of the job to which the pods of a JobSet belong, and
// whether the job is queued.
func (c *Checker) jobOf(jobSet types.UID) (job types.UID, queued bool) {
	js := c.jobSets[jobSet]
	if js == nil {
		return "", false
	}
	if js.owner == "" {
		return jobSet, js.queued
	}
	if parent := c.jobSets[js.owner]; parent != nil {
		return js.owner, parent.queued
	}
	tj := c.trainJobs[js.owner]
	return js.owner, tj != nil && tj.queued
}

// jobRef names the job to which the pods of a JobSet belong.
func (c *Checker) jobRef(jobSet types.UID) string {
	job, _ := c.jobOf(jobSet)
	if tj := c.trainJobs[job]; tj != nil {
		return tj.ref
	}
	if js := c.jobSets[job]; js != nil {
		return js.ref
	}
	if js := c.jobSets[jobSet]; js != nil {
		return js.ref
	}
	return ""
}

// phases numbers the replicated jobs of a JobSet by when they start: one after
// the other where it says InOrder, else each with those that depend on the same.
func phases(o *jobset.JobSet) map[string]int {
	out := map[string]int{}
	inOrder := o.Spec.StartupPolicy != nil && o.Spec.StartupPolicy.StartupPolicyOrder == jobset.InOrder
	number := map[string]int{}
	for i := range o.Spec.ReplicatedJobs {
		rj := &o.Spec.ReplicatedJobs[i]
		var after []string
		for _, dependency := range rj.DependsOn {
			after = append(after, dependency.Name+" "+string(dependency.Status))
		}
		slices.Sort(after)
		key := strings.Join(after, ",")
		if inOrder {
			key = rj.Name
		}
		if _, found := number[key]; !found {
			number[key] = len(number)
		}
		out[rj.Name] = number[key]
	}
	return out
}
