package scheduling

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/workload"
)

// Membership says what a pod is to the Ledger.
type Membership int

const (
	// Foreign pods belong to no job that Muster manages.
	Foreign Membership = iota
	// Member pods belong to a job of the Ledger.
	Member
	// Stray pods have an owner that the Ledger has not read yet.
	Stray
)

// member finds the job and the slot of a pod. The slot is nil where the pod
// belongs to a job that has no such slot now.
func (l *Ledger) member(pod *corev1.Pod) (Membership, *entry, *setSlots, *slot) {
	owner, w, ok := workload.SlotOf(pod)
	if !ok {
		return Foreign, nil, nil, nil
	}
	uid, known := l.podOwners[owner]
	switch {
	case !known:
		return Stray, nil, nil, nil
	case uid == "":
		return Foreign, nil, nil, nil
	}
	e := l.jobs[uid]
	if e == nil {
		return Stray, nil, nil, nil
	}
	set, s := e.slotOf(w, pod.UID)
	return Member, e, set, s
}

// Seen records a pod that is not terminal: new, changed, or just bound.
func (l *Ledger) Seen(pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen(pod)
}

func (l *Ledger) seen(pod *corev1.Pod) {
	m, e, set, s := l.member(pod)
	if m == Stray {
		owner, _, _ := workload.SlotOf(pod)
		if l.strays[owner] == nil {
			l.strays[owner] = map[types.UID]*corev1.Pod{}
		}
		l.strays[owner][pod.UID] = pod
		return
	}
	if m == Foreign || s == nil {
		return
	}
	switch {
	case s.pod == nil || s.pod.UID == pod.UID:
		s.pod = pod
	case s.bound && s.pod.DeletionTimestamp == nil && pod.Spec.NodeName == "":
		// A second pod for a slot that is taken: its turn may come.
		s.next = pod
	case s.bound:
		s.next = pod
		return
	default:
		// The old pod was never bound; what its controller made last counts.
		s.pod = pod
	}
	if s.pod.UID == pod.UID && pod.Spec.NodeName != "" {
		l.bound(e, s, pod)
		return
	}
	l.wake(e, set.set.Phase)
}

// bound records that a pod is on a node: the planned one, or wherever else
// someone put it.
func (l *Ledger) bound(e *entry, s *slot, pod *corev1.Pod) {
	if s.bound {
		return
	}
	s.bound, s.inFlight, s.reserved = true, false, false
	if s.node != pod.Spec.NodeName {
		s.node = pod.Spec.NodeName
	}
	l.dropHold(s)
}

// wake activates the pods of a start group once it is complete.
func (l *Ledger) wake(e *entry, phase int) {
	if e.letsIn() && e.groupReady(phase) {
		if pods := e.waiting(phase); len(pods) > 0 {
			l.effects.Activate(pods)
		}
	}
}

func (l *Ledger) wakeAll(e *entry) {
	phases := map[int]bool{}
	for _, set := range e.sets {
		if !phases[set.set.Phase] {
			phases[set.set.Phase] = true
			l.wake(e, set.set.Phase)
		}
	}
}

// Deleted records that a pod which was never bound is gone.
func (l *Ledger) Deleted(pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if owner, _, ok := workload.SlotOf(pod); ok {
		delete(l.strays[owner], pod.UID)
		if len(l.strays[owner]) == 0 {
			delete(l.strays, owner)
		}
	}
	m, e, set, s := l.member(pod)
	if m != Member || s == nil {
		return
	}
	if s.next != nil && s.next.UID == pod.UID {
		s.next = nil
	}
	if s.pod == nil || s.pod.UID != pod.UID {
		return
	}
	// A bound pod's end is told by the cache; this is for pods that died
	// waiting, or between being popped and being bound.
	if !s.bound {
		l.vacate(e, set, s)
	}
}

// vanished records that a pod has left its node: deleted, or terminal. It is
// called before the scheduler's cache frees the room.
func (l *Ledger) vanished(pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, e, set, s := l.member(pod)
	if m != Member || s == nil || s.pod == nil || s.pod.UID != pod.UID {
		return
	}
	l.vacate(e, set, s)
	l.effects.Settle(e.job.Owner.UID, pod)
}

// vacate takes the pod out of its slot; the slot is held again unless its job
// is leaving, and passes to the pod that has come for it meanwhile.
func (l *Ledger) vacate(e *entry, set *setSlots, s *slot) {
	s.pod, s.next = s.next, nil
	s.bound, s.inFlight, s.reserved = false, false, false
	switch {
	case e.state == Leaving:
		l.effects.Sync(keyOf(e.job.Owner))
	default:
		l.holdAgain(e, set, s)
		l.wake(e, set.set.Phase)
	}
}

// Settled records how a pod that has left its node had ended. A slot whose
// pod succeeded is done, unless another pod has come for it.
func (l *Ledger) Settled(owner types.UID, pod *corev1.Pod, succeeded bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[owner]
	if e == nil || !succeeded {
		return
	}
	_, w, ok := workload.SlotOf(pod)
	if !ok {
		return
	}
	set, s := e.slotOf(w, pod.UID)
	if s == nil || s.pod != nil {
		return
	}
	s.done = true
	l.dropHold(s)
	l.wake(e, set.set.Phase)
	l.effects.Sync(keyOf(e.job.Owner))
	l.touch()
}

