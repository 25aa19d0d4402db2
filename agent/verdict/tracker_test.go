package verdict

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-gpu/muster/agent/device"
)

func TestVerdicts(t *testing.T) {
	notebook := DefaultSettings().For("Notebook", "research", Override{})
	// between is a sample in a part of each period, and another one else.
	between := func(from, to, period time.Duration, then, otherwise device.Sample) func(time.Duration) device.Sample {
		return func(at time.Duration) device.Sample {
			if at %= period; at > from && at <= to {
				return then
			}
			return otherwise
		}
	}
	const forever = 1000 * time.Hour
	tests := map[string]struct {
		rules       Rules
		until       time.Duration
		sample      func(time.Duration) device.Sample
		saw         []string
		reclaimable []string
		spent       Spent
	}{
		"a notebook that is never touched is idle after half an hour": {
			rules: notebook, until: 2 * time.Hour, sample: always(quietHeld),
			saw: []string{"active at 0", "idle at 1800"}, reclaimable: []string{"true at 2100"},
			spent: Spent{Allocated: seconds(7200), Active: seconds(1800), Idle: seconds(5400)},
		},
		"a job that writes a checkpoint for 225 s every 20 minutes is never idle": {
			rules: Defaults(), until: 6 * time.Hour, sample: between(0, 225*time.Second, 20*time.Minute, quietHeld, working100),
			saw:   []string{"active at 0"},
			spent: Spent{Allocated: seconds(21600), Active: seconds(21600)},
		},
		"a job that prepares on the CPU for 25 minutes is idle at 900 s and never reclaimable": {
			rules: Defaults(), until: 3 * time.Hour, sample: between(25*time.Minute, forever, forever, working100, quietHeld),
			saw:   []string{"active at 0", "idle at 900", "active at 1530"},
			spent: Spent{Allocated: seconds(10800), Active: seconds(10170), Idle: seconds(630)},
		},
		"a collective that hangs at 100 % and little power is stalled, and never idle or reclaimable": {
			rules: Defaults(), until: 4 * time.Hour, sample: between(30*time.Minute, forever, forever, hungCold, working100),
			saw:   []string{"active at 0", "stalled at 2700"},
			spent: Spent{Allocated: seconds(14400), Active: seconds(2700), Stalled: seconds(11700)},
		},
		"100 % without any work of the multiprocessors is stalled where power is not known": {
			rules: Defaults(), until: 900 * time.Second, sample: always(hungNoSM),
			saw:   []string{"active at 0", "stalled at 900"},
			spent: Spent{Allocated: seconds(900), Active: seconds(900)},
		},
		"a stalled job that goes on is active with its second sample": {
			rules: Defaults(), until: 30 * time.Minute, sample: between(20*time.Minute, forever, forever, working100, hungCold),
			saw:   []string{"active at 0", "stalled at 900", "active at 1230"},
			spent: Spent{Allocated: seconds(1800), Active: seconds(900 + 570), Stalled: seconds(330)},
		},
		"a counter that sticks at 100 % without a process is not busy": {
			rules: Defaults(), until: 1200 * time.Second, sample: always(ghost),
			saw:   []string{"active at 0", "idle at 900"},
			spent: Spent{Allocated: seconds(1200), Active: seconds(900), Idle: seconds(300)},
		},
		"transcoding is work": {
			rules: Defaults(), until: time.Hour, sample: always(transcodes),
			saw:   []string{"active at 0"},
			spent: Spent{Allocated: seconds(3600), Active: seconds(3600)},
		},
		"one busy sample in the window does not end idleness, nor keeps it away": {
			rules: Defaults(), until: 2 * time.Hour, sample: between(0, tick, 11*time.Minute, working100, quietHeld),
			saw: []string{"active at 0", "idle at 900"}, reclaimable: []string{"true at 1800"},
			spent: Spent{Allocated: seconds(7200), Active: seconds(900), Idle: seconds(6300)},
		},
		"a device that does not answer is unknown after a minute, and what it was when it answers": {
			rules: Defaults(), until: 2 * time.Hour, sample: between(time.Hour, 80*time.Minute, forever, failed, working100),
			saw:   []string{"active at 0", "unknown at 3660", "active at 4830"},
			spent: Spent{Allocated: seconds(7200), Active: seconds(3660 + 2370), Unknown: seconds(1170)},
		},
		"an idle device that does not answer must be quiet for most of a window again": {
			rules: Defaults(), until: 100 * time.Minute, sample: between(time.Hour, 80*time.Minute, forever, failed, quietHeld),
			saw: []string{"active at 0", "idle at 900", "unknown at 3660", "idle at 5280"}, reclaimable: []string{"true at 1800", "false at 3660", "true at 5580"},
			spent: Spent{Allocated: seconds(6000), Active: seconds(900), Idle: seconds(2760 + 720), Unknown: seconds(1620)},
		},
		"a device of which every third sample fails is never called idle": {
			rules: Defaults(), until: 2 * time.Hour, sample: between(0, tick, 3*tick, failed, quietHeld),
			saw:   []string{"active at 0", "unknown at 15"},
			spent: Spent{Allocated: seconds(7200), Active: seconds(15), Unknown: seconds(7185)},
		},
		"a device without any signal is unknown": {
			rules: Defaults(), until: time.Hour, sample: always(device.Sample{Processes: device.Is(0)}),
			saw:   []string{"unknown at 0"},
			spent: Spent{Allocated: seconds(3600), Unknown: seconds(3600)},
		},
		"a queue may have stalled jobs reclaimed": {
			rules: DefaultSettings().Rules.with(Override{ReclaimStalled: ptr(true)}), until: 2 * time.Hour, sample: always(hungCold),
			saw: []string{"active at 0", "stalled at 900"}, reclaimable: []string{"true at 1800"},
			spent: Spent{Allocated: seconds(7200), Active: seconds(900), Stalled: seconds(6300)},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newScene(test.rules).until(test.until, test.sample)
			if diff := cmp.Diff(test.saw, s.saw); diff != "" {
				t.Errorf("verdicts (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.reclaimable, s.reclaimable); diff != "" {
				t.Errorf("reclaimable (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.spent, s.spent()); diff != "" {
				t.Errorf("spent (-want +got):\n%s", diff)
			}
		})
	}
}

func ptr[T any](v T) *T { return &v }

func TestExemptUntil(t *testing.T) {
	s := newScene(Defaults())
	s.held.ExemptUntil = midnight.Add(time.Hour)
	s.until(2*time.Hour, always(quietHeld))
	if diff := cmp.Diff([]string{"true at 3600"}, s.reclaimable); diff != "" {
		t.Errorf("reclaimable (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"active at 0", "idle at 900"}, s.saw); diff != "" {
		t.Errorf("an exempt unit is idle all the same (-want +got):\n%s", diff)
	}
}

func TestOneSliceOfSevenIdles(t *testing.T) {
	tracker := NewTracker()
	units := make([]Held, 7)
	for i := range units {
		units[i] = newScene(Defaults()).held
		units[i].Key.Device = "MIG-" + string(rune('a'+i))
		units[i].Share = device.Share{Parts: 1, Of: 7}
		units[i].Account.Namespace = string(rune('a' + i))
		units[i].Sample = working100
	}
	units[3].Sample = quietHeld
	var last map[UnitKey]Standing
	for at := time.Duration(0); at <= 2*time.Hour; at += tick {
		last = tracker.Observe(Instant{Elapsed: at, Wall: midnight.Add(at)}, units)
	}
	var sum Spent
	for i, u := range units {
		want, spent := Active, tracker.Spent()[u.Account]
		if i == 3 {
			want = Idle
		}
		if got := last[u.Key].Verdict; got != want {
			t.Errorf("slice %d is %s, want %s", i, got, want)
		}
		sum.Allocated += spent.Allocated
		sum.Idle += spent.Idle
		sum.Active += spent.Active
	}
	// 6,300 s of one seventh; each slice may keep less than one 512th of a second back.
	if want := seconds(900); sum.Idle != want {
		t.Errorf("idle %d, want %d", sum.Idle, want)
	}
	if want := seconds(7200); sum.Allocated > want || sum.Allocated < want-7 {
		t.Errorf("allocated %d, want %d", sum.Allocated, want)
	}
}

func TestAJobIsReclaimableOnlyWhole(t *testing.T) {
	tracker := NewTracker()
	works, idles, alone := newScene(Defaults()).held, newScene(Defaults()).held, newScene(Defaults()).held
	works.Key.Device, works.Job, works.Sample = "GPU-0", "job", working100
	idles.Key.Device, idles.Job, idles.Sample = "GPU-1", "job", quietHeld
	alone.Key.Device, alone.Sample = "GPU-2", quietHeld
	at := time.Duration(0)
	watch := func(end time.Duration, units ...Held) (last map[UnitKey]Standing) {
		for ; at <= end; at += tick {
			last = tracker.Observe(Instant{Elapsed: at, Wall: midnight.Add(at)}, units)
		}
		return last
	}
	got := watch(time.Hour, works, idles, alone)
	if s := got[idles.Key]; s.Verdict != Idle || s.Reclaimable {
		t.Errorf("beside a GPU of its job that works: %+v", s)
	}
	if s := got[alone.Key]; s.Verdict != Idle || !s.Reclaimable {
		t.Errorf("alone: %+v", s)
	}
	works.Sample = quietHeld
	if s := watch(2*time.Hour, works, idles, alone)[idles.Key]; !s.Reclaimable {
		t.Errorf("when the whole job idles: %+v", s)
	}
}

func TestAnAgentThatStartsLateSaysIdleOnlyAfterAWindow(t *testing.T) {
	s := newScene(Defaults())
	s.held.Started = midnight.Add(-5 * time.Hour)
	s.until(20*time.Minute, always(quietHeld))
	if diff := cmp.Diff([]string{"unknown at 0", "idle at 600"}, s.saw); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
}

func TestAContainerThatRestartsBeginsAnew(t *testing.T) {
	s := newScene(Defaults()).until(time.Hour, always(quietHeld))
	s.held.Started = midnight.Add(time.Hour)
	s.until(2*time.Hour, always(quietHeld))
	if diff := cmp.Diff([]string{"active at 0", "idle at 900", "active at 3615", "idle at 4500"}, s.saw); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
	want := Spent{Allocated: seconds(7200), Active: seconds(900 + 885), Idle: seconds(2715 + 2700)}
	if diff := cmp.Diff(want, s.spent()); diff != "" {
		t.Errorf("spent, the restart too (-want +got):\n%s", diff)
	}
}

func TestTheNodesClockMayBeSet(t *testing.T) {
	tracker, held := NewTracker(), newScene(Defaults()).held
	held.Sample = working100
	for at := time.Duration(0); at <= time.Hour; at += tick {
		wall := midnight.Add(at)
		if at > 10*time.Minute {
			wall = wall.Add(48 * time.Hour)
		}
		if at > 20*time.Minute {
			wall = wall.Add(-96 * time.Hour)
		}
		tracker.Observe(Instant{Elapsed: at, Wall: wall}, []Held{held})
	}
	if diff := cmp.Diff(Spent{Allocated: seconds(3600), Active: seconds(3600)}, tracker.Spent()[held.Account]); diff != "" {
		t.Errorf("spent (-want +got):\n%s", diff)
	}
}

func TestTimeWithoutAnyTickIsUnknown(t *testing.T) {
	s := newScene(Defaults()).until(30*time.Minute, always(quietHeld))
	s.at += time.Hour
	s.until(100*time.Minute, always(quietHeld))
	// The first sample after it speaks for two ticks; 30 more cover most of a window.
	want := Spent{Allocated: seconds(6000), Active: seconds(900), Idle: seconds(900 + 135), Unknown: seconds(3615 + 450)}
	if diff := cmp.Diff(want, s.spent()); diff != "" {
		t.Errorf("spent (-want +got):\n%s", diff)
	}
}

func TestADayTakesNoMoreMemoryThanAnHour(t *testing.T) {
	s := newScene(Defaults()).until(24*time.Hour, always(working100))
	u := s.tracker.units[s.held.Key]
	if got := len(u.evidence.history); got > 61 {
		t.Errorf("%d records are kept, want those of 900 s", got)
	}
	if got := cap(u.evidence.history); got > 256 {
		t.Errorf("room for %d records", got)
	}
}

// 8 GPUs that 16 containers share.
func BenchmarkObserve(b *testing.B) {
	tracker := NewTracker()
	units := make([]Held, 16)
	for i := range units {
		units[i] = newScene(Defaults()).held
		units[i].Key.Pod = string(rune('a' + i))
		units[i].Sample = []device.Sample{working100, quietHeld}[i%2]
	}
	at := time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		at += tick
		tracker.Observe(Instant{Elapsed: at, Wall: midnight.Add(at)}, units)
	}
}

// Two pods use one claim, of which the second comes later and goes earlier.
func TestADeviceThatIsSharedLaterIsNotCountedTwice(t *testing.T) {
	tracker := NewTracker()
	first, second := newScene(Defaults()).held, newScene(Defaults()).held
	second.Key.Pod = "second"
	at := time.Duration(0)
	ticks := func(n int64, held ...Held) {
		for i := range held {
			held[i].Share = device.Share{Parts: 1, Of: int64(len(held))}
		}
		for range n {
			tracker.Observe(Instant{Elapsed: at, Wall: midnight.Add(at)}, held)
			at += tick
		}
	}
	ticks(5, first)
	ticks(4, first, second)
	ticks(3, first)
	// The second is not counted in the tick in which it is gone.
	if got, want := tracker.Spent()[first.Account].Allocated.Seconds(), 5*15+3*15+7.5+2*15; got != want {
		t.Errorf("%v GPU-seconds were allocated, want %v", got, want)
	}
}
