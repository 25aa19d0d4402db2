package scheduling

import (
	"fmt"

	"github.com/muster-gpu/muster/quota"
)

// A job for which others are being stopped may be overtaken: one that comes before
// it in the order of their ClusterQueue, and that needs the quota or the room which
// these leave, takes the claim over. Otherwise the first would start, and be
// stopped at once for the second. Who was overtaken waits like any other. Nobody
// else is stopped for the second but whom it needs beside those who are leaving.

// overtaken is the job that has a claim in a ClusterQueue and comes after e in
// queue order, nil if there is none.
func (l *Ledger) overtaken(e *entry, queue string) *entry {
	if first := l.claimOf(queue); first != nil && e.before(first) < 0 {
		return first
	}
	return nil
}

// overtakes says that a job is due, and is tried soon, that comes before one with
// a claim in its ClusterQueue.
func (l *Ledger) overtakes(e *entry) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.claim == nil {
		return false
	}
	h := l.waits.heads[e.claim.assignment.ClusterQueue]
	return h != nil && len(h.due.items) > 0 && h.due.items[0].rank.compare(e.rank()) < 0
}

// liftClaim has the quota of a claim count for nobody, until the function that it
// returns is called; that changes nothing if the claim has ended meanwhile.
func (l *Ledger) liftClaim(over *entry) (back func()) {
	c, uid := over.claim, over.job.Owner.UID
	l.quota.Unclaim(uid)
	return func() {
		if over.claim == c {
			l.quota.Claim(uid, c.assignment.ClusterQueue, c.assignment.Usage)
		}
	}
}

// overtake has the search take the claim of another job for ended, and reports
// whether the job may have quota then.
func (s *search) overtake(over *entry) bool {
	l, e := s.ledger, s.e
	var a *quota.Assignment
	if had := s.option.assignment; had != nil && had.Flavors != nil {
		a, _ = l.assignIn(e, had)
	} else {
		a, _ = l.assign(e)
	}
	if a == nil {
		return false
	}
	s.assignment, s.classes = a, prototypes(e, a, l.quota)
	s.over, s.overClaim = over, over.claim
	s.leaving[over.job.Owner.UID] = over.claim.holds
	s.freed += over.gpus()
	s.stopped = true
	return true
}

// mayClaim says that no job has a claim in the ClusterQueue but the one that is
// overtaken.
func (s *search) mayClaim() bool {
	first := s.ledger.claimOf(s.assignment.ClusterQueue)
	if s.over == nil {
		return first == nil
	}
	return first == s.over && first.claim == s.overClaim && s.e.before(first) < 0
}

// handOver ends the claim of a job that is overtaken.
func (l *Ledger) handOver(over, to *entry) {
	l.effects.Note(over.job, noteClaimEnded, fmt.Sprintf("what jobs leave that were stopped for it is for %s %s now, which comes before it",
		to.job.Owner.Kind, to.job.Owner.NamespacedName))
	l.endClaim(over, "it was overtaken by "+to.job.Owner.NamespacedName.String())
}
