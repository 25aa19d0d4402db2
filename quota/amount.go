package quota

import (
	"math"
	"math/bits"
)

// amount is a sum of quantities of one resource, which may be negative. It has
// 128 bits, so that no sum of quantities overflows and what was added can be
// taken away again, however absurd the quantities.
type amount struct {
	hi int64
	lo uint64
}

func amountOf(v int64) amount { return amount{hi: v >> 63, lo: uint64(v)} }

func (a amount) plus(b amount) amount {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi, _ := bits.Add64(uint64(a.hi), uint64(b.hi), carry)
	return amount{int64(hi), lo}
}

func (a amount) minus(b amount) amount {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	hi, _ := bits.Sub64(uint64(a.hi), uint64(b.hi), borrow)
	return amount{int64(hi), lo}
}

func (a amount) less(b amount) bool {
	return a.hi < b.hi || (a.hi == b.hi && a.lo < b.lo)
}

func (a amount) zero() bool { return a == amount{} }

// atLeastZero is a, or zero where it is negative.
func (a amount) atLeastZero() amount {
	if a.hi < 0 {
		return amount{}
	}
	return a
}

func smaller(a, b amount) amount {
	if b.less(a) {
		return b
	}
	return a
}

// value is the amount as far as an int64 can hold it.
func (a amount) value() int64 {
	switch {
	case a.less(amountOf(math.MinInt64)):
		return math.MinInt64
	case amountOf(math.MaxInt64).less(a):
		return math.MaxInt64
	default:
		return int64(a.lo)
	}
}
