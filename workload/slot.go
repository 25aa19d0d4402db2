package workload

// Index is the slot's index in the pod set, in [0, Count), replica by replica.
// It is AnySlot where the pod's Job numbers no pods, or the completion index is
// beyond the pods that run at a time, so that it has no place of its own. ok is
// false where the slot is not one of the set's.
func (p *PodSet) Index(s Slot) (index int32, ok bool) {
	if s.PodSet != p.Name || p.PodsPerReplica <= 0 ||
		s.Replica < 0 || s.Replica >= p.Count/p.PodsPerReplica {
		return 0, false
	}
	if s.Completion < 0 || s.Completion >= p.PodsPerReplica {
		return AnySlot, true
	}
	return s.Replica*p.PodsPerReplica + s.Completion, true
}

// Preferred is the index that a pod of a group has by its Rank, AnySlot if it has
// none.
func (p *PodSet) Preferred(s Slot) int32 {
	if i := s.Rank - p.FirstRank; p.FirstRank > 0 && s.Rank > 0 && i >= 0 && i < p.Count {
		return i
	}
	return AnySlot
}

// Slot is the inverse of Index: the slot of the pod with that index, which
// must be in [0, Count).
func (p *PodSet) Slot(index int32) Slot {
	return Slot{PodSet: p.Name, Replica: index / p.PodsPerReplica, Completion: index % p.PodsPerReplica}
}
