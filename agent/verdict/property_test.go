package verdict

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-gpu/muster/agent/device"
)

// Whatever is measured, whenever ticks come, however the node's clock is set and however
// often containers start again: the
// parts add up to what was allocated, also as floating point numbers, and what was
// allocated is the time that units were held.
func TestSecondsAddUp(t *testing.T) {
	shares := []device.Share{device.Whole, {Parts: 1, Of: 7}, {Parts: 3, Of: 7}, {Parts: 1, Of: 4}, {Parts: 7, Of: 48}, {}}
	samples := []device.Sample{working100, quietHeld, hungCold, hungNoSM, ghost, transcodes, failed}
	rapid.Check(t, func(t *rapid.T) {
		tracker := NewTracker()
		var now Instant
		now.Wall = midnight
		units := make([]Held, rapid.IntRange(1, 4).Draw(t, "units"))
		for i := range units {
			units[i] = newScene(Defaults()).held
			units[i].Key.Device = fmt.Sprint("GPU-", i)
			units[i].Share = rapid.SampledFrom(shares).Draw(t, "share")
			units[i].Account.Namespace = fmt.Sprint("ns-", i%2)
		}
		present := make([]bool, len(units))
		// owed is the time that each account was held, in nanoseconds.
		owed := map[Account]float64{}
		for range rapid.IntRange(1, 120).Draw(t, "ticks") {
			step := rapid.SampledFrom([]time.Duration{tick, tick, tick, tick + 7, 1, 0, -time.Hour, 3 * time.Hour}).Draw(t, "step")
			now.Elapsed += step
			now.Wall = now.Wall.Add(step).Add(rapid.SampledFrom([]time.Duration{0, 0, 0, 72 * time.Hour, -72 * time.Hour}).Draw(t, "set"))
			before := tracker.elapsed
			var held []Held
			for i := range units {
				was := present[i]
				present[i] = rapid.IntRange(0, 9).Draw(t, "held") > 0
				if !present[i] {
					continue
				}
				units[i].Sample = rapid.SampledFrom(samples).Draw(t, "sample")
				if rapid.IntRange(0, 9).Draw(t, "restarts") == 0 {
					units[i].Started = now.Wall
				}
				held = append(held, units[i])
				if was && now.Elapsed > before {
					share := units[i].Share
					if !share.Valid() {
						share = device.Whole
					}
					owed[units[i].Account] += float64(now.Elapsed-before) * float64(share.Parts) / float64(share.Of)
				}
			}
			tracker.Observe(now, held)
		}
		for account, s := range tracker.Spent() {
			if sum := s.Active + s.Idle + s.Stalled + s.Unknown; sum != s.Allocated {
				t.Fatalf("%v: the parts are %d, and %d was allocated", account, sum, s.Allocated)
			}
			if sum := s.Active.Seconds() + s.Idle.Seconds() + s.Stalled.Seconds() + s.Unknown.Seconds(); sum != s.Allocated.Seconds() {
				t.Fatalf("%v: the parts are %v s, and %v s were allocated", account, sum, s.Allocated.Seconds())
			}
			// A unit keeps less than one 512th of a second back, each time that it is held.
			got, want := s.Allocated.Seconds(), owed[account]/1e9
			if got > want+1e-6 || got < want-1 {
				t.Fatalf("%v: %v s are counted, want %v", account, got, want)
			}
		}
	})
}

// No unit is called idle or stalled whose samples do not say so.
func TestNothingIsSaidWithoutEvidence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newScene(Defaults())
		s.held.Started = midnight.Add(-time.Duration(rapid.IntRange(0, 3).Draw(t, "age in hours")) * time.Hour)
		good := rapid.IntRange(0, 10).Draw(t, "valid of 10")
		var samples []device.Sample
		for range rapid.IntRange(1, 200).Draw(t, "ticks") {
			sample := rapid.SampledFrom([]device.Sample{quietHeld, quietHeld, quietHeld, hungCold}).Draw(t, "sample")
			if rapid.IntRange(1, 10).Draw(t, "valid") > good {
				sample = failed
			}
			samples = append(samples, sample)
			s.until(s.at, always(sample))
			measured := 0
			for _, x := range samples[max(0, len(samples)-40):] {
				if x.Failure == "" {
					measured++
				}
			}
			if s.last.Verdict == Idle && measured < 32 {
				t.Fatalf("idle after %d of 40 samples", measured)
			}
			if s.last.Reclaimable && s.last.Verdict != Idle {
				t.Fatalf("%s and reclaimable", s.last.Verdict)
			}
		}
	})
}
