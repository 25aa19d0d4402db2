package verdict

import (
	"time"

	"github.com/muster-gpu/muster/agent/device"
)

// Instant is a point in time by both clocks.
type Instant struct {
	// Elapsed is the time since the agent began, by a clock that is never set. All
	// windows and all sums are of this one. If it goes back, no time has passed.
	Elapsed time.Duration
	// Wall is what the node's clock says; it may be set at any time.
	Wall time.Time
}

// UnitKey names a unit.
type UnitKey struct {
	// Device is its UUID, with the number of the share where it is shared.
	Device string
	// Pod, as "namespace/name", and Container hold it. Pods of one name that follow each
	// other are told apart by Started.
	Pod, Container string
}

// Held is a unit as it is found at a tick.
type Held struct {
	Key UnitKey
	// Share is how much of a GPU it is; one that is not Valid counts as a whole GPU.
	Share device.Share
	// Account is for whom its time is counted.
	Account Account
	// Job is the UID of the workload, for all of whose units reclaimable must hold.
	// Units without one stand alone.
	Job string
	// Started is when the container started; another time is another container.
	Started time.Time
	// ExemptUntil is the time before which it is not reclaimable.
	ExemptUntil time.Time
	Rules       Rules
	// Sample is of the time since the tick before.
	Sample device.Sample
}

// Standing is the verdict on one unit.
type Standing struct {
	Verdict Verdict
	// Since is when it became so, by the node's clock at that time.
	Since time.Time
	// Reclaimable says that the GPU could be taken away: the unit and all others of its
	// job on this node are quiet for long enough. Those on other nodes are not
	// looked at; see Reclaimable.
	Reclaimable bool
}

// Tracker follows the units of one node from tick to tick. It is not safe for
// concurrent use.
type Tracker struct {
	elapsed time.Duration
	units   map[UnitKey]*unit
	spent   map[Account]*Spent
}

// unit is what is remembered of one.
type unit struct {
	meter   meter
	started time.Time
	// ageAtFirst is the age of the container when it was seen first.
	ageAtFirst time.Duration
	evidence   evidence
	verdict    Verdict
	// since and sinceWall are when the verdict became what it is.
	since     time.Duration
	sinceWall time.Time
}

// NewTracker follows nothing yet.
func NewTracker() *Tracker {
	return &Tracker{units: map[UnitKey]*unit{}, spent: map[Account]*Spent{}}
}

// Observe takes in one tick: all units that are held now, each once. The time since the
// tick before is counted for those that were held then too, by what they did then;
// where that is longer than BlindAfter, as unknown. Units that are not named have
// left, and are forgotten; what they have spent is not.
func (t *Tracker) Observe(now Instant, held []Held) map[UnitKey]Standing {
	step := max(0, now.Elapsed-t.elapsed)
	t.elapsed += step
	kept := make(map[UnitKey]*unit, len(held))
	quiet := map[string]bool{}
	for _, h := range held {
		u := t.units[h.Key]
		switch {
		case u == nil:
			u = t.begin(h, now.Wall)
		case !u.started.Equal(h.Started):
			// The device was held meanwhile all the same.
			t.count(u, h, step)
			m := u.meter
			u = t.begin(h, now.Wall)
			u.meter = m
		default:
			t.count(u, h, step)
		}
		u.meter.divide(h.Share)
		kept[h.Key] = u
		u.observe(t.elapsed, step, now.Wall, h)
		if all, known := quiet[h.Job]; all || !known {
			quiet[h.Job] = u.reclaimable(t.elapsed, now.Wall, h)
		}
	}
	t.units = kept
	standings := make(map[UnitKey]Standing, len(held))
	for _, h := range held {
		u := kept[h.Key]
		reclaimable := quiet[h.Job]
		if h.Job == "" {
			reclaimable = u.reclaimable(t.elapsed, now.Wall, h)
		}
		standings[h.Key] = Standing{Verdict: u.verdict, Since: u.sinceWall, Reclaimable: reclaimable}
	}
	return standings
}

// Spent is the time that was counted for each account since the Tracker was made.
func (t *Tracker) Spent() map[Account]Spent {
	spent := make(map[Account]Spent, len(t.spent))
	for account, s := range t.spent {
		spent[account] = *s
	}
	return spent
}

func (t *Tracker) begin(h Held, wall time.Time) *unit {
	age := max(0, wall.Sub(h.Started))
	// An account is there from the start, at zero, so that what it spends shows as a rise.
	t.account(h.Account)
	return &unit{
		started:    h.Started,
		ageAtFirst: age,
		evidence:   evidence{first: t.elapsed, fromStart: age <= h.Rules.BlindAfter},
	}
}

func (t *Tracker) count(u *unit, h Held, step time.Duration) {
	did := u.verdict
	if step > h.Rules.BlindAfter {
		did = Unknown
	}
	t.account(h.Account).add(did, u.meter.run(step))
}

func (t *Tracker) account(a Account) *Spent {
	if t.spent[a] == nil {
		t.spent[a] = &Spent{}
	}
	return t.spent[a]
}

func (u *unit) observe(elapsed, step time.Duration, wall time.Time, h Held) {
	r := h.Rules.recorded(h.Sample)
	r.at, r.covers = elapsed, min(step, 2*h.Rules.Tick)
	if elapsed == u.evidence.first {
		r.covers = 0
	}
	u.evidence.history.add(r, max(h.Rules.IdleAfter, h.Rules.StalledAfter, h.Rules.BlindAfter))
	u.evidence.now = elapsed
	u.evidence.age = u.age(elapsed)
	if v := h.Rules.judge(u.verdict, u.evidence); v != u.verdict {
		u.verdict, u.since, u.sinceWall = v, elapsed, wall
	}
}

func (u *unit) age(elapsed time.Duration) time.Duration {
	return u.ageAtFirst + elapsed - u.evidence.first
}

// reclaimable says that the unit alone is.
func (u *unit) reclaimable(elapsed time.Duration, wall time.Time, h Held) bool {
	quiet := u.verdict == Idle || h.Rules.ReclaimStalled && u.verdict == Stalled
	return quiet && elapsed-u.since >= h.Rules.ReclaimAfter && u.age(elapsed) >= h.Rules.ReclaimAge && !wall.Before(h.ExemptUntil)
}
