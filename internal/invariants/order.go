package invariants

import (
	"fmt"
	"slices"
)

// order merges the events of several streams into one history. Each stream is
// in order itself, but one may be ahead of another: an event is let go only
// when every stream is known to have come as far, so that nothing that
// happened before it can still arrive.
type order struct {
	// reached is how far each stream has come.
	reached map[string]string
	waiting []Event
}

func newOrder(streams ...string) *order {
	o := &order{reached: map[string]string{}}
	for _, s := range streams {
		o.reached[s] = ""
	}
	return o
}

// span is a part of the history: what came after one resource version, up to
// another.
type span struct{ after, upTo string }

func (s span) holds(version string) bool {
	return later(version, s.after) && !later(version, s.upTo)
}

// push takes the next event of a stream.
func (o *order) push(stream string, e Event) error {
	if err := checkVersion(e.version()); err != nil {
		return fmt.Errorf("%s %s/%s: %w", stream, e.Object.GetNamespace(), e.Object.GetName(), err)
	}
	o.waiting = append(o.waiting, e)
	o.advance(stream, e.version())
	return nil
}

// advance records that a stream has delivered all that happened up to version.
func (o *order) advance(stream, version string) {
	if later(version, o.reached[stream]) {
		o.reached[stream] = version
	}
}

// ready takes out the events that nothing can precede any more, in order.
func (o *order) ready() []Event {
	horizon, first := "", true
	for _, version := range o.reached {
		if first || later(horizon, version) {
			horizon, first = version, false
		}
	}
	slices.SortStableFunc(o.waiting, func(a, b Event) int {
		switch {
		case later(a.version(), b.version()):
			return 1
		case later(b.version(), a.version()):
			return -1
		}
		return 0
	})
	n := 0
	for n < len(o.waiting) && !later(o.waiting[n].version(), horizon) {
		n++
	}
	out := slices.Clone(o.waiting[:n])
	o.waiting = slices.Delete(o.waiting, 0, n)
	return out
}
