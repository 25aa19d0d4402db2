package scheduling

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/workload"
)

// slot is one pod's place. From admission until its pod has succeeded or the
// job has left, it is exactly one of: held (a phantom pod in the scheduler's
// cache), in flight or bound (the real pod counts there), done, or lost (its
// node is gone and a new one is being looked for).
type slot struct {
	node string
	// hold is the phantom in the scheduler's cache; nil while the slot's own
	// pod takes up the room.
	hold *corev1.Pod
	// pod is the live pod of this slot, bound or not; nil while there is none.
	pod *corev1.Pod
	// next is a pod of this slot that appeared while pod is still terminating.
	next *corev1.Pod
	// inFlight: the scheduler has taken pod out of its queue and not given it
	// back, so its phantom is off.
	inFlight bool
	// reserved: pod has passed Reserve and waits for its start group or binds.
	reserved bool
	// bound: pod is on its node.
	bound bool
	// done: a pod of this slot has succeeded, none will come again.
	done bool
}

// occupied says that a real pod takes up, or is about to take up, room.
func (s *slot) occupied() bool { return s.bound || s.inFlight }

// lost says that the slot has no node.
func (s *slot) lost() bool { return !s.done && s.node == "" }

// setSlots are the slots of one pod set, in rank order.
type setSlots struct {
	set   workload.PodSet
	slots []*slot
}

// find returns the slot that a pod with w belongs to: by its index where the
// kind numbers its pods, else the slot that has the pod, else a free one.
func (s *setSlots) find(w workload.Slot, uid types.UID) *slot {
	i, ok := s.set.Index(w)
	switch {
	case !ok || int(i) >= len(s.slots):
		return nil
	case i != workload.AnySlot:
		return s.slots[i]
	}
	var free *slot
	for _, sl := range s.slots {
		switch {
		case sl.pod != nil && sl.pod.UID == uid:
			return sl
		case free == nil && sl.pod == nil && !sl.done:
			free = sl
		}
	}
	return free
}

// ready says whether every slot of the set has its pod or needs none: the
// condition for letting the set's start group into the queue.
func (s *setSlots) ready() bool {
	for _, sl := range s.slots {
		if sl.done || sl.bound {
			continue
		}
		if sl.pod == nil || sl.node == "" || sl.pod.DeletionTimestamp != nil {
			return false
		}
	}
	return true
}
