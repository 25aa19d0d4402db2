package verdict

import (
	"fmt"
	"time"

	"github.com/muster-gpu/muster/agent/device"
)

// Samples as devices give them.
var (
	working100 = device.Sample{Busy: device.Is(0.97), SM: device.Is(0.8), Power: device.Is(600), PowerLimit: device.Is(700), Processes: device.Is(1)}
	quietHeld  = device.Sample{Busy: device.Is(0), SM: device.Is(0), Power: device.Is(110), PowerLimit: device.Is(700), Processes: device.Is(1)}
	hungCold   = device.Sample{Busy: device.Is(1), SM: device.Is(0.02), Power: device.Is(100), PowerLimit: device.Is(700), Processes: device.Is(1)}
	hungNoSM   = device.Sample{Busy: device.Is(1), SM: device.Is(0), Processes: device.Is(1)}
	ghost      = device.Sample{Busy: device.Is(1), Power: device.Is(100), PowerLimit: device.Is(700), Processes: device.Is(0)}
	transcodes = device.Sample{Busy: device.Is(0), SM: device.Is(0), Codec: device.Is(0.6), Processes: device.Is(1)}
	failed     = device.Sample{Failure: "no answer within 5 s"}
)

var midnight = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

const tick = 15 * time.Second

// scene is one unit that is observed every tick.
type scene struct {
	tracker *Tracker
	held    Held
	at      time.Duration
	// saw are the verdicts, each with the second since which it held.
	saw         []string
	reclaimable []string
	last        Standing
}

// newScene has a container that starts with the agent.
func newScene(rules Rules) *scene {
	return &scene{tracker: NewTracker(), held: Held{
		Key: UnitKey{Device: "GPU-0", Pod: "ml/pod", Container: "main"}, Share: device.Whole,
		Account: Account{Namespace: "ml", Queue: "research", Kind: "TrainJob"}, Started: midnight, Rules: rules,
	}}
}

// until has the samples of the function up to and with the time.
func (s *scene) until(end time.Duration, sample func(at time.Duration) device.Sample) *scene {
	for ; s.at <= end; s.at += tick {
		s.held.Sample = sample(s.at)
		s.take(s.tracker.Observe(Instant{Elapsed: s.at, Wall: midnight.Add(s.at)}, []Held{s.held})[s.held.Key])
	}
	return s
}

func (s *scene) take(now Standing) {
	if now.Verdict != s.last.Verdict {
		s.saw = append(s.saw, fmt.Sprintf("%s at %d", now.Verdict, int(s.at.Seconds())))
	}
	if now.Reclaimable != s.last.Reclaimable {
		s.reclaimable = append(s.reclaimable, fmt.Sprintf("%t at %d", now.Reclaimable, int(s.at.Seconds())))
	}
	s.last = now
}

func (s *scene) spent() Spent { return s.tracker.Spent()[s.held.Account] }

func always(sample device.Sample) func(time.Duration) device.Sample {
	return func(time.Duration) device.Sample { return sample }
}

// seconds are whole GPU-seconds.
func seconds(n int64) GPUTime { return GPUTime(n * 512) }
