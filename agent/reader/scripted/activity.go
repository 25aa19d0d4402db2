package scripted

import (
	"fmt"
	"strings"
	"time"

	"github.com/muster-gpu/muster/agent/device"
)

// Activity is what a device does.
type Activity struct {
	kind kind
	// after is how long an idle device is busy before.
	after time.Duration
}

type kind string

const (
	// none: no process is on it.
	none    kind = ""
	busy    kind = "busy"
	idle    kind = "idle"
	stalled kind = "stalled"
	// ghost: its counter sticks at 100 % without a process.
	ghost kind = "ghost"
	// hang: no call about it returns.
	hang kind = "hang"
	// lost: the driver does not find it any more.
	lost kind = "lost"
)

// Unused is a device that nobody holds.
var Unused = Activity{}

// ParseActivity reads busy, idle, idle-after=60s, stalled, ghost, hang or lost.
func ParseActivity(text string) (Activity, error) {
	if after, ok := strings.CutPrefix(text, "idle-after="); ok {
		d, err := time.ParseDuration(after)
		if err != nil || d < 0 {
			return Activity{}, fmt.Errorf("activity %q: %q is no time", text, after)
		}
		return Activity{kind: idle, after: d}, nil
	}
	switch k := kind(text); k {
	case busy, idle, stalled, ghost, hang, lost:
		return Activity{kind: k}, nil
	}
	return Activity{}, fmt.Errorf("activity %q is none of busy, idle, idle-after=<time>, stalled, ghost, hang, lost", text)
}

// at is the activity after it has gone on for that long.
func (a Activity) at(since time.Duration) kind {
	if a.kind == idle && since < a.after {
		return busy
	}
	return a.kind
}

// sample is what is measured meanwhile. Power is that of a GPU with a limit of 700 W.
func (k kind) sample() device.Sample {
	s := device.Sample{Busy: device.Is(0), SM: device.Is(0), Codec: device.Is(0), Power: device.Is(75), PowerLimit: device.Is(700), Temperature: device.Is(32)}
	switch k {
	case busy:
		s.Busy, s.SM, s.Power, s.Temperature = device.Is(0.97), device.Is(0.85), device.Is(610), device.Is(64)
	case stalled:
		s.Busy, s.SM, s.Power = device.Is(1), device.Is(0.04), device.Is(115)
	case ghost:
		s.Busy, s.SM, s.Power = device.Is(1), device.Gauge{}, device.Is(100)
	}
	if k.processes() != nil {
		s.MemoryUsedBytes = 2 << 30
	}
	return s
}

// processes are those that are on the device meanwhile.
func (k kind) processes() []device.Process {
	if k == none || k == ghost {
		return nil
	}
	return []device.Process{{PID: 4242, MemoryBytes: 2 << 30}}
}
