package scheduling

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/workload"
)

// slot is one pod's place. From admission until its pod has succeeded or the
// job has left, it is exactly one of: held (a phantom pod in the scheduler's
// cache), in flight or bound (the real pod counts there), done, or lost (its
// node is gone and a new one is being looked for).
type slot struct {
	set   *setSlots
	index int
	node  string
	// hold is the phantom in the scheduler's cache; nil while the slot's own
	// pod takes up the room.
	hold *corev1.Pod
	// pod is the live pod of this slot, bound or not; nil while there is none.
	pod *corev1.Pod
	// inFlight: the scheduler has taken pod out of its queue and not given it
	// back, so its phantom is off.
	inFlight bool
	// reserved: pod has passed Reserve and waits for its start group or binds.
	reserved bool
	// bound: pod is on its node.
	bound bool
	// unwritten: node is new, and the Workload does not say it yet.
	unwritten bool
	// stale: node was chosen for another pod than the one that has come. It is
	// held until a new one is looked for.
	stale bool
	// done: a pod of this slot has succeeded, none will come again.
	done bool
	// surplus: the job asks for fewer pods, and the slot, which has none, is
	// given up when the Workload does not have it any more.
	surplus bool
	// came: a pod of this slot has been on its node since the admission.
	came bool
	// wasReady: a pod of this slot has been ready since the admission, or has
	// succeeded.
	wasReady bool
	// was is the node that the slot gave up when its pod had succeeded, for a pod that
	// comes again nevertheless.
	was string
	// moves is the Ledger's count of nodeMoves when pod was taken.
	moves int64
	// failures counts how often in a row pod could not be bound on node, after
	// Filter had let it through; avoid is where that was too often.
	failures int
	avoid    string
}

// occupied says that a real pod takes up, or is about to take up, room.
func (s *slot) occupied() bool { return s.bound || s.inFlight }

// overdue says that the slot's pod is being deleted, and that its node should
// have ended it by now.
func (s *slot) overdue(now time.Time) bool {
	return s.bound && s.pod.DeletionTimestamp != nil && now.After(s.pod.DeletionTimestamp.Time)
}

// missing says that no pod of the slot is on its node, and one should be.
func (s *slot) missing(now time.Time) bool {
	return !s.done && !s.surplus && (!s.bound || s.overdue(now))
}

// lost says that the slot has no node, or none that was chosen for its pod.
func (s *slot) lost() bool { return !s.done && !s.surplus && (s.node == "" || s.stale) }

// startGroup names slots whose pods start together: those of one phase, where
// the pods that follow a leader come after the others.
type startGroup struct {
	phase   int
	follows bool
}

func (s *slot) group() startGroup {
	return startGroup{s.set.set.Phase, s.set.set.Follows(int32(s.index))}
}

// ready says that the slot has its pod or needs none.
func (s *slot) ready() bool {
	return s.done || s.surplus || s.bound ||
		(s.pod != nil && !s.lost() && !s.unwritten && s.pod.DeletionTimestamp == nil &&
			len(s.pod.Spec.SchedulingGates) == 0 && s.set.admits(s.pod))
}

// setSlots are the slots of one pod set, in rank order.
type setSlots struct {
	set   workload.PodSet
	slots []*slot
	// attempt is the number of restarts before the newest pod that was seen,
	// succeeded the number of pods of this attempt that succeeded, by replica.
	attempt   int32
	succeeded map[int32]int32
	// resized: the set had other numbers of pods since the admission, so that
	// pods with numbers are in whatever slots were free.
	resized bool
	// real is what the set's pods turned out to need, nil while that is what
	// they were planned with; replans counts how often that was found.
	real    *corev1.PodSpec
	replans int
	// tolerations are what pods that exist before the admission must have been
	// given before they are let in.
	tolerations []corev1.Toleration
	// domains are where Kueue has put the pods of the slots, as node selectors;
	// nil where it leaves that to us.
	domains []map[string]string
	// gpus is what each pod asks for, and claims for itself.
	gpus int64
	// startedAt is when all pods of the set's phase were first on their nodes;
	// zero before, as far as the last tick knows.
	startedAt time.Time
}

// admits says that the pod has been given what the set's flavors ask for.
func (s *setSlots) admits(pod *corev1.Pod) bool {
	return pod == nil || len(s.tolerations) == 0 || workload.Tolerates(pod, s.tolerations)
}

// newSet returns slots on the nodes named, one for each pod of the set. Slots
// beyond the nodes are lost.
func newSet(ps workload.PodSet, nodes []string) *setSlots {
	set := &setSlots{
		set: ps, gpus: workload.GPUs(ps.PerPod()),
		attempt: ps.Attempt(), succeeded: map[int32]int32{},
	}
	for i := range int(ps.Count) {
		s := &slot{set: set, index: i}
		if i < len(nodes) {
			s.node = nodes[i]
		}
		set.slots = append(set.slots, s)
	}
	return set
}

