package scheduling

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

func weighs(weight string) func(*kueue.ClusterQueueSpec) {
	q := resource.MustParse(weight)
	return func(s *kueue.ClusterQueueSpec) { s.FairSharing = &kueue.FairSharing{Weight: &q} }
}

func TestHeadsTakeTurnsByTheirShares(t *testing.T) {
	tests := map[string]struct {
		queues []*kueue.ClusterQueue
		jobs   []turn
		// unfair turns fair sharing off.
		unfair bool
		want   []string
	}{
		"whoever borrows less goes first, whatever its priority": {
			queues: []*kueue.ClusterQueue{inCohort("alpha", "all", 0, -1), inCohort("beta", "all", 0, -1), inCohort("lender", "all", 8, -1)},
			jobs:   []turn{{asksFor("a", "alpha", 6), 9}, {asksFor("b", "beta", 4), 0}},
			want:   []string{"b"},
		},
		"without fair sharing it is the one of higher priority": {
			queues: []*kueue.ClusterQueue{inCohort("alpha", "all", 0, -1), inCohort("beta", "all", 0, -1), inCohort("lender", "all", 8, -1)},
			jobs:   []turn{{asksFor("a", "alpha", 6), 9}, {asksFor("b", "beta", 4), 0}},
			unfair: true,
			want:   []string{"a"},
		},
		"queues of equal weight take from a cohort in turns": {
			queues: []*kueue.ClusterQueue{inCohort("alpha", "all", 0, -1), inCohort("beta", "all", 0, -1), inCohort("lender", "all", 4, -1)},
			jobs:   []turn{{asksFor("a1", "alpha", 1), 9}, {asksFor("a2", "alpha", 1), 9}, {asksFor("a3", "alpha", 1), 9}, {asksFor("b1", "beta", 1), 0}, {asksFor("b2", "beta", 1), 0}},
			want:   []string{"a1", "b1", "a2", "b2"},
		},
		"of twice the weight, twice as much": {
			queues: []*kueue.ClusterQueue{inCohort("alpha", "all", 0, -1, weighs("1")), inCohort("beta", "all", 0, -1, weighs("2")), inCohort("lender", "all", 6, -1)},
			jobs: []turn{
				{asksFor("a1", "alpha", 1), 9}, {asksFor("a2", "alpha", 1), 9}, {asksFor("a3", "alpha", 1), 9},
				{asksFor("b1", "beta", 1), 0}, {asksFor("b2", "beta", 1), 0}, {asksFor("b3", "beta", 1), 0}, {asksFor("b4", "beta", 1), 0},
			},
			want: []string{"b1", "a1", "b2", "b3", "a2", "b4"},
		},
		"weight zero comes last": {
			queues: []*kueue.ClusterQueue{inCohort("alpha", "all", 0, -1, weighs("0")), inCohort("beta", "all", 0, -1), inCohort("lender", "all", 8, -1)},
			jobs:   []turn{{asksFor("a", "alpha", 1), 9}, {asksFor("b", "beta", 8), 0}},
			want:   []string{"b"},
		},
		"one that asks for more than is left keeps nobody waiting": {
			queues: []*kueue.ClusterQueue{inCohort("alpha", "all", 0, -1), inCohort("beta", "all", 0, -1), inCohort("lender", "all", 8, -1)},
			jobs:   []turn{{asksFor("a", "alpha", 9), 0}, {asksFor("b", "beta", 8), 0}},
			want:   []string{"b"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStage(t.Context(), t)
			if !tc.unfair {
				s.shareFairly(nil)
			}
			for i := range 4 {
				s.watched.AddNode(s.logger, flavored(fmt.Sprintf("node-%d", i), "gpu", 8))
			}
			for _, q := range tc.queues {
				s.set(q, false)
			}
			for _, j := range tc.jobs {
				s.submit(j.Job, j.priority)
			}
			s.Restored()
			if diff := cmp.Diff(tc.want, s.pass()); diff != "" {
				t.Errorf("admitted (-want +got):\n%s", diff)
			}
			if errs := s.waitlistErrors(); len(errs) > 0 {
				t.Errorf("the waitlist: %q", errs)
			}
		})
	}
}

