package scheduling

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/quota"
)

// stepsOut says that a job which is refused for a reason of this class keeps
// nobody in its StrictFIFO queue waiting: the reason is not what others have.
func stepsOut(class reason.Class) bool {
	switch class {
	case reason.NamespaceMismatch, reason.QueueInactive, reason.QueueNotFound, reason.Misconfigured, reason.ForeignScheduler:
		return true
	}
	return false
}

// withhold keeps from the other queues of a cohort what Kueue's rules let the
// head of a StrictFIFO queue keep that was refused: so that what it waits for is
// not borrowed again and again. a is what it would get, nil if that is not known.
func (l *Ledger) withhold(h *head, e *entry, a *quota.Assignment) {
	if !h.strict || e.reservation != nil {
		return
	}
	id := e.job.Owner.UID
	var keep quota.Usage
	if a != nil {
		keep = l.quota.Withheld(e.request(nil), a)
	}
	switch {
	case len(keep) > 0:
		borrows := a.Borrows > 0
		less := h.withheld != ""
		if h.withheld == id {
			less = borrows && !h.borrows
			for cell, v := range h.kept {
				less = less || keep[cell] < v
			}
		} else if less {
			l.quota.Unwithhold(h.withheld)
		}
		l.keep(id, h.queue, keep, borrows)
		h.withheld, h.kept, h.borrows = id, keep, borrows
		if less {
			l.released(l.quota.Root(h.queue))
		}
	case h.withheld != "":
		l.waits.loose[h] = struct{}{}
		l.loosen()
	}
}

// keep withholds quota for a job: from everybody, or, if it borrows, from those
// who do not stay within their nominal quota.
func (l *Ledger) keep(id types.UID, queue string, u quota.Usage, borrows bool) {
	if borrows {
		l.quota.WithholdFromBorrowers(id, queue, u)
	} else {
		l.quota.Withhold(id, queue, u)
	}
}

// loosen ends what is withheld without need.
func (l *Ledger) loosen() {
	w := &l.waits
	for h := range w.loose {
		delete(w.loose, h)
		root := l.quota.Root(h.queue)
		l.quota.Unwithhold(h.withheld)
		h.withheld, h.kept = "", nil
		l.released(root)
	}
}

// behindWhom is why a job waits that stands behind another in the line of its
// StrictFIFO queue.
func (b *bucket) behindWhom() *reason.Reason {
	return behindJob(b.head.front.jobs.items[0], b.head.queue)
}

func behindJob(first *entry, queue string) *reason.Reason {
	return reason.New(reason.PendingEvaluation, "behind job %s in ClusterQueue %s, which is StrictFIFO", first.job.Owner.NamespacedName, queue)
}

// behindClaim is why a job of a StrictFIFO queue waits whose head waits, in its
// turn, for others to leave; nil if it does not.
func (l *Ledger) behindClaim(b *bucket) *reason.Reason {
	if !b.head.strict {
		return nil
	}
	if first := l.claimOf(b.head.queue); first != nil && first.rank().compare(b.rank) < 0 {
		return behindJob(first, b.head.queue)
	}
	return nil
}
