package quota

import (
	"math"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Withheld is what a head that waits with this Assignment may keep from others,
// by Kueue's rules: what it asks, as far as that is within its ClusterQueue's
// nominal quota, or within the borrowing limit if it borrows. A ClusterQueue that can
// always reclaim what it lends (reclaimWithinCohort: Any) keeps nothing back.
func (t *Tree) Withheld(r Request, a *Assignment) Usage {
	q := t.existing(a.ClusterQueue)
	if q == nil || q.spec.preemption.reclaim == kueue.PreemptionPolicyAny {
		return nil
	}
	defer t.without(r.ID)()
	u := make(Usage, len(a.Usage))
	for fr, v := range a.Usage {
		c := q.cells[fr]
		if c == nil || !c.listed {
			continue
		}
		if a.Mode != Fit {
			v = min(v, c.withinRights(a.Borrows > 0))
		}
		if v > 0 {
			u[fr] = v
		}
	}
	return u
}

// withinRights is what is left of the nominal quota, or with borrowing of that
// and the borrowing limit.
func (c *cell) withinRights(borrowing bool) int64 {
	most := amountOf(c.limits.nominal)
	switch {
	case borrowing && c.limits.borrowing == noLimit:
		return math.MaxInt64
	case borrowing:
		most = most.plus(amountOf(c.limits.borrowing))
	}
	return most.minus(c.used[afterwards]).atLeastZero().value()
}
