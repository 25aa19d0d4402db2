package scheduling

import (
	"slices"

	"github.com/muster-gpu/muster/api/reason"
)

// unworded stands in bucket.whyUsed for a sentence that is out of date, or was
// never made: those who report find the words for the few jobs that tell them.
const unworded = -1

// forQuotaAlone is a reason without words.
var forQuotaAlone = &reason.Reason{Class: reason.WaitingForQuota}

// unworded is why the jobs of the bucket wait for quota: what was said last, if
// it is that.
func (b *bucket) unworded() *reason.Reason {
	if b.why != nil && b.why.Class == reason.WaitingForQuota {
		return b.why
	}
	return forQuotaAlone
}

// barred tells the buckets that need not be tried although quota was released:
// quota.Bar knows that they would be refused as before, with nobody to be stopped
// for them. The others come to the same decisions as with them in between, if
// those that would have to borrow hold up the rest of their ClusterQueue as long
// as their own turn would (see heldUp).
// It is not asked where more than the quota tree decides: for those who stand in
// the line of a StrictFIFO queue, whose place changes what is kept from others,
// where a claim may be handed over, and while jobs may pass reservations.
func (l *Ledger) barred() func(*bucket) bool {
	claimed := map[string]bool{}
	for _, e := range l.claims {
		claimed[e.claim.assignment.ClusterQueue] = true
	}
	return func(b *bucket) bool {
		return len(l.reserved) == 0 && !b.head.strict && !claimed[b.head.queue] && b.bar.Holds()
	}
}

// passedOver are the buckets of a head that were not tried after a release, and
// would have been refused in their turn.
type passedOver struct {
	buckets []*bucket
	// release is the number of the release that they were not tried after, sorted
	// says that they are in queue order.
	release int64
	sorted  bool
}

// passOver notes that a bucket is not tried after the last release. One that would
// borrow from no level has nobody wait for its turn.
func (w *waitlist) passOver(b *bucket) {
	if !b.bar.MayBorrow() {
		return
	}
	o := &b.head.passed
	if o.release != w.releases {
		*o = passedOver{buckets: o.buckets[:0], release: w.releases}
	}
	o.buckets, o.sorted = append(o.buckets, b), false
}

// allTried says that all have had their turn, had they been due.
func (w *waitlist) allTried() {
	if len(w.turn.items) == 0 {
		w.tried = w.releases
	}
}

// heldUp is the last turn that buckets before a rank would have had at a head and
// have been passed over: how many levels they would borrow from, and their rank.
// It is found anew each time, because what others get in between can make them
// borrow from more levels.
func (w *waitlist) heldUp(h *head, before rank) (levels int, last rank) {
	for _, b := range h.passed.until(before, w.tried) {
		if b.cure.wait != forQuota || b.head != h {
			continue
		}
		if l := b.bar.Levels(); l >= levels {
			levels, last = l, b.rank
		}
	}
	return levels, last
}

// until are those that come before a rank; none if all were tried after the
// release with this number, or a later one.
func (o *passedOver) until(before rank, tried int64) []*bucket {
	if o.release <= tried {
		o.buckets = nil
	}
	if !o.sorted {
		slices.SortFunc(o.buckets, byBucketRank)
		o.sorted = true
	}
	n := slices.IndexFunc(o.buckets, func(b *bucket) bool { return b.rank.compare(before) > 0 })
	if n < 0 {
		n = len(o.buckets)
	}
	return o.buckets[:n]
}

// hadTurn forgets the buckets before a rank, whose turn would be over.
func (w *waitlist) hadTurn(h *head, before rank) {
	o := &h.passed
	o.buckets = o.buckets[len(o.until(before, w.tried)):]
}