// MayEnter is the gate: whether the pod may be scheduled now, and if not, why.
// It runs under the scheduling queue's lock.
func (l *Ledger) MayEnter(pod *corev1.Pod) (bool, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, e, set, s := l.member(pod)
	switch {
	case m == Foreign:
		return true, ""
	case m == Stray:
		return false, "waiting for the job that owns the pod to be read"
	case !e.letsIn():
		return false, "waiting for its job to be admitted"
	case s == nil:
		return false, "its job has no slot for this pod"
	case s.bound && s.pod.UID != pod.UID:
		return false, "waiting for the pod before it to leave its slot"
	case s.pod == nil || s.pod.UID != pod.UID:
		// Not recorded yet; the event that records it wakes the pod.
		return false, "waiting for the other pods of its gang"
	case s.node == "":
		return false, "waiting for a new node"
	case !e.groupReady(set.set.Phase):
		return false, "waiting for the other pods of its gang"
	}
	return true, ""
}

// Take is called when the scheduler has popped a pod and is about to schedule
// it: the pod's phantom makes room for the pod.
func (l *Ledger) Take(pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, e, _, s := l.member(pod)
	if m != Member || s == nil || !e.letsIn() || s.pod == nil || s.pod.UID != pod.UID || s.node == "" || s.bound {
		return
	}
	s.inFlight = true
	l.dropHold(s)
}

// NodeFor returns the planned node of a member pod that was taken. managed is
// false for pods that Muster leaves to the scheduler; node is empty for a
// member that has no slot to go to now.
func (l *Ledger) NodeFor(pod *corev1.Pod) (node string, managed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, _, _, s := l.member(pod)
	switch {
	case m == Foreign:
		return "", false
	case m == Stray || s == nil || !s.inFlight || s.pod.UID != pod.UID:
		return "", true
	}
	return s.node, true
}

// Reserve records that the pod has its node, and returns whether it must wait
// for others of its start group, or else who may go on with it.
func (l *Ledger) Reserve(pod *corev1.Pod) (wait bool, release []types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, e, set, s := l.member(pod)
	if m != Member || s == nil || !s.inFlight || s.pod.UID != pod.UID {
		return false, nil
	}
	s.reserved = true
	for _, g := range e.group(set.set.Phase) {
		for _, o := range g.slots {
			switch {
			case o.done || o.bound:
			case !o.reserved:
				return true, nil
			case o != s:
				release = append(release, o.pod.UID)
			}
		}
	}
	return false, release
}

// GiveBack records that a pod which was taken will not be bound now. Its slot
// is held again before the scheduler's cache frees the room. With replan the
// slot's node is given up, so that a new one is looked for; the others of the
// start group that wait for this pod go back to their holds.
func (l *Ledger) GiveBack(pod *corev1.Pod, replan bool) (managed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, e, set, s := l.member(pod)
	if m == Foreign {
		return false
	}
	if m != Member || s == nil || s.pod == nil || s.pod.UID != pod.UID || s.bound {
		return true
	}
	taken := s.inFlight
	s.inFlight, s.reserved = false, false
	if e.state == Leaving {
		l.effects.Sync(keyOf(e.job.Owner))
		return true
	}
	if replan && e.state == Admitted {
		l.lose(e, set, s)
	} else if taken {
		l.holdAgain(e, set, s)
	}
	return true
}

// lose gives up the node of a slot and sends its waiting siblings back.
func (l *Ledger) lose(e *entry, set *setSlots, s *slot) {
	l.dropHold(s)
	s.node = ""
	var back []types.UID
	for _, g := range e.group(set.set.Phase) {
		for _, o := range g.slots {
			if o != s && o.reserved && !o.bound {
				back = append(back, o.pod.UID)
			}
		}
	}
	if len(back) > 0 {
		l.effects.Return(back, "a pod of the gang lost its node")
	}
	l.touch()
}

// NodeGone gives up the slots on a node that has been deleted; pods that are
// bound there are told by their own events.
func (l *Ledger) NodeGone(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.jobs {
		if e.state != Admitted {
			continue
		}
		for _, set := range e.sets {
			for _, s := range set.slots {
				if s.node == node && !s.occupied() && !s.done {
					l.lose(e, set, s)
				}
			}
		}
	}
	l.touch()
}

// adopt gives the pods that were waiting for their owner to be read their
// places, or lets them go where the owner is not managed.
func (l *Ledger) adopt(podOwner types.UID) {
	pods := l.strays[podOwner]
	delete(l.strays, podOwner)
	if len(pods) == 0 {
		return
	}
	if l.podOwners[podOwner] == "" {
		out := make([]*corev1.Pod, 0, len(pods))
		for _, p := range pods {
			out = append(out, p)
		}
		l.effects.Activate(out)
		return
	}
	for _, p := range pods {
		l.seen(p)
	}
}

// Unmanaged records that pods of podOwner are none of Muster's business.
func (l *Ledger) Unmanaged(podOwner types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if uid, known := l.podOwners[podOwner]; known && uid == "" {
		return
	}
	l.podOwners[podOwner] = ""
	l.adopt(podOwner)
}

// ForgetPodOwner drops what is known of a pod owner that was deleted.
func (l *Ledger) ForgetPodOwner(podOwner types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.podOwners[podOwner] == "" {
		delete(l.podOwners, podOwner)
	}
}

// lostSlots are the jobs that have slots without a node, in queue order.
func (l *Ledger) lostSlots() []*entry {
	var out []*entry
	for _, e := range l.jobs {
		if e.state != Admitted || e.tried >= l.epoch {
			continue
		}
		for _, set := range e.sets {
			if slices.ContainsFunc(set.slots, (*slot).lost) {
				out = append(out, e)
				break
			}
		}
	}
	slices.SortFunc(out, (*entry).before)
	return out
}
