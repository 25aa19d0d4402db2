package verdict

import (
	"time"

	"github.com/muster-gpu/muster/agent/device"
)

// GPUTime is the time of one GPU, in 512ths of a second: the finest that nanoseconds
// divide into and that floating point numbers, as metrics have them, add up exactly.
type GPUTime int64

const nanosecondsPerGPUTime = int64(time.Second / 512)

// Seconds are GPU-seconds; no digit is lost.
func (t GPUTime) Seconds() float64 { return float64(t) / 512 }

// Account is for whom time is counted.
type Account struct{ Namespace, Queue, Kind string }

// Spent is the time that devices were held, by what they did in it. Allocated is the
// sum of the others, always.
type Spent struct{ Allocated, Active, Idle, Stalled, Unknown GPUTime }

func (s *Spent) add(v Verdict, t GPUTime) {
	s.Allocated += t
	switch v {
	case Active:
		s.Active += t
	case Idle:
		s.Idle += t
	case Stalled:
		s.Stalled += t
	default:
		s.Unknown += t
	}
}

// meter turns the time that a unit is held into GPUTime. What is too little to count
// is kept for the next time.
type meter struct {
	share device.Share
	// rest is in nanoseconds, divided by share.Of.
	rest int64
}

// divide has the unit be another share from now on: of what several pods have, each has
// less when one more comes.
func (m *meter) divide(share device.Share) {
	if !share.Valid() {
		share = device.Whole
	}
	if m.share != share {
		m.rest, m.share = m.rest*share.Of/max(m.share.Of, 1), share
	}
}

// run is the GPUTime of a step.
func (m *meter) run(step time.Duration) GPUTime {
	whole := m.share.Of * nanosecondsPerGPUTime
	m.rest += int64(step) * m.share.Parts
	t := m.rest / whole
	m.rest %= whole
	return GPUTime(t)
}
