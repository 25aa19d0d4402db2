package scheduling

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// unreadPatience is how long a process that begins to lead waits for the next
	// owner to be read, unreadBound how long for all of them.
	unreadPatience = 5 * time.Second
	unreadBound    = time.Minute
)

// firstReads are the owners that were told of before this process began to lead
// and that it has not read yet. Nothing is admitted before all of them are: a
// job of lower priority might start, and be stopped at once for one that is read
// a moment later. One that cannot be read keeps the others waiting for
// unreadPatience at most.
type firstReads struct {
	mu sync.Mutex
	// unread is nil once the wait is over.
	unread map[JobKey]struct{}
	// begun: who is told of from now on is not waited for.
	begun bool
	// last is when one was read last, news that this has changed.
	last time.Time
	news chan struct{}
}

func newFirstReads() *firstReads {
	return &firstReads{unread: map[JobKey]struct{}{}, news: make(chan struct{}, 1)}
}

// told adds an owner, until begin.
func (f *firstReads) told(key JobKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.begun {
		f.unread[key] = struct{}{}
	}
}

// begin says that owners are read from now on.
func (f *firstReads) begin(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun, f.last = true, now
}

// read says that an owner is known to the Ledger as the API has it.
func (f *firstReads) read(key JobKey, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, first := f.unread[key]; first {
		delete(f.unread, key)
		f.last = now
		signal(f.news)
	}
}

// left is how many are unread, and since when none has been read.
func (f *firstReads) left() (int, time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.unread), f.last
}

// wait returns when all have been read, or when it is not worth it to wait for
// those that are left.
func (f *firstReads) wait(ctx context.Context, c clock.Clock) {
	end := c.Now().Add(unreadBound)
	for {
		n, last := f.left()
		until := last.Add(unreadPatience)
		if end.Before(until) {
			until = end
		}
		now := c.Now()
		if n == 0 || !now.Before(until) {
			if n > 0 {
				klog.FromContext(ctx).Info("Jobs are admitted although some that may come before them could not be read yet", "unread", n)
			}
			break
		}
		timer := c.NewTimer(until.Sub(now))
		select {
		case <-ctx.Done():
		case <-f.news:
		case <-timer.C():
		}
		timer.Stop()
		if ctx.Err() != nil {
			break
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unread = nil
}

// readFirst reads one owner, and counts those that were told of before.
func (j *Jobs) readFirst(ctx context.Context, key JobKey) error {
	err := j.reconcile(ctx, key)
	if errors.Is(err, errNotRestored) {
		j.effects.jobs.AddAfter(key, restoreSoon)
		return nil
	}
	if err == nil {
		j.effects.first.read(key, j.clock.Now())
	}
	return err
}

// reading says that nothing is admitted until allRead, beside what is restored.
func (l *Ledger) reading() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unread = true
}

// allRead says that the jobs which wait are known.
func (l *Ledger) allRead() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unread = false
	l.touch()
}

// admits says that jobs may be admitted.
func (l *Ledger) admits() bool { return l.restored && !l.unread && !l.kueueDecides() }
