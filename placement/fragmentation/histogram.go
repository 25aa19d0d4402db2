package fragmentation

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

const (
	// maxKinds bounds how many kinds of requests are remembered.
	maxKinds = 64
	// halfLife is after how many observations one counts half.
	halfLife = 2000
	// staleness is what part of the weight may be new before the Mix is another.
	staleness = 1.0 / 32
)

// Histogram is which requests were observed lately. Its zero value has observed
// none. It is not safe for concurrent use.
type Histogram struct {
	kinds map[Request]float64
	// unit is what a GPU that is observed now weighs: more each time, so that those
	// before count less.
	unit float64
	// total is the sum of the weights, fresh what of it has come since mix was
	// made.
	total, fresh float64
	mix          *Mix
}

// Observe notes a job of n pods that ask for the same. Pods without GPUs do not
// count.
func (h *Histogram) Observe(r Request, n int) {
	weight := float64(r.GPUs()) / Whole * float64(n)
	if weight <= 0 {
		return
	}
	if h.kinds == nil {
		h.kinds, h.unit = map[Request]float64{}, 1
	}
	h.unit *= math.Exp2(1.0 / halfLife)
	weight *= h.unit
	h.kinds[r] += weight
	h.total += weight
	h.fresh += weight
	if len(h.kinds) > maxKinds {
		h.forget()
	}
	if h.unit > 1e6 {
		h.scale(1 / h.unit)
	}
}

// forget drops the lightest kind.
func (h *Histogram) forget() {
	var lightest Request
	least := math.Inf(1)
	for r, weight := range h.kinds {
		if weight < least || (weight == least && compare(r, lightest) > 0) {
			lightest, least = r, weight
		}
	}
	delete(h.kinds, lightest)
	h.total -= least
}

// FreePool is the number of a pool that no request is of which is remembered. If
// there is none, the lightest are forgotten first.
func (h *Histogram) FreePool() uint8 {
	for {
		used := uint64(0)
		for r := range h.kinds {
			used |= 1 << r.Pool
		}
		if used != math.MaxUint64 {
			// Whatever the number meant until now, it is in no new mix.
			h.mix = nil
			return uint8(bits.TrailingZeros64(^used))
		}
		h.forget()
	}
}

func (h *Histogram) scale(by float64) {
	for r := range h.kinds {
		h.kinds[r] *= by
	}
	h.unit, h.total, h.fresh = h.unit*by, h.total*by, h.fresh*by
}

// Mix is the mix of what was observed. It is the same one as before until enough
// has been observed to make a difference.
func (h *Histogram) Mix() *Mix {
	if h.mix != nil && h.fresh <= staleness*h.total {
		return h.mix
	}
	m := &Mix{kinds: make([]kind, 0, len(h.kinds))}
	sum := 0.0
	for r, weight := range h.kinds {
		m.kinds = append(m.kinds, newKind(r, weight))
	}
	// Sums depend on the order.
	slices.SortFunc(m.kinds, func(a, b kind) int { return compare(a.Request, b.Request) })
	for i := range m.kinds {
		sum += m.kinds[i].weight
	}
	for i := range m.kinds {
		m.kinds[i].weight /= sum
	}
	h.mix, h.fresh = m, 0
	return m
}

func compare(a, b Request) int {
	return cmp.Or(cmp.Compare(b.GPUs(), a.GPUs()), cmp.Compare(a.MilliCPU, b.MilliCPU), cmp.Compare(a.Memory, b.Memory), cmp.Compare(a.Pool, b.Pool))
}
