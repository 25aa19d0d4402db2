package scheduling

import (
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
// for them. The others would come to the same decisions with them in between.
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