// begin starts to count anew for the pods of a later attempt, which all come
// again. It reports whether slots that were done have lost their nodes by that.
func (s *setSlots) begin(attempt int32) (lost bool) {
	s.attempt = attempt
	clear(s.succeeded)
	for _, sl := range s.slots {
		if sl.done {
			sl.comeAgain()
			lost = true
		}
	}
	return lost
}

// comeAgain has a slot whose pod has succeeded wait for another one. Its room was given
// away, so a node is looked for.
func (s *slot) comeAgain() {
	s.done, s.wasReady, s.was, s.node = false, true, s.node, ""
}

// succeed counts a pod that has succeeded and returns the slot that is done by
// that, nil if none is. Pods of earlier attempts do not count.
func (s *setSlots) succeed(w workload.Slot, attempt int32) *slot {
	if attempt < s.attempt {
		return nil
	}
	s.succeeded[w.Replica]++
	sl := s.retire(w)
	if sl == nil {
		s.credit(w)
	}
	return sl
}

// own is the slot that w names, where each pod of the set has a slot of its
// own; nil where pods share slots one after the other.
func (s *setSlots) own(w workload.Slot) (sl *slot, numbered bool) {
	i, ok := s.set.Index(w)
	switch {
	case !ok || int(i) >= len(s.slots):
		return nil, true
	case i == workload.AnySlot || s.resized || s.set.Completions > s.set.Count:
		return nil, false
	}
	return s.slots[i], true
}

// ofReplica are the slots of one of the set's replicas, which must be one.
func (s *setSlots) ofReplica(replica int32) []*slot {
	n := s.set.PodsPerReplica
	return s.slots[replica*n : (replica+1)*n]
}

// free is the slot that a new pod may take, nil if there is none now.
func (s *setSlots) free(w workload.Slot) *slot {
	if own, numbered := s.own(w); numbered {
		if own == nil || own.pod != nil {
			return nil
		}
		return own
	}
	if i := s.set.Preferred(w); i != workload.AnySlot && int(i) < len(s.slots) {
		if sl := s.slots[i]; sl.pod == nil && !sl.surplus && !sl.done {
			return sl
		}
	}
	var done *slot
	for _, sl := range s.ofReplica(w.Replica) {
		switch {
		case sl.pod != nil, sl.surplus:
		case !sl.done:
			return sl
		case done == nil:
			done = sl
		}
	}
	return done
}

// succeed counts a pod that has succeeded, once. It returns the slot that is
// done with it, nil if none is.
func (e *entry) succeed(pod *corev1.Pod) *slot {
	w, ok := e.slotIn(pod)
	set := e.set(w.PodSet)
	if _, counted := e.succeeded[pod.UID]; !ok || set == nil || counted {
		return nil
	}
	put(&e.succeeded, pod.UID, struct{}{})
	return set.succeed(w, workload.AttemptOf(pod))
}

// freeOn is the slot that a pod which is being deleted on a node may take back:
// one that is still planned there. nil if its slot has been given to another.
func (s *setSlots) freeOn(w workload.Slot, node string) *slot {
	fits := func(sl *slot) bool { return sl.pod == nil && !sl.done && !sl.surplus && sl.node == node }
	if own, numbered := s.own(w); numbered {
		if own != nil && fits(own) {
			return own
		}
		return nil
	}
	for _, sl := range s.slots {
		if fits(sl) {
			return sl
		}
	}
	return nil
}

// retire marks a slot as done after a pod of it has succeeded, if its replica
// has fewer pods to come than slots. It returns the slot, nil if none is done.
func (s *setSlots) retire(w workload.Slot) *slot {
	own, numbered := s.own(w)
	if numbered && own == nil {
		return nil
	}
	slots := s.ofReplica(w.Replica)
	var done int32
	for _, sl := range slots {
		if sl.done {
			done++
		}
	}
	replicas := s.set.Count / s.set.PodsPerReplica
	if later := max(s.set.Completions, s.set.Count)/replicas - int32(len(slots)); s.succeeded[w.Replica]-later <= done {
		return nil
	}
	if numbered {
		if own.pod != nil || own.done {
			return nil
		}
		own.done = true
		return own
	}
	sl := s.free(w)
	if sl == nil || sl.done {
		return nil
	}
	sl.done = true
	return sl
}

// end marks the slots as done whose pods are over for good by the owner's own
// count, and returns those that were not before. A slot that still has its pod
// is marked when the pod has left it.
func (s *setSlots) end(ended *workload.Ended) []*slot {
	var done []*slot
	mark := func(sl *slot) {
		if !sl.done && sl.pod == nil {
			sl.done = true
			done = append(done, sl)
		}
	}
	if ended.Indices != nil && !s.resized {
		for _, i := range ended.Indices {
			if int(i) < len(s.slots) {
				mark(s.slots[i])
			}
		}
		return done
	}
	// Pods that have none before them take the slots that become free first.
	spare := int(ended.Count - (max(s.set.Completions, s.set.Count) - s.set.Count))
	for _, sl := range s.slots {
		if sl.done {
			spare--
		}
	}
	for i := len(s.slots) - 1; i >= 0 && len(done) < spare; i-- {
		mark(s.slots[i])
	}
	return done
}
