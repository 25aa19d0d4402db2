package scheduling

import "time"

// instant is a time in nanoseconds since 1970, zero for none: a third of what
// time.Time takes up in each job that waits.
type instant int64

func instantOf(t time.Time) instant {
	if t.IsZero() {
		return 0
	}
	return instant(t.UnixNano())
}

func (i instant) time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(i)).UTC()
}

// after says that the instant, if there is one, is still to come.
func (i instant) after(now time.Time) bool { return i != 0 && now.Before(i.time()) }
