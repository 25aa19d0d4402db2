package verdict

import "time"

// Verdict is what a unit does.
type Verdict string

const (
	// Active: it works, or it has not been quiet for long enough to say otherwise.
	Active Verdict = "active"
	// Idle: a container holds it, and has done nothing on it for a whole window.
	Idle Verdict = "idle"
	// Stalled: kernels run all the time and get nothing done, as those of a collective
	// that waits for a rank which has gone.
	Stalled Verdict = "stalled"
	// Unknown: too little was measured to say.
	Unknown Verdict = "unknown"
)

// evidence is all that a verdict is found from, at one point in time.
type evidence struct {
	now time.Duration
	// first is when the unit was seen first, and fromStart that its container was new
	// then.
	first     time.Duration
	fromStart bool
	// age of the container.
	age     time.Duration
	history history
}

// judge says what a unit does that was that before.
func (r Rules) judge(before Verdict, e evidence) Verdict {
	lastFew := e.history.last(lately)
	if e.history.since(e.now-r.BlindAfter).count(valid) == 0 {
		return Unknown
	}
	if r.covers(r.StalledAfter, e) {
		still := before == Stalled && lastFew.count(working) < 2
		if still || e.seen(r.StalledAfter) && e.history.since(e.now-r.StalledAfter).count(working) == 0 {
			return Stalled
		}
	}
	if r.covers(r.IdleAfter, e) {
		still := before == Idle && lastFew.count(busy) < 2
		quiet := e.seen(r.IdleAfter) && e.age >= r.IdleAge && e.history.since(e.now-r.IdleAfter).count(busy) <= 1
		if still || quiet {
			return Idle
		}
	}
	if lastFew.count(busy) >= 2 {
		return Active
	}
	// A container whose start was not seen may have been quiet for hours.
	if !r.covers(r.IdleAfter, e) || !e.fromStart && !e.seen(r.IdleAfter) {
		return Unknown
	}
	return Active
}

// seen says that the unit has been seen for the whole window.
func (e evidence) seen(window time.Duration) bool { return e.now-e.first >= window }

// covers says that enough was measured in the window, or in as much of it as the unit
// has been seen.
func (r Rules) covers(window time.Duration, e evidence) bool {
	window = min(window, e.now-e.first)
	return float64(e.history.since(e.now-window).covered()) >= r.Covered*float64(window)
}
