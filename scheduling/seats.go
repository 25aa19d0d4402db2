package scheduling

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/workload"
)

// place seats the pods of a job that have no slot, as far as slots are free.
func (l *Ledger) place(e *entry) {
	l.seat(e, slices.SortedFunc(maps.Values(e.unplaced), boundFirst))
}

// seat gives unplaced pods of a job slots, in their order. A job of n pods calls
// it n times while they come, and what a pod is costs a hash: nothing is done
// for a job without slots, nor for others than those given.
func (l *Ledger) seat(e *entry, pods []*corev1.Pod) {
	if len(e.sets) == 0 {
		return
	}
	groups := map[startGroup]bool{}
	for _, pod := range pods {
		w, ok := e.slotIn(pod)
		set := e.set(w.PodSet)
		if !ok || set == nil || (e.job.Gated && pod.Spec.NodeName == "" && !workload.SameSize(pod, &set.set.Template)) {
			// The role of a pod may be what somebody has written on it.
			continue
		}
		if attempt := workload.AttemptOf(pod); attempt > set.attempt && set.begin(attempt) {
			l.replan(e)
		}
		s := set.free(w)
		if pod.Spec.NodeName != "" && pod.DeletionTimestamp != nil {
			s = set.freeOn(w, pod.Spec.NodeName)
		}
		if s == nil {
			continue
		}
		delete(e.unplaced, pod.UID)
		put(&e.seats, pod.UID, s)
		l.sitters[pod.UID] = e
		s.pod = pod
		if s.done {
			// Its Job makes it again.
			s.comeAgain()
			set.succeeded[w.Replica] = max(0, set.succeeded[w.Replica]-1)
			l.replan(e)
		}
		if pod.Spec.NodeName != "" {
			l.occupy(e, s, pod)
		} else {
			l.trade(e, s)
			l.compare(e, s)
			if workload.WaitsForKueue(pod) {
				// Where Kueue does not decide, its gates are taken off.
				l.effects.Sync(keyOf(e.job.Owner))
			}
		}
		groups[s.group()] = true
	}
	for group := range groups {
		l.wake(e, group)
	}
}

// occupy records that the pod of a slot is on a node.
func (l *Ledger) occupy(e *entry, s *slot, pod *corev1.Pod) {
	s.pod = pod
	l.sawReady(e, s)
	if s.bound {
		return
	}
	elsewhere := s.node != pod.Spec.NodeName
	byOthers := s.hold != nil || elsewhere
	s.bound, s.inFlight, s.reserved, s.stale = true, false, false, false
	s.came = true
	s.node, s.was, s.failures = pod.Spec.NodeName, "", 0
	l.dropHold(s)
	if elsewhere && (e.state == Admitting || e.state == Admitted) {
		// The Workload says where it is, for whoever reads it after a crash.
		e.replanned++
		l.effects.Write(e.job.Owner.UID)
	}
	if byOthers {
		// Someone else bound the pod: until now both counted, or the planned
		// node is free again. The others may have waited for just this pod.
		l.roomCame()
		l.wake(e, s.group())
	}
}

// vacate takes the pod out of its slot; the slot is held again, unless its job
// is leaving, and passes to a pod that has come for it meanwhile.
func (l *Ledger) vacate(e *entry, s *slot) {
	delete(e.seats, s.pod.UID)
	delete(l.sitters, s.pod.UID)
	s.pod, s.bound, s.inFlight, s.reserved, s.failures = nil, false, false, false, 0
	l.holdAgain(e, s)
	l.resize(e)
	if e.state == Leaving {
		l.effects.Sync(keyOf(e.job.Owner))
		return
	}
	l.place(e)
}

// counts says that the owner's own status tells which pods of the set are over.
func (e *entry) counts(set *setSlots) bool {
	ps := e.job.PodSet(set.set.Name)
	return ps != nil && ps.Ended != nil
}

// endSlots gives up the slots whose pods are over for good, as the newest
// reading of the job's owner has it.
func (l *Ledger) endSlots(e *entry) {
	for _, set := range e.sets {
		if !e.counts(set) {
			continue
		}
		done := set.end(e.job.PodSet(set.set.Name).Ended)
		if len(done) == 0 {
			continue
		}
		for _, s := range done {
			l.dropHold(s)
		}
		l.wakeAll(e)
		l.effects.Sync(keyOf(e.job.Owner))
		l.roomCame()
		l.enqueue(e)
	}
}

// lose gives up the node of a slot and sends its waiting siblings back.
func (l *Ledger) lose(e *entry, s *slot) {
	l.dropHold(s)
	s.node, s.stale, s.failures = "", false, 0
	l.sendBack(e, s.group(), "a pod of the gang lost its node")
	l.roomCame()
	l.replan(e)
}

// sendBack has the pods of a start group that wait at the barrier return.
func (l *Ledger) sendBack(e *entry, g startGroup, message string) {
	var back []types.UID
	for o := range e.group(g) {
		if o.reserved && !o.bound {
			back = append(back, o.pod.UID)
		}
	}
	if len(back) > 0 {
		l.effects.Return(back, message)
	}
}

// replan has a lost slot of the job looked after in the next pass.
func (l *Ledger) replan(e *entry) {
	e.tried = 0
	l.enqueue(e)
	l.effects.Admit()
}

// unseat leaves a job without slots; its live pods, none of them on a node,
// wait for the next ones.
func (l *Ledger) unseat(e *entry) {
	for uid, s := range e.seats {
		put(&e.unplaced, uid, s.pod)
		delete(l.sitters, uid)
	}
	clear(e.seats)
	e.sets = nil
}

// NodeGone gives up the slots on a node that has been deleted; pods that are
// bound there are told by their own events.
func (l *Ledger) NodeGone(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.away, node)
	delete(l.overfull, node)
	l.nodes.remove(node)
	l.claimsOn(node, "is gone")
	for e, slots := range l.slotsOn(node) {
		if e.state != Admitted {
			continue
		}
		for _, s := range slots {
			if !s.occupied() {
				l.lose(e, s)
			}
		}
	}
	l.roomCame()
}

// wake activates the pods of a start group once it is complete and its nodes
// take pods.
func (l *Ledger) wake(e *entry, g startGroup) {
	if e.letsIn() && e.groupReady(g) && l.awaited(e, g) == "" {
		if pods := e.waiting(g); len(pods) > 0 {
			l.effects.Activate(pods)
		}
	}
}

func (l *Ledger) wakeAll(e *entry) {
	groups := map[startGroup]bool{}
	for _, set := range e.sets {
		for _, s := range set.slots {
			if g := s.group(); !groups[g] {
				groups[g] = true
				l.wake(e, g)
			}
		}
	}
}

// lostSlots are the jobs that have slots without a node, in queue order.
func (l *Ledger) lostSlots() []*entry {
	var out []*entry
	for e := range l.waits.lost {
		if e.tried < l.epoch {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, (*entry).before)
	return out
}

// boundFirst orders pods for seats: one that is on a node already has its slot
// before a replacement that waits for it to leave.
func boundFirst(a, b *corev1.Pod) int {
	on := func(p *corev1.Pod) int {
		if p.Spec.NodeName != "" {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(on(a), on(b)), cmp.Compare(a.Name, b.Name))
}
