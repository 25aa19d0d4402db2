package scheduling

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/api/reason"
)

// tellAtOnce bounds how many jobs behind the first of each queue are told
// their reason in one report, and so the writes that a change of a reason
// that many share can cause at a time.
const tellAtOnce = 50

// untold is the waiting jobs whose reason may be another than the API says.
type untold struct {
	// jobs are those to which something has happened themselves.
	jobs map[*entry]struct{}
	// buckets are those whose reason has another class now; bucket.told is
	// how far they have been told.
	buckets []*bucket
	// first are the jobs that were told in full in the last report.
	first map[*entry]struct{}
}

func newUntold() untold {
	return untold{jobs: map[*entry]struct{}{}, first: map[*entry]struct{}{}}
}

func (u *untold) add(e *entry)    { u.jobs[e] = struct{}{} }
func (u *untold) remove(e *entry) { delete(u.jobs, e) }

// addBucket has all jobs of a bucket told.
func (u *untold) addBucket(b *bucket) {
	b.told = nil
	if !b.untold {
		b.untold = true
		u.buckets = append(u.buckets, b)
	}
}

// addAll has everybody told.
func (w *waitlist) addAll() {
	for _, line := range w.lines {
		for _, e := range line.items {
			w.untold.add(e)
		}
	}
}

// setFirst notes who was told in full; who is no longer among them says now
// only that it is behind them.
func (u *untold) setFirst(first map[*entry]struct{}) {
	for e := range u.first {
		if _, still := first[e]; !still && e.spot.waits {
			u.add(e)
		}
	}
	u.first = first
}

// next takes up to n untold jobs out; those of skip do not count, nor do those
// that wait for something which is worth telling only when it lasts.
func (u *untold) next(n int, now time.Time, skip map[*entry]struct{}) []*entry {
	var out []*entry
	for e := range u.jobs {
		if len(out) == n {
			return out
		}
		if tooEarly(e, now) {
			continue
		}
		delete(u.jobs, e)
		if _, done := skip[e]; !done && e.spot.waits {
			out = append(out, e)
		}
	}
	for len(u.buckets) > 0 {
		b := u.buckets[0]
		for _, e := range b.after() {
			if len(out) == n {
				return out
			}
			r := e.filed()
			b.told = &r
			if _, done := skip[e]; !done {
				out = append(out, e)
			}
		}
		b.told, b.untold = nil, false
		u.buckets[0] = nil
		u.buckets = u.buckets[1:]
	}
	return out
}

// left says that next has more to give.
func (u *untold) left(now time.Time) bool {
	if len(u.buckets) > 0 {
		return true
	}
	for e := range u.jobs {
		if !tooEarly(e, now) {
			return true
		}
	}
	return false
}

// after are the jobs of a bucket behind those that have been told.
func (b *bucket) after() []*entry {
	if b.told == nil {
		return b.jobs.items
	}
	at := *b.told
	i, found := slices.BinarySearchFunc(b.jobs.items, at, func(e *entry, r rank) int { return e.filed().compare(r) })
	if found {
		i++
	}
	return b.jobs.items[i:]
}

// tooEarly says that a job's pod templates are missing, but not for long.
func tooEarly(e *entry, now time.Time) bool {
	return e.blocked != nil && e.blocked.Class == reason.WaitingForPodTemplates && now.Sub(e.job.Created) < templatesDue
}

// first are the first jobs of the LocalQueues given, together.
func (w *waitlist) first(queues []types.NamespacedName) []*entry {
	var out []*entry
	for _, q := range queues {
		if line := w.lines[q]; line != nil {
			out = append(out, line.items[:min(exactReasons, len(line.items))]...)
		}
	}
	slices.SortFunc(out, byRank)
	return out[:min(exactReasons, len(out))]
}

// queuesBy are the LocalQueues in which jobs wait, by their ClusterQueue; ""
// has those that have none.
func (l *Ledger) queuesBy() map[string][]types.NamespacedName {
	out := map[string][]types.NamespacedName{}
	for q := range l.waits.lines {
		cq, _ := l.quota.ClusterQueueOf(q)
		out[cq] = append(out[cq], q)
	}
	return out
}
