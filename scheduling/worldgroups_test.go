package scheduling

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"pgregory.net/rapid"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload"
)

// worldGroup is a group of pods without an owner object, which people make.
type worldGroup struct {
	kind workload.Kind
	size int
	gpus int64
	// ended are the pods that have succeeded and are still in the API.
	ended []*corev1.Pod
}

// createGroup makes a group of pods, some of them at first.
func (w *world) createGroup(t *rapid.T) {
	w.born++
	o := &owner{exists: true, succeeded: map[workload.Slot]bool{}, group: &worldGroup{
		size: rapid.IntRange(1, 3).Draw(t, "pods"), gpus: int64(rapid.SampledFrom([]int{2, 4, 8}).Draw(t, "gpus")),
	}}
	g := o.group
	owner, _ := workload.PodJob(g.pod(fmt.Sprintf("group-%d", w.born), "first"))
	o.job = &workload.Job{Owner: owner, Gated: true, Queue: "main", PodOwnerUID: owner.UID}
	for _, k := range workload.Kinds(workload.Options{SchedulerNames: sets.New(corev1.DefaultSchedulerName), Unqueued: workload.UnqueuedRun}) {
		if k.GroupVersionKind() == owner.GroupVersionKind {
			g.kind = k
		}
	}
	w.owners = append(w.owners, o)
	w.control(o)
}

// pod is a pod of a group of that name.
func (g *worldGroup) pod(group, name string) *corev1.Pod {
	p := plainPod(name, "", g.gpus)
	delete(p.Spec.Containers[0].Resources.Requests, corev1.ResourceCPU)
	p.Labels = map[string]string{workload.QueueLabel: "main", workload.KueueGroupLabel: group}
	p.Annotations = map[string]string{workload.KueueGroupCountAnnotation: fmt.Sprint(g.size)}
	return p
}

// makeGroup makes the pods that a group lacks, one for each of its places.
func (w *world) makeGroup(o *owner) {
	for i := range o.group.size {
		at := workload.Slot{PodSet: "member", Completion: int32(i)}
		if o.succeeded[at] || slices.ContainsFunc(o.pods, func(p *worldPod) bool { return p.slot == at }) {
			continue
		}
		w.born++
		p := &worldPod{Pod: o.group.pod(o.job.Owner.Name, fmt.Sprintf("%s-%d-%d", o.job.Owner.Name, i, w.born)), slot: at}
		o.pods = append(o.pods, p)
		w.Seen(p.Pod)
	}
}

// readGroup reads a group as Jobs does; nil where it has no pods.
func (w *world) readGroup(o *owner) (*workload.Job, *reason.Reason) {
	group := &workload.PodGroup{Pods: slices.Clone(o.group.ended)}
	group.Namespace, group.Name, group.UID = o.job.Owner.Namespace, o.job.Owner.Name, o.job.Owner.UID
	group.Labels = map[string]string{workload.QueueLabel: "main"}
	for _, p := range o.pods {
		if p.bound != nil {
			group.Pods = append(group.Pods, p.bound)
		} else {
			group.Pods = append(group.Pods, p.Pod)
		}
	}
	if len(group.Pods) == 0 {
		return nil, nil
	}
	job, managed, no, err := o.group.kind.Read(w.ctx, nil, group)
	if err != nil || !managed {
		w.t.Fatalf("group %s is managed: %v (%v)", group.Name, managed, err)
	}
	return job, no
}

// reconcileGroup does what Jobs does with a group; the write that an action
// needs fails if fail says so.
func (w *world) reconcileGroup(o *owner, fail bool) {
	job, no := w.readGroup(o)
	uid := o.job.Owner.UID
	var want action
	switch {
	case job == nil:
		_, want = w.ownerGone(uid)
	case !job.Suspended && !w.knows(uid) && !claimsAdmission(o.wl):
		w.Unmanaged(uid)
		return
	default:
		o.job = job
		if isFinished(o.wl) && job.Finish == nil {
			o.wl = nil
		}
		if o.wl == nil && no == nil && job.Finish == nil {
			o.wl = w.workloadOfJob(job)
		}
		want = w.read(job, o.wl.DeepCopy(), no)
	}
	if fail {
		return
	}
	w.do(o, want)
}

// evictGroup has the pods of a group leave their nodes.
func (w *world) evictGroup(o *owner) {
	for _, p := range slices.Clone(o.pods) {
		if p.bound != nil {
			w.terminate(p)
		}
	}
}

// restoreGroup is a group at a restart.
func (w *world) restoreGroup(o *owner) {
	if !claimsAdmission(o.wl) {
		return
	}
	job, _ := w.readGroup(o)
	if job == nil {
		job = goneOwner(o.wl, o.job.Owner)
	}
	w.Ledger.restore(job, o.wl.DeepCopy(), o.group.ended)
}

// startsAgain makes the pods of a group when nothing else is there: all of them
// must come onto nodes, and one that is deleted must be replaced in its slot.
func (w *world) startsAgain(t *rapid.T, o *owner) {
	o.exists = true
	clear(o.succeeded)
	w.wait(2 * time.Hour)
	w.runAll()
	w.remove(o, o.pods[0])
	w.runAll()
	e := w.jobs[o.job.Owner.UID]
	if e == nil || e.state != Admitted || len(o.pods) != o.group.size {
		t.Fatalf("group %s of %d pods has %d and is %v", o.job.Owner.Name, o.group.size, len(o.pods), e)
	}
	for _, p := range o.pods {
		if p.bound == nil {
			_, why := w.MayEnter(p.Pod)
			t.Fatalf("pod %s of %s is not on a node: %s", p.Name, e, why)
		}
	}
}
