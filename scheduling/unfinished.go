package scheduling

import (
	"fmt"

	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// A plan may cost only so much. What it has not tried then is tried by the next one, a
// second later or when the job has rested; until all was tried nobody is stopped for
// the job.

// progresses is how far plans that did not try all have come, by what they were for
// (wayOf); it is for queues and flavors as they were at the count of their moves.
type progresses struct {
	queues int64
	of     map[string]*progress
}

// progress is how far plans have come. The first of them looked when so much room had come:
// what has changed since on other nodes may be what a rack lacked that was tried in vain.
type progress struct {
	placement.Progress
	room int64
}

// begins is told how much room had come when a plan looks.
func (p *progress) begins(room int64) {
	if !p.Unfinished() {
		p.room = room
	}
}

// wayOf tells plans for a job of a bucket apart: by the flavors, and by how many of its
// pods they are for.
func wayOf(job *workload.Job, a *quota.Assignment) string {
	var counts []int32
	for i := range job.PodSets {
		counts = append(counts, job.PodSets[i].Count)
	}
	return fmt.Sprint(counts, a.Flavors)
}

// progressIn is how far plans have come one way. Jobs of a bucket are alike, so that one
// goes on where another has ended.
func (b *bucket) progressIn(way string, queues int64) *progress {
	if b.efforts != nil && b.efforts.progress.queues == queues {
		if p := b.efforts.progress.of[way]; p != nil {
			return p
		}
	}
	return &progress{}
}

// keepProgress remembers it as long as there is something left to try.
func (b *bucket) keepProgress(way string, queues int64, p *progress) {
	if !p.Unfinished() {
		if b.efforts != nil {
			delete(b.efforts.progress.of, way)
		}
		return
	}
	kept := &b.effort().progress
	if kept.of == nil || kept.queues != queues {
		*kept = progresses{queues: queues, of: map[string]*progress{}}
	}
	kept.of[way] = p
}

// unfinished says that there is something left to try in queues and flavors as they are
// at that count of their moves.
func (b *bucket) unfinished(queues int64) bool {
	return b.efforts != nil && b.efforts.progress.queues == queues && len(b.efforts.progress.of) > 0
}

// goesOn has a bucket that was refused tried again when it has rested.
func (b *bucket) goesOn() { b.missed = b.cure.wait == forRoom }
