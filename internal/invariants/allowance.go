package invariants

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// amounts are quantities by what they are quantities of.
type amounts[K comparable] map[K]resource.Quantity

func (a amounts[K]) add(k K, q resource.Quantity) {
	sum := a[k]
	sum.Add(q)
	a[k] = sum
}

// times is q, n times.
func times(q resource.Quantity, n int64) resource.Quantity {
	q = q.DeepCopy()
	q.Mul(n)
	return q
}

// allowance is a limit that people may lower under what is in use. Use above
// it is then tolerated as long as it does not grow. What was decided before a
// change of the limit was known may still come for a moment, so the limit
// before the change counts too for that long.
type allowance[K comparable] struct {
	limit, before amounts[K]
	// seen is what was in use last.
	seen      amounts[K]
	changed   time.Time
	tolerated amounts[K]
}

// set changes the limit, while used is in use.
func (a *allowance[K]) set(limit, used amounts[K], now time.Time, inFlight time.Duration) {
	before := amounts[K]{}
	keep := func(from amounts[K]) {
		for k, q := range from {
			if q.Cmp(before[k]) > 0 {
				before[k] = q
			}
		}
	}
	keep(a.limit)
	if now.Sub(a.changed) <= inFlight {
		keep(a.before)
	}
	a.limit, a.before, a.changed = limit, before, now
	a.settle(used)
}

// exceeded are the things of which more is used than is allowed now.
func (a *allowance[K]) exceeded(used amounts[K], now time.Time, inFlight time.Duration) []K {
	var out []K
	for k, q := range used {
		allowed := a.limit[k]
		if t, ok := a.tolerated[k]; ok && t.Cmp(allowed) > 0 {
			allowed = t
		}
		if b := a.before[k]; now.Sub(a.changed) <= inFlight && b.Cmp(allowed) > 0 {
			allowed = b
		}
		if q.Cmp(allowed) > 0 {
			out = append(out, k)
		}
	}
	return out
}

// settle takes what is used now as what is tolerated from now on: no more
// where it is above the limit, the limit where it is not.
func (a *allowance[K]) settle(used amounts[K]) {
	a.tolerated, a.seen = amounts[K]{}, used
	for k, q := range used {
		if q.Cmp(a.limit[k]) > 0 {
			a.tolerated[k] = q
		}
	}
}
