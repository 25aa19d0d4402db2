package queueing

import (
	"strconv"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
)

// NeedsOwner says whether the decision depends on the TrainJob that controls
// the object, so that a caller looks it up only then: for a JobSet without a
// queue label of its own that leaves some pod template without a scheduler.
func NeedsOwner(o *Object) bool {
	return o.Owner() != nil && o.Queue() == "" && !o.foreign() && len(o.unscheduled()) > 0
}

// Decide returns the smallest JSON patch that makes a new object wait for its
// queue; an empty one where there is nothing to do, so that a second pass over
// the patched object changes nothing. ownerQueued says that the object is
// controlled by a TrainJob with a queue label. schedulerName is Muster's.
//
//   - An object with a queue label is suspended, unless a TrainJob or a JobSet
//     controls it: then that is the unit of admission, and its controller
//     would undo a suspension of the child by itself.
//   - Every pod template of a queued JobSet or Job that names no scheduler
//     gets schedulerName. TrainJobs have no field for it. A template that
//     names another scheduler keeps it; the admission cycle refuses the job
//     with a reason, which is better than running it where its author did not
//     ask for.
//   - The Jobs of a JobSet are not touched: the JobSet's templates were.
//   - An object that a foreign controller manages is not touched.
func Decide(o *Object, ownerQueued bool, schedulerName string) []jsonpatch.Operation {
	if o.body.Spec == nil || o.foreign() || (o.kind == Job && o.child()) {
		return nil
	}
	var patch []jsonpatch.Operation
	if o.Queue() != "" && !o.child() && !o.suspended() {
		// "add" on an object member also replaces: it serves absent, null and false.
		patch = append(patch, jsonpatch.NewOperation("add", "/spec/suspend", true))
	}
	if o.Queue() != "" || ownerQueued {
		for _, path := range o.unscheduled() {
			patch = append(patch, jsonpatch.NewOperation("add", path+"/schedulerName", schedulerName))
		}
	}
	return patch
}

func (o *Object) suspended() bool {
	return o.body.Spec.Suspend != nil && *o.body.Spec.Suspend
}

// unscheduled lists the paths of the pod specs that name no scheduler, of
// those pod templates that exist.
func (o *Object) unscheduled() []string {
	if o.body.Spec == nil {
		return nil
	}
	var paths []string
	switch o.kind {
	case JobSet:
		for i, rj := range o.body.Spec.ReplicatedJobs {
			if rj != nil && rj.Template != nil && rj.Template.Spec != nil && rj.Template.Spec.Template.unscheduled("") {
				paths = append(paths, "/spec/replicatedJobs/"+strconv.Itoa(i)+"/template/spec/template/spec")
			}
		}
	case Job:
		// In a Job the API server has filled in its default by now, which
		// cannot be told from the author's own.
		if o.body.Spec.Template.unscheduled(corev1.DefaultSchedulerName) {
			paths = append(paths, "/spec/template/spec")
		}
	}
	return paths
}

// unscheduled says that a pod template exists and names no scheduler, or unset.
func (t *podTemplate) unscheduled(unset string) bool {
	if t == nil || t.Spec == nil {
		return false
	}
	name := t.Spec.SchedulerName
	return name == nil || *name == "" || *name == unset
}
