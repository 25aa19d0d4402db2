package islands

import (
	"iter"
	"math/bits"
	"strconv"
	"strings"
)

// MaxDevices is how many GPUs of a node can be told apart.
const MaxDevices = 16

// Set is a set of GPUs of a node, a bit for each index from 0.
type Set uint16

// SetOf are the GPUs with these indices, which must be below MaxDevices.
func SetOf(indices ...int) (s Set) {
	for _, i := range indices {
		s |= 1 << i
	}
	return s
}

// First are the GPUs with the n lowest indices.
func First(n int) Set { return Set(1<<n - 1) }

// Len is the number of GPUs.
func (s Set) Len() int { return bits.OnesCount16(uint16(s)) }

// Has tells whether the GPU with that index is in the set.
func (s Set) Has(index int) bool { return s>>index&1 == 1 }

// Indices are those of the GPUs, from the lowest.
func (s Set) Indices() iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; s != 0; s &= s - 1 {
			if !yield(bits.TrailingZeros16(uint16(s))) {
				return
			}
		}
	}
}

// String lists the indices, separated by commas.
func (s Set) String() string {
	var b strings.Builder
	for i := range s.Indices() {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(i))
	}
	return b.String()
}

// ParseSet reads what String writes, false if it is something else.
func ParseSet(written string) (s Set, ok bool) {
	if written == "" {
		return 0, true
	}
	for index := range strings.SplitSeq(written, ",") {
		i, err := strconv.Atoi(index)
		if err != nil || i < 0 || i >= MaxDevices || s.Has(i) {
			return 0, false
		}
		s |= SetOf(i)
	}
	return s, true
}

// subsets are those of n GPUs, in the order of their bits.
func (s Set) subsets(n int) iter.Seq[Set] {
	return func(yield func(Set) bool) {
		for sub := Set(0); ; sub = (sub - s) & s {
			if sub.Len() == n && !yield(sub) {
				return
			}
			if sub == s {
				return
			}
		}
	}
}
