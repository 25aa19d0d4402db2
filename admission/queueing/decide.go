package queueing

import (
	"iter"
	"maps"
	"slices"
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

// Surroundings are what a decision depends on beside the object itself.
type Surroundings struct {
	// SchedulerName is Muster's.
	SchedulerName string
	// OwnerQueued says that the object is controlled by a TrainJob with a queue
	// label. It matters where NeedsOwner says so.
	OwnerQueued bool
	// DefaultQueue is the LocalQueue of jobs that name none, which the namespace has;
	// empty where it has none. It matters where NeedsDefaultQueue says so.
	DefaultQueue string
}

// Decide returns the smallest JSON patch that makes a new object wait for its
// queue; an empty one where there is nothing to do, so that a second pass over
// the patched object changes nothing.
//
//   - A job for which NeedsDefaultQueue gets the label of the default queue if
//     there is one, and counts as queued then.
//   - An object with a queue label is suspended, unless a TrainJob or a JobSet
//     controls it: then that is the unit of admission, and its controller
//     would undo a suspension of the child by itself. Pods cannot be suspended.
//   - Every pod template of a queued JobSet, Job or training job that names no
//     scheduler gets SchedulerName, and so does a queued pod. TrainJobs have no field for
//     it. A template that names another scheduler keeps it; the admission cycle
//     refuses the job with a reason, which is better than running it where its
//     author did not ask for.
//   - The Jobs of a JobSet, an MPIJob or a RayJob are not touched, nor is a
//     RayJob's RayCluster: its templates were.
//   - The pod templates of a Deployment, a StatefulSet or a LeaderWorkerSet with
//     a queue label get its queue and priority class too, where they name none.
//     One that another object controls is left: that one would undo it.
//   - An object that a foreign controller manages is not touched.
func Decide(o *Object, around Surroundings) []jsonpatch.Operation {
	if o.body.Spec == nil || o.foreign() || o.onOthers() || ((o.kind == Job || o.kind == RayCluster) && o.child()) {
		return nil
	}
	if o.serves() && (o.Queue() == "" || o.controlled()) {
		return nil
	}
	var patch []jsonpatch.Operation
	defaulted := around.DefaultQueue != "" && NeedsDefaultQueue(o, around.SchedulerName)
	if defaulted {
		patch = append(patch, o.label(QueueLabel, around.DefaultQueue))
	}
	queued := o.Queue() != "" || defaulted
	switch {
	case o.serves():
		patch = append(patch, o.inherited()...)
	case queued && o.kind != Pod && !o.child() && !o.suspended():
		patch = append(patch, o.suspension())
	}
	if queued || around.OwnerQueued {
		for _, path := range o.unscheduled() {
			patch = append(patch, jsonpatch.NewOperation("add", path+"/schedulerName", around.SchedulerName))
		}
	}
	return patch
}

func (o *Object) suspended() bool {
	suspend := o.body.Spec.Suspend
	if o.isTraining() {
		suspend = nil
		if policy := o.body.Spec.RunPolicy; policy != nil {
			suspend = policy.Suspend
		}
	}
	return suspend != nil && *suspend
}

// suspension is the operation that suspends the object. "add" on an object
// member also replaces: it serves absent, null and false.
func (o *Object) suspension() jsonpatch.Operation {
	switch {
	case !o.isTraining():
		return jsonpatch.NewOperation("add", "/spec/suspend", true)
	case o.body.Spec.RunPolicy == nil:
		return jsonpatch.NewOperation("add", "/spec/runPolicy", map[string]bool{"suspend": true})
	}
	return jsonpatch.NewOperation("add", "/spec/runPolicy/suspend", true)
}

// unscheduled lists the paths of the pod specs that name no scheduler, of
// those pod templates that exist.
func (o *Object) unscheduled() []string {
	var paths []string
	for path, s := range o.podSpecs() {
		if o.namesNone(s) {
			paths = append(paths, path)
		}
	}
	return paths
}

// podSpecs yields the pod specs that exist, by path and in order; of a TrainJob
// none. A pod that was made for a node is not scheduled, and has none either.
func (o *Object) podSpecs() iter.Seq2[string, *podSpec] {
	return func(yield func(string, *podSpec) bool) {
		body := o.body.Spec
		if body == nil {
			return
		}
		switch o.kind {
		case JobSet:
			for i, rj := range body.ReplicatedJobs {
				if rj == nil || rj.Template == nil || rj.Template.Spec == nil || rj.Template.Spec.Template == nil || rj.Template.Spec.Template.Spec == nil {
					continue
				}
				if !yield("/spec/replicatedJobs/"+strconv.Itoa(i)+"/template/spec/template/spec", rj.Template.Spec.Template.Spec) {
					return
				}
			}
		case Job:
			if body.Template != nil && body.Template.Spec != nil {
				yield("/spec/template/spec", body.Template.Spec)
			}
		case Pod:
			if body.Template.Spec.NodeName == "" {
				yield("/spec", body.Template.Spec)
			}
		case RayCluster, RayJob, Deployment, StatefulSet, LeaderWorkerSet:
			for _, t := range o.moreTemplates() {
				if !yield(t.path+"/spec", t.Spec) {
					return
				}
			}
		default:
			field, all := o.replicas()
			for _, key := range slices.Sorted(maps.Keys(all)) {
				r := all[key]
				if r == nil || r.Template == nil || r.Template.Spec == nil {
					continue
				}
				if !yield("/spec/"+field+"/"+pointer(key)+"/template/spec", r.Template.Spec) {
					return
				}
			}
		}
	}
}

// namesNone says that a pod spec of the object names no scheduler. In a Job and
// in a pod the API server has filled in its default by now, which cannot be
// told from the author's own.
func (o *Object) namesNone(s *podSpec) bool {
	return s.SchedulerName == nil || *s.SchedulerName == "" ||
		((o.kind == Job || o.kind == Pod || o.kind == Deployment || o.kind == StatefulSet) && *s.SchedulerName == corev1.DefaultSchedulerName)
}
