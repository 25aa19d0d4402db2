package scheduling

import (
	"fmt"

	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/quota"
)

// A plan may cost only so much. What it has not tried then is tried by the next one, a
// second later or when the job has rested; until all was tried nobody is stopped for
// the job.

// progresses is how far plans that did not try all have come, by the flavors that they
// were for; it is for queues and flavors as they were at the count of their moves.
type progresses struct {
	queues int64
	of     map[string]*placement.Progress
}

// progressIn is how far plans in a choice of flavors have come. Jobs of a bucket are
// alike, so that one goes on where another has ended.
func (b *bucket) progressIn(a *quota.Assignment, queues int64) *placement.Progress {
	if b.efforts != nil && b.efforts.progress.queues == queues {
		if p := b.efforts.progress.of[fmt.Sprint(a.Flavors)]; p != nil {
			return p
		}
	}
	return &placement.Progress{}
}

// keepProgress remembers it as long as there is something left to try.
func (b *bucket) keepProgress(a *quota.Assignment, queues int64, p *placement.Progress) {
	if !p.Unfinished() {
		if b.efforts != nil {
			delete(b.efforts.progress.of, fmt.Sprint(a.Flavors))
		}
		return
	}
	kept := &b.effort().progress
	if kept.of == nil || kept.queues != queues {
		*kept = progresses{queues: queues, of: map[string]*placement.Progress{}}
	}
	kept.of[fmt.Sprint(a.Flavors)] = p
}

// goesOn has a bucket that was refused tried again when it has rested.
func (b *bucket) goesOn() { b.missed = b.cure.wait == forRoom }
