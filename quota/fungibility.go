package quota

import (
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// fungibility says when a later flavor is tried although an earlier one would do.
type fungibility struct {
	// nextOverBorrowing and nextOverPreemption are Kueue's TryNextFlavor.
	nextOverBorrowing, nextOverPreemption bool
	// preemptionOverBorrowing prefers the flavor from which less is borrowed to
	// the one for which fewer have to leave.
	preemptionOverBorrowing bool
}

// fungibilityOf reads a ClusterQueue's policy. Whatever is not TryNextFlavor
// stops the search: MayStopSearch, and Borrow and Preempt as v1beta1 calls it.
func fungibilityOf(f *kueue.FlavorFungibility) fungibility {
	if f == nil {
		f = &kueue.FlavorFungibility{}
	}
	return fungibility{
		nextOverBorrowing:       f.WhenCanBorrow == kueue.TryNextFlavor,
		nextOverPreemption:      f.WhenCanPreempt == kueue.TryNextFlavor || f.WhenCanPreempt == "",
		preemptionOverBorrowing: f.Preference != nil && *f.Preference == kueue.PreemptionOverBorrowing,
	}
}

// chance is how a flavor could be had, the worst first.
type chance int

const (
	// never: it is more than could ever be had.
	never chance = iota
	// waits: others have to leave by themselves, and no quota is kept for it.
	waits
	// noVictims: it would fit the ClusterQueue's own rights, but there is nobody
	// whom the policies ask to leave.
	noVictims
	// preempts: jobs of its own ClusterQueue would have to leave.
	preempts
	// reclaims: only jobs of other ClusterQueues would have to leave.
	reclaims
	// leaving: enough are leaving already.
	leaving
	// fits: it is free.
	fits
)

// outlook is the chance of a flavor, and how far away in the tree the quota
// would be borrowed.
type outlook struct {
	chance chance
	level  int
}

// possible says that there is an assignment, now or after others have left.
func (o outlook) possible() bool { return o.chance >= noVictims }

// better is Kueue's order of two flavors. One that nobody can make room in is
// worse than any that is possible; after that either the chance decides, or
// the distance.
func (f fungibility) better(a, b outlook) bool {
	if a.chance <= noVictims || b.chance <= noVictims {
		if a.chance != b.chance {
			return a.chance > b.chance
		}
		return a.level < b.level
	}
	if f.preemptionOverBorrowing && a.level != b.level {
		return a.level < b.level
	}
	if a.chance != b.chance {
		return a.chance > b.chance
	}
	return a.level < b.level
}

// stops says that no later flavor is looked at.
func (f fungibility) stops(o outlook) bool {
	switch {
	case o.chance <= noVictims:
		return false
	case o.chance != fits && f.nextOverPreemption:
		return false
	case o.level > 0 && f.nextOverBorrowing:
		return false
	default:
		return true
	}
}
