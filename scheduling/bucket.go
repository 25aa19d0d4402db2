package scheduling

import (
	"time"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/quota"
)

// bucketKey names a bucket by the line of its LocalQueue.
type bucketKey struct {
	line  *line
	shape shape
}

// bucket is the jobs of one LocalQueue and one shape that nothing but quota
// and nodes keeps waiting.
type bucket struct {
	key    bucketKey
	born   int64
	jobs   jobList
	demand *demand
	// head is where it waits for its turn.
	head *head
	// at is where it lies among those that are due.
	at int
	// rank is that of the first job.
	rank rank
	// why is the reason that its jobs were refused for last, nil before the
	// first try.
	why *reason.Reason
	// whyUsed is the count of moves of quota that why is true for; unworded is
	// another one than all of them.
	whyUsed int64
	// bar is what keeps the jobs from more than another refusal, as far as known.
	bar  quota.Bar
	cure cure
	// stands says that it stands in line at its head.
	stands bool
	// needsOthers, needsClaims: see there.
	needsOthers, needsClaims bool
	// renewed: it is among the renewals.
	renewed bool
	// missed says that room has come while it rested.
	missed bool
	// untold says that it is among those of whose jobs some have not been told
	// their reason's class; told is up to where they have.
	untold bool
	told   *rank
	// efforts is what is remembered of plans and searches; nil for most.
	efforts *efforts
}

// demand is what the jobs of one shape request per pod, by pod set; nil where it is
// not shared by jobs, of this shape or another. buckets is how many buckets share
// it.
type demand struct {
	perPod  []quota.Requests
	buckets int
}

// join puts a job into its bucket and reports whether the bucket is due.
func (w *waitlist) join(key bucketKey, e *entry, h *head, now time.Time) bool {
	b := w.buckets[key]
	if b == nil {
		w.born++
		b = &bucket{key: key, born: w.born, needsOthers: needsOthers(e.job), needsClaims: needsClaims(e.job)}
		b.rank, b.head, b.cure = e.filed(), h, cure{wait: aside}
		if b.demand = w.demands[key.shape]; b.demand == nil {
			b.demand = &demand{perPod: w.known(e.job)}
			w.demands[key.shape] = b.demand
			w.extended.Insert(extendedOf(e.job)...)
		}
		b.demand.buckets++
		h.buckets++
		w.buckets[key] = b
		w.put(b, cure{}, now)
	}
	e.spot.bucket = b
	w.change(b, now, func() { b.jobs.insert(e) })
	return b.cure.wait == nothing
}

// change changes the jobs of a bucket. A bucket that becomes empty is
// forgotten.
func (w *waitlist) change(b *bucket, now time.Time, do func()) {
	do()
	switch {
	case len(b.jobs.items) == 0:
		w.leave(b)
		b.cure.wait = aside
		w.stepOut(b, now)
		delete(w.buckets, b.key)
		if b.demand.buckets--; b.demand.buckets == 0 {
			delete(w.demands, b.key.shape)
		}
		w.quit(b.head)
		delete(w.searches, b)
	case b.jobs.items[0].filed() != b.rank:
		was, before := b.cure, b.rank
		w.leave(b)
		b.cure = cure{wait: aside}
		if b.stands {
			b.head.line.remove(b)
		}
		b.rank = b.jobs.items[0].filed()
		b.head.passed.sorted = false
		if b.stands {
			b.head.line.insert(b)
		}
		earlier, heir := b.rank.compare(before) < 0, b.stands && b.head.withheld == before.uid
		if (earlier || heir) && was.wait != behind && was.wait != aside {
			// Who comes earlier may have others stopped, and pass those for whom
			// something is kept. What was kept for the one before is kept for the
			// next once that is tried.
			w.put(b, cure{}, now)
			return
		}
		w.file(b, was, now)
		w.settle(b.head, now)
	}
}
