package scheduling

import (
	"maps"
	"slices"
	"time"
)

// renew has, once in a while, those tried again that may be let in by pods
// which came, and those of the first in each queue that wait for nodes, so that
// their numbers are true.
func (l *Ledger) renew() {
	l.rested()
	w := &l.waits
	gpus, pods := w.gpuNews, w.podNews
	w.gpuNews, w.podNews = false, false
	if pods {
		l.cured(func(b *bucket) bool { return b.needsOthers }, forRoom)
	}
	if !gpus && !pods {
		return
	}
	by := l.queuesBy()
	for _, queue := range slices.Sorted(maps.Keys(by)) {
		for _, e := range w.first(by[queue]) {
			b := e.spot.bucket
			if b != nil && !b.renewed && ((b.cure.wait == forRoom && pods) || (b.cure.wait == forGPUs && gpus)) {
				b.renewed = true
				w.renewals = append(w.renewals, b)
				l.effects.Admit()
			}
		}
	}
}

// nextRenewal is a refused bucket to be tried for its reason, nil if there is
// none.
func (w *waitlist) nextRenewal() *bucket {
	for len(w.renewals) > 0 {
		b := w.renewals[0]
		w.renewals = w.renewals[1:]
		if b.renewed && len(b.jobs.items) > 0 {
			b.renewed = false
			return b
		}
	}
	return nil
}

// restShare is how much longer than its last plan took a job that is dear to
// plan waits until it is planned again: so it keeps the scheduling goroutine for
// a twentieth of the time at most.
const restShare = 20

// rest has a bucket wait whose plan took longer than a pass may. It is tried
// again when the time is over, if room has come meanwhile.
func (b *bucket) rest(now time.Time, took, budget time.Duration) {
	if b.efforts != nil {
		b.efforts.restUntil = time.Time{}
	}
	if took > budget {
		b.effort().restUntil = now.Add(restShare * took)
	}
}

func (b *bucket) rests(now time.Time) bool {
	return b.efforts != nil && now.Before(b.efforts.restUntil)
}

// rested makes the buckets due that have rested and missed something.
func (l *Ledger) rested() {
	now := l.clock.Now()
	for _, set := range l.waits.room {
		for b := range set {
			if b.missed && !b.rests(now) {
				l.waits.put(b, cure{queue: b.cure.queue, root: b.cure.root, lacks: b.cure.lacks, blind: true}, now)
				l.effects.Admit()
			}
		}
	}
}
