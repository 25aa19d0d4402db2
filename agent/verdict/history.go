package verdict

import (
	"time"

	"github.com/muster-gpu/muster/agent/device"
)

// record is what one sample says, and the time it speaks for.
type record struct {
	// at is when it was taken; covers is the time before that.
	at, covers time.Duration
	// valid: something was measured. busy and spinning only hold if it is.
	valid, busy, spinning bool
}

// recorded is what a sample says by the rules.
func (r Rules) recorded(s device.Sample) record {
	if s.Failure != "" || !s.Busy.Known && !s.SM.Known {
		return record{}
	}
	// A counter may stick at 100 % after a process has died in a kernel.
	if s.Processes.Below(1) {
		return record{valid: true}
	}
	works := s.SM.AtLeast(r.BusyFrom) || s.Codec.AtLeast(r.BusyFrom)
	cold := s.Power.Known && s.PowerLimit.AtLeast(1) && s.Power.Value < r.SpinningPower*s.PowerLimit.Value
	return record{
		valid:    true,
		busy:     works || s.Busy.AtLeast(r.BusyFrom),
		spinning: s.Busy.AtLeast(r.SpinningFrom) && !s.Codec.AtLeast(r.BusyFrom) && (s.SM.Below(r.BusyFrom) || cold),
	}
}

// history is the records of a unit, the oldest first.
type history []record

// lately is how many of the last samples decide that a state is left.
const lately = 4

// add takes a record in. Of those before, only what lies within keep is kept.
func (h *history) add(r record, keep time.Duration) {
	kept := *h
	old := 0
	for old < len(kept) && kept[old].at <= r.at-keep {
		old++
	}
	// The last few also say whether a state is left, however long ago they were.
	old = min(old, max(0, len(kept)-lately))
	*h = append(kept[:copy(kept, kept[old:])], r)
}

// since is the part of the history after a point in time.
func (h history) since(from time.Duration) history {
	i := len(h)
	for i > 0 && h[i-1].at > from {
		i--
	}
	return h[i:]
}

// last is the newest records, at most n.
func (h history) last(n int) history { return h[max(0, len(h)-n):] }

// count is how many records are such.
func (h history) count(such func(record) bool) int {
	n := 0
	for _, r := range h {
		if such(r) {
			n++
		}
	}
	return n
}

// covered is the time that valid records speak for.
func (h history) covered() time.Duration {
	var sum time.Duration
	for _, r := range h {
		if r.valid {
			sum += r.covers
		}
	}
	return sum
}

func valid(r record) bool { return r.valid }
func busy(r record) bool  { return r.busy }

// working: it was measured, and it was no spinning.
func working(r record) bool { return r.valid && !r.spinning }
