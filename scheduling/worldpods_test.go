package scheduling

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/workload"
)

// worldPod is one pod in the API. It is assumed between the scheduler's
// Reserve and its binding, and bound after.
type worldPod struct {
	*corev1.Pod
	slot           workload.Slot
	assumed, bound *corev1.Pod
	allowed        bool
}

// control makes and deletes pods, as the controllers of JobSet and Job do.
func (w *world) control(o *owner) {
	if o.group != nil {
		if o.exists {
			w.makeGroup(o)
			return
		}
		o.group.ended = nil
		for _, p := range slices.Clone(o.pods) {
			w.remove(o, p)
		}
		return
	}
	if !o.exists || o.job.Suspended || o.job.Finish != nil {
		for _, p := range slices.Clone(o.pods) {
			w.remove(o, p)
		}
		return
	}
	for i := range o.job.PodSets {
		ps := &o.job.PodSets[i]
		if ps.Phase > 0 && !o.under(o.job.PodSets[i-1]) {
			return
		}
		for k := range ps.Count {
			at := ps.Slot(k)
			if o.succeeded[at] || slices.ContainsFunc(o.pods, func(p *worldPod) bool { return p.slot == at && p.DeletionTimestamp == nil }) {
				continue
			}
			leader := ps.Slot(k / ps.PodsPerReplica * ps.PodsPerReplica)
			if ps.Follows(k) && !o.succeeded[leader] && !slices.ContainsFunc(o.pods, func(p *worldPod) bool { return p.slot == leader && p.bound != nil }) {
				// JobSet refuses it.
				continue
			}
			w.born++
			p := &worldPod{Pod: ofAttempt(o.attempt, pod(o.job, ps.Name, k, fmt.Sprintf("%s-%s-%d-%d", o.job.Owner.Name, ps.Name, k, w.born))), slot: at}
			o.pods = append(o.pods, p)
			w.Seen(p.Pod)
		}
	}
}

// under says that all pods of a set run or have succeeded.
func (o *owner) under(ps workload.PodSet) bool {
	for k := range ps.Count {
		at := ps.Slot(k)
		if !o.succeeded[at] && !slices.ContainsFunc(o.pods, func(p *worldPod) bool { return p.slot == at && p.bound != nil }) {
			return false
		}
	}
	return true
}

// schedule is one scheduling cycle of a pod that was popped; refuse has a
// Filter plugin refuse its node.
func (w *world) schedule(p *worldPod, refuse bool) {
	if ok, _ := w.MayEnter(p.Pod); !ok || p.assumed != nil || p.bound != nil {
		return
	}
	w.Take(p.Pod)
	if p.DeletionTimestamp != nil {
		// The scheduler skips it.
		return
	}
	name, managed := w.NodeFor(p.Pod)
	if !managed {
		w.t.Fatalf("pod %s of a gang is not managed", p.Name)
	}
	gpus := workload.GPUs(workload.Requests(&corev1.PodTemplateSpec{Spec: p.Spec}))
	if name == "" || refuse || !w.takesPods(name) || w.taken(name)+gpus > w.gpusOf(name) {
		w.GiveBack(p.Pod, true)
		return
	}
	p.assumed = onNode(p.Pod, name)
	if err := w.watched.AssumePod(w.logger, p.assumed); err != nil {
		w.t.Fatalf("assuming: %v", err)
	}
	wait, release := w.Reserve(p.Pod)
	p.allowed = !wait
	for _, o := range w.owners {
		for _, other := range o.pods {
			other.allowed = other.allowed || slices.Contains(release, other.UID)
		}
	}
}

// sendBack rejects a pod at Permit or PreBind.
func (w *world) sendBack(p *worldPod) {
	if p.assumed == nil {
		return
	}
	w.GiveBack(p.assumed, false)
	if err := w.watched.ForgetPod(w.logger, p.assumed); err != nil {
		w.t.Fatalf("forgetting: %v", err)
	}
	w.GiveBack(p.assumed, true)
	p.assumed, p.allowed = nil, false
}

func (w *world) bind(p *worldPod) {
	if p.assumed == nil || !p.allowed || p.DeletionTimestamp != nil {
		return
	}
	p.bound, p.assumed, p.allowed = p.assumed, nil, false
	if err := w.watched.AddPod(w.logger, p.bound); err != nil {
		w.t.Fatalf("binding: %v", err)
	}
}

// remove is the end of a pod for the scheduler: deleted or terminal.
func (w *world) remove(o *owner, p *worldPod) {
	w.sendBack(p)
	if p.bound != nil {
		if err := w.watched.RemovePod(w.logger, p.bound); err != nil {
			w.t.Fatalf("removing: %v", err)
		}
		w.Deleted(p.bound)
	} else {
		w.Deleted(p.Pod)
	}
	o.pods = slices.DeleteFunc(o.pods, func(q *worldPod) bool { return q == p })
}

// succeed ends a bound pod well; the Ledger learns later how it ended.
func (w *world) succeed(o *owner, p *worldPod) {
	if p.bound == nil || p.DeletionTimestamp != nil {
		return
	}
	o.succeeded[p.slot] = true
	if o.group != nil {
		ended := p.bound.DeepCopy()
		ended.Status.Phase = corev1.PodSucceeded
		o.group.ended = append(o.group.ended, ended)
	}
	w.remove(o, p)
}

// terminate begins to delete a pod.
func (w *world) terminate(p *worldPod) {
	if p.DeletionTimestamp != nil {
		return
	}
	p.Pod = terminating(p.Pod)
	w.sendBack(p)
	if p.bound == nil {
		w.Seen(p.Pod)
		return
	}
	old := p.bound
	p.bound = terminating(p.bound)
	if err := w.watched.UpdatePod(w.logger, old, p.bound); err != nil {
		w.t.Fatalf("updating: %v", err)
	}
}
