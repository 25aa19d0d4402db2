package scheduling

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// Whoever is stopped for a job that reclaims its nominal quota, and comes back as
// the head of its StrictFIFO queue, would borrow: it keeps nothing from that job.
func TestAVictimThatComesBackAsHeadDoesNotStopItsPreemptor(t *testing.T) {
	c := newContest(t, 12)
	c.set(inCohort("strict", "all", 4, -1, strictFIFO), false)
	c.set(inCohort("owner", "all", 8, -1, reclaims(kueue.PreemptionPolicyAny)), false)
	c.Restored()
	first, second, owner := one("first", 4, in("strict")), one("second", 4, in("strict")), one("owner", 8, in("owner"))
	c.runs(one("stays", 4, in("strict")), 10)
	c.runs(first, 9)
	c.runs(second, 9)
	c.submit(owner, 0)
	c.pass()
	c.wantLeaving("first", "second")
	for _, victim := range []*workload.Job{first, second} {
		c.leaves(victim)
		c.wantState(victim, Pending)
		for range 3 {
			c.pass()
			c.clock.Step(2 * time.Second)
			c.tick(Timing{StartTimeout: time.Hour})
		}
	}
	c.wantState(owner, Admitting)
	c.wantState(first, Pending)
	c.wantState(second, Pending)
}

func TestWhatAHeadThatBorrowsKeepsIsKeptFromThoseWhoBorrow(t *testing.T) {
	for queue, want := range map[string][]string{"owner": {"another"}, "neighbour": nil} {
		t.Run(queue, func(t *testing.T) {
			s := newStage(t.Context(), t)
			for _, name := range []string{"node-0", "node-1"} {
				s.watched.AddNode(s.logger, flavored(name, "gpu", 8))
			}
			s.set(inCohort("strict", "all", 4, -1, strictFIFO, reclaims(kueue.PreemptionPolicyNever)), false)
			s.set(inCohort("owner", "all", 8, -1), false)
			s.set(inCohort("neighbour", "all", 0, -1), false)
			s.Restored()
			s.submit(asksFor("runs", "strict", 10), 9)
			s.submit(asksFor("head", "strict", 4), 8)
			s.pass()
			s.submit(asksFor("another", queue, 2), 0)
			if diff := cmp.Diff(want, s.pass()); diff != "" {
				t.Errorf("admitted (-want +got):\n%s", diff)
			}
			if errs := s.waitlistErrors(); len(errs) > 0 {
				t.Errorf("the waitlist: %q", errs)
			}
		})
	}
}
