package reader

import (
	"fmt"
	"time"
)

// line lets one call out at a time.
type line struct {
	since time.Time
	// back is closed when the call has come back; nil before the first.
	back chan struct{}
}

// out says that a call has not come back.
func (l *line) out() bool {
	if l.back == nil {
		return false
	}
	select {
	case <-l.back:
		return false
	default:
		return true
	}
}

// start runs what is to be called on a goroutine of its own. No call may be out.
func (l *line) start(run func()) {
	back := make(chan struct{})
	l.since, l.back = time.Now(), back
	go func() {
		defer close(back)
		run()
	}()
}

// silence is for how long a call that is out has been so, in whole seconds.
func (l *line) silence() time.Duration { return time.Since(l.since).Round(time.Second) }

// safely makes an error of a panic: a driver's library that finds more than it has
// made room for panics, and the agent goes on.
func safely[T any](call func() (T, error)) (result T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the driver's reader panicked: %v", p)
		}
	}()
	return call()
}
