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
	pods := slices.SortedFunc(maps.Values(e.unplaced), boundFirst)
	groups := map[startGroup]bool{}
	for _, pod := range pods {
		w, ok := slotIn(pod)
		set := e.set(w.PodSet)
		if !ok || set == nil {
			continue
		}
		if attempt := workload.AttemptOf(pod); attempt > set.attempt && set.begin(attempt) {
			l.replan(e)
		}
		s := set.free(w)
		if s == nil {
			continue
		}
		delete(e.unplaced, pod.UID)
		e.seats[pod.UID] = s
		s.pod = pod
		if s.done {
			// Its Job makes it again: the slot's room was given away, so a new
			// node is looked for.
			s.done, s.wasReady, s.node = false, true, ""
			set.succeeded[w.Replica] = max(0, set.succeeded[w.Replica]-1)
			l.replan(e)
		}
		if pod.Spec.NodeName != "" {
			l.occupy(e, s, pod)
		} else {
			l.compare(e, s)
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
	byOthers := s.hold != nil || s.node != pod.Spec.NodeName
	s.bound, s.inFlight, s.reserved, s.stale, s.node = true, false, false, false, pod.Spec.NodeName
	l.dropHold(s)
	if byOthers {
		// Someone else bound the pod: until now both counted, or the planned
		// node is free again. The others may have waited for just this pod.
		l.roomCame(true)
		l.wake(e, s.group())
	}
}

// vacate takes the pod out of its slot; the slot is held again, unless its job
// is leaving, and passes to a pod that has come for it meanwhile.
func (l *Ledger) vacate(e *entry, s *slot) {
	delete(e.seats, s.pod.UID)
	s.pod, s.bound, s.inFlight, s.reserved = nil, false, false, false
	l.holdAgain(e, s)
	if e.state == Leaving {
		l.effects.Sync(keyOf(e.job.Owner))
		return
	}
	l.place(e)
}

// lose gives up the node of a slot and sends its waiting siblings back.
func (l *Ledger) lose(e *entry, s *slot) {
	l.dropHold(s)
	s.node, s.stale = "", false
	l.sendBack(e, s, "a pod of the gang lost its node")
	l.roomCame(true)
	l.replan(e)
}

// sendBack sends the pods of a slot's start group back that wait for its pod.
func (l *Ledger) sendBack(e *entry, s *slot, message string) {
	var back []types.UID
	for o := range e.group(s.group()) {
		if o != s && o.reserved && !o.bound {
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
		e.unplaced[uid] = s.pod
	}
	clear(e.seats)
	e.sets = nil
}

// NodeGone gives up the slots on a node that has been deleted; pods that are
// bound there are told by their own events.
func (l *Ledger) NodeGone(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := range l.waits.charged {
		if e.state != Admitted {
			continue
		}
		for _, set := range e.sets {
			for _, s := range set.slots {
				if s.node == node && !s.occupied() && !s.done {
					l.lose(e, s)
				}
			}
		}
	}
	l.roomCame(true)
}

// wake activates the pods of a start group once it is complete.
func (l *Ledger) wake(e *entry, g startGroup) {
	if e.letsIn() && e.groupReady(g) {
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