// Of two queues that fill a cohort, the one that comes later has as many jobs of
// the other one stopped as its weight gives it, and then nobody is stopped any
// more.
func TestSharesConvergeAndStay(t *testing.T) {
	for _, strategies := range [][]quota.FairStrategy{nil, {quota.LessThanOrEqualToFinalShare}, {quota.LessThanInitialShare}} {
		t.Run(fmt.Sprint(strategies), func(t *testing.T) {
			c := newContest(t, 8, 4)
			c.shareFairly(strategies)
			for name, weight := range map[string]string{"one": "1", "two": "2"} {
				cq := inCohort(name, "all", 0, -1, weighs(weight), reclaims(kueue.PreemptionPolicyAny))
				c.set(cq, false)
			}
			c.set(inCohort("lender", "all", 12, -1), false)
			c.Restored()
			for i := range 12 {
				c.runs(one(fmt.Sprintf("one-%02d", i), 1, in("one")), 0)
			}
			for i := range 12 {
				c.submit(one(fmt.Sprintf("two-%02d", i), 1, in("two")), 0)
			}
			stopped := 0
			for range 40 {
				c.pass()
				stopped += len(c.leaving())
				c.leave()
				c.pass()
				c.writeAll()
				c.clock.Step(2 * time.Second)
				c.expire(time.Hour)
			}
			if got := c.holding("one"); got != 4 {
				t.Errorf("the queue of weight 1 has %d, want 4", got)
			}
			if got := c.holding("two"); got != 8 {
				t.Errorf("the queue of weight 2 has %d, want 8", got)
			}
			if stopped != 8 {
				t.Errorf("%d are stopped, want 8", stopped)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if one, two := c.shareOf(c.quota.Share, "one"), c.shareOf(c.quota.Share, "two"); one.WeightedShare != 334 || two.WeightedShare != 334 {
				t.Errorf("the shares are %d and %d, want 4/12 and 8/12/2 in thousandths", one.WeightedShare, two.WeightedShare)
			}
		})
	}
}

// holding is how many jobs of a queue hold capacity.
func (c *contest) holding(queue string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := range c.waits.charged {
		if e.job.Queue == queue {
			n++
		}
	}
	return n
}

// writeAll has all admissions written.
func (c *contest) writeAll() {
	c.mu.Lock()
	var admitting []*workload.Job
	for _, e := range c.jobs {
		if e.state == Admitting {
			admitting = append(admitting, e.job)
		}
	}
	c.mu.Unlock()
	for _, j := range admitting {
		c.write(j, 0)
	}
}

// Somebody of another queue may go only if a job of the own queue goes too, which
// quota alone would not ask for.
func TestWhoMakesAnothersLeavingFairIsNotLetOff(t *testing.T) {
	c := newContest(t, 8)
	c.shareFairly([]quota.FairStrategy{quota.LessThanOrEqualToFinalShare})
	for _, name := range []string{"alpha", "beta"} {
		c.set(inCohort(name, "all", 0, -1, func(s *kueue.ClusterQueueSpec) {
			s.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority, ReclaimWithinCohort: kueue.PreemptionPolicyAny}
		}), false)
	}
	c.set(inCohort("lender", "all", 8, -1), false)
	c.Restored()
	c.runs(one("own", 2, in("alpha")), -1)
	c.runs(one("b1", 3, in("beta")), 0)
	c.runs(one("b2", 3, in("beta")), 0)
	j := one("incoming", 3, in("alpha"))
	c.submit(j, 0)
	c.pass()
	c.wantLeaving("b2", "own")
	c.wantState(j, Claimed)
	c.leave()
	c.pass()
	c.wantState(j, Admitting)
}

// Who reclaims what is its own takes it from those with the largest share, whose
// share is smaller then.
func TestWithFairSharingReclaimIsSharedToo(t *testing.T) {
	c := newContest(t, 8)
	c.shareFairly(nil)
	for _, name := range []string{"alpha", "beta"} {
		c.set(inCohort(name, "all", 0, -1), false)
	}
	c.set(inCohort("owner", "all", 8, -1, reclaims(kueue.PreemptionPolicyAny)), false)
	c.Restored()
	for i := range 4 {
		c.runs(one(fmt.Sprintf("a%d", i), 1, in("alpha")), 0)
	}
	for i := range 4 {
		c.runs(one(fmt.Sprintf("b%d", i), 1, in("beta")), 0)
	}
	j := job("incoming", set("node", 0, 4, 1))
	j.Queue = "owner"
	c.submit(j, 0)
	c.pass()
	c.wantLeaving("a2", "a3", "b2", "b3")
}
