package scheduling

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/workload"
)

// membership says what a pod is to the Ledger.
type membership int

const (
	// foreign pods belong to no job that Muster manages.
	foreign membership = iota
	// member pods belong to a job of the Ledger.
	member
	// stray pods have an owner that the Ledger has not read yet.
	stray
)

// jobOf finds the job of a pod, and the slot that its labels name. Labels can
// be written by anyone, so a pod is at most a member of a job of its namespace,
// and one that has a slot keeps it, whatever is written on it later: its room is
// charged to that job.
func (l *Ledger) jobOf(pod *corev1.Pod) (membership, *entry, workload.Slot) {
	owner, w, ok := workload.SlotOf(pod)
	if e := l.sitters[pod.UID]; e != nil {
		return member, e, w
	}
	if !ok {
		return foreign, nil, w
	}
	uid, known := l.podOwners[owner]
	switch {
	case !known:
		return stray, nil, w
	case uid == "" && l.asksAnew(owner, pod):
		return stray, nil, w
	case uid == "":
		return foreign, nil, w
	}
	e := l.jobs[uid]
	switch {
	case e == nil:
		return stray, nil, w
	case e.job.Owner.Namespace != pod.Namespace:
		return foreign, nil, w
	}
	return member, e, w
}

// slotIn is the slot that a pod names, in which a group's pod is found by its
// role. Roles cost a hash, so it is not for the gate.
func (e *entry) slotIn(pod *corev1.Pod) (workload.Slot, bool) {
	owner, w, ok := workload.SlotOf(pod)
	if ok && w.PodSet == "" {
		w.PodSet = workload.RoleOf(pod)
	}
	return e.job.Own(owner, w), ok
}

// Seen records a pod that waits to be bound. It is told by an informer's
// listener of our own; what happens on nodes is told by the scheduler's cache,
// so that each of the two tells of beginnings and ends in order.
func (l *Ledger) Seen(pod *corev1.Pod) {
	if pod.Spec.NodeName != "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if owner, ok := workload.PodJob(pod); ok && pod.Labels[workload.QueueLabel] != "" && pod.DeletionTimestamp == nil {
		if uid, known := l.podOwners[owner.UID]; known && uid == "" {
			// It was let go without a queue, and has been given one.
			delete(l.podOwners, owner.UID)
		}
	}
	l.record(pod)
}

