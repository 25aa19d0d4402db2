package queueing

import (
	"strconv"

	"gomodules.xyz/jsonpatch/v2"
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
//   - A TrainJob or JobSet with a queue label is suspended, unless a TrainJob
//     controls it: then the TrainJob is the unit of admission, and the
//     Trainer would undo a suspension of the child by itself.
//   - Every pod template of a queued JobSet that names no scheduler gets
//     schedulerName. TrainJobs have no field for it. A template that
//     names another scheduler keeps it; the admission cycle refuses the job
//     with a reason, which is better than running it where its author did not
//     ask for.
//   - An object that a foreign controller manages is not touched.
func Decide(o *Object, ownerQueued bool, schedulerName string) []jsonpatch.Operation {
	if o.body.Spec == nil || o.foreign() {
		return nil
	}
	var patch []jsonpatch.Operation
	if o.Queue() != "" && o.Owner() == nil && !o.suspended() {
		// "add" on an object member also replaces: it serves absent, null and false.
		patch = append(patch, jsonpatch.NewOperation("add", "/spec/suspend", true))
	}
	if o.Queue() != "" || ownerQueued {
		for _, i := range o.unscheduled() {
			path := "/spec/replicatedJobs/" + strconv.Itoa(i) + "/template/spec/template/spec/schedulerName"
			patch = append(patch, jsonpatch.NewOperation("add", path, schedulerName))
		}
	}
	return patch
}

func (o *Object) suspended() bool {
	return o.body.Spec.Suspend != nil && *o.body.Spec.Suspend
}

// unscheduled lists the indices of a JobSet's replicated jobs whose pod
// template exists and names no scheduler. At a JobSet "unset" still shows; in
// pods and Jobs the API server has filled in its default by now.
func (o *Object) unscheduled() []int {
	if o.kind != JobSet || o.body.Spec == nil {
		return nil
	}
	var indices []int
	for i, rj := range o.body.Spec.ReplicatedJobs {
		if rj == nil || rj.Template == nil || rj.Template.Spec == nil || rj.Template.Spec.Template == nil {
			continue
		}
		pod := rj.Template.Spec.Template.Spec
		if pod != nil && (pod.SchedulerName == nil || *pod.SchedulerName == "") {
			indices = append(indices, i)
		}
	}
	return indices
}
