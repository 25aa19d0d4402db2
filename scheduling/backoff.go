package scheduling

import "time"

// Backoff is how long what has failed waits before it is tried again.
type Backoff struct {
	// Base is the wait after the first failure. It doubles with each failure in a row,
	// up to Max.
	Base, Max time.Duration
	// Limit is how often in a row it is tried again; nil means for ever.
	Limit *int32
}

// wait is how long that many failures in a row have to be waited for.
func (b Backoff) wait(failures int) time.Duration {
	wait := b.Base
	for i := 1; i < failures && wait < b.Max; i++ {
		wait *= 2
	}
	return min(wait, b.Max)
}

// spent says that after that many failures in a row it is not tried again.
func (b Backoff) spent(failures int) bool { return b.Limit != nil && failures > int(*b.Limit) }