// relabelled takes a pod from the job that its labels named before. A slot is
// taken from it only where the pod is not on a node or on its way there; it is
// told before the new version is.
func (l *Ledger) relabelled(old, pod *corev1.Pod) {
	before, _, was := workload.SlotOf(old)
	if after, _, is := workload.SlotOf(pod); was == is && before == after {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unstray(old)
	if m, e, _ := l.jobOf(old); m == member {
		l.effects.Sync(keyOf(e.job.Owner))
		delete(e.unplaced, old.UID)
		if s, seated := e.seats[old.UID]; seated {
			if s.occupied() {
				return
			}
			l.vacate(e, s)
		}
	}
	if m, _, _ := l.jobOf(pod); m == foreign {
		l.effects.Activate([]*corev1.Pod{pod})
	}
}

// leftUnbound takes the slot from a pod that was given back, if its labels have
// come to name another job while the scheduler had it.
func (l *Ledger) leftUnbound(e *entry, s *slot) {
	pod := s.pod
	if pod == nil || s.occupied() {
		return
	}
	if owner, _, ok := workload.SlotOf(pod); ok && l.podOwners[owner] == e.job.Owner.UID {
		return
	}
	l.vacate(e, s)
	l.effects.Sync(keyOf(e.job.Owner))
	l.enqueue(e)
	l.record(pod)
}

// Deleted records that a pod is gone which was never bound, as far as the
// Ledger knows.
func (l *Ledger) Deleted(pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unstray(pod)
	m, e, _ := l.jobOf(pod)
	if m != member {
		return
	}
	if p := e.unplaced[pod.UID]; p != nil && p.Spec.NodeName == "" {
		delete(e.unplaced, pod.UID)
	}
	if s, ok := e.seats[pod.UID]; ok && !s.bound {
		l.vacate(e, s)
	}
	l.reread(e)
	l.enqueue(e)
}

// groupChanged has the pods of a group read again whose PodGroup object has
// changed, if there are any.
func (l *Ledger) groupChanged(owner workload.Owner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, strays := l.strays[owner.UID]
	// Pods that were let go because they came before their PodGroup may have a
	// queue now.
	uid, known := l.podOwners[owner.UID]
	if strays || l.jobs[owner.UID] != nil || (known && uid == "") {
		l.effects.Sync(keyOf(owner))
	}
}

// replicasChanged has the replicas of a LeaderWorkerSet that has changed read
// again.
func (l *Ledger) replicasChanged(set types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed := map[types.UID]workload.Owner{}
	for uid := range l.jobs {
		if owner, ok := workload.ReplicaOfSet(uid, set); ok {
			changed[uid] = owner
		}
	}
	for uid := range l.strays {
		if owner, ok := workload.ReplicaOfSet(uid, set); ok {
			changed[uid] = owner
		}
	}
	for _, owner := range changed {
		l.effects.Sync(keyOf(owner))
	}
}

// reread has a job read again whose pods are all that there is of it.
func (l *Ledger) reread(e *entry) {
	if e.job.Gated {
		l.effects.Sync(keyOf(e.job.Owner))
	}
}

// bound records that a pod is on a node: the planned one, or wherever else
// someone put it. It is called after the scheduler's cache counts the pod.
func (l *Ledger) bound(pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.record(pod)
}

// vanished records that a pod has left its node: deleted, or terminal. It is
// called before the scheduler's cache frees the room, and reports whether a
// hold has taken the room already.
func (l *Ledger) vanished(pod *corev1.Pod) (held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unstray(pod)
	m, e, _ := l.jobOf(pod)
	if m == stray && l.early != nil {
		owner, _, _ := workload.SlotOf(pod)
		l.early[owner] = append(l.early[owner], pod)
	}
	if m != member {
		return false
	}
	defer l.enqueue(e)
	l.reread(e)
	if s, ok := e.seats[pod.UID]; ok {
		l.vacate(e, s)
		l.effects.Settle(e.job.Owner.UID, pod)
		return s.hold != nil && s.node == pod.Spec.NodeName
	}
	if p := e.unplaced[pod.UID]; p != nil && p.Spec.NodeName != "" {
		// It lost its slot while its node was away, and may have done its work.
		l.effects.Settle(e.job.Owner.UID, pod)
	}
	delete(e.unplaced, pod.UID)
	l.effects.Sync(keyOf(e.job.Owner))
	return false
}

// record takes in the newest version of a live pod.
func (l *Ledger) record(pod *corev1.Pod) {
	m, e, _ := l.jobOf(pod)
	switch m {
	case foreign:
		if pod.Spec.NodeName != "" {
			l.unfree(pod)
		}
	case stray:
		owner, _, _ := workload.SlotOf(pod)
		if l.strays[owner] == nil {
			l.strays[owner] = map[types.UID]*corev1.Pod{}
		}
		l.strays[owner][pod.UID] = pod
		if job, alone := workload.PodJob(pod); alone {
			// No informer of owners tells of it.
			l.effects.Sync(keyOf(job))
		}
	case member:
		s, seated := e.seats[pod.UID]
		_, over := e.succeeded[pod.UID]
		switch {
		case over:
			// Its end was read before its watch told of it.
		case !seated:
			old := e.unplaced[pod.UID]
			if old == nil {
				old = e.justRead[pod.UID]
			}
			if old == nil || old.Labels[workload.QueueLabel] != pod.Labels[workload.QueueLabel] {
				l.reread(e)
			}
			put(&e.unplaced, pod.UID, pod)
			l.seat(e, []*corev1.Pod{pod})
		case pod.Spec.NodeName != "":
			switch {
			case s.bound:
			case e.state == Admitted && s.node == pod.Spec.NodeName && e.job.Gated:
				// The others of its gang follow it.
				l.effects.SyncLate(keyOf(e.job.Owner))
			default:
				l.reread(e)
			}
			l.occupy(e, s, pod)
		case !s.bound:
			waited := !s.ready()
			s.pod = pod
			l.trade(e, s)
			l.compare(e, s)
			if waited && s.ready() {
				l.wake(e, s.group())
			}
		}
		l.enqueue(e)
	}
}

// Settled records how a pod that has left its slot had ended. A slot whose pod
// succeeded is done where the set has no more pods to come than other slots;
// where the owner counts its pods, its count is what matters.
func (l *Ledger) Settled(owner types.UID, pod *corev1.Pod, succeeded bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[owner]
	if e == nil {
		return
	}
	if w, ok := e.slotIn(pod); ok {
		if set := e.set(w.PodSet); set != nil && e.counts(set) {
			l.endSlots(e)
			return
		}
	}
	if !succeeded {
		return
	}
	if s := e.succeed(pod); s != nil {
		l.dropHold(s)
		l.wake(e, s.group())
		l.effects.Sync(keyOf(e.job.Owner))
		l.roomCame()
	} else if e.unsaidReady() {
		l.effects.Sync(keyOf(e.job.Owner))
	}
	l.enqueue(e)
}
