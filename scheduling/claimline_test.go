package scheduling

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// strict makes a StrictFIFO queue whose jobs may stop others of it.
func (c *contest) strict(name string, gpus int64) {
	cq := clusterQueue(name, []string{"gpu"}, gpus)
	cq.Spec.QueueingStrategy, cq.Spec.Preemption = kueue.StrictFIFO, &lowerPriority
	c.set(cq, false)
	c.Restored()
}

func TestThoseBehindAJobThatWaitsForOthersToLeaveKeepTheLine(t *testing.T) {
	tests := map[string]struct {
		ends func(c *contest, head *workload.Job)
		want []string
	}{
		"it starts": {func(c *contest, _ *workload.Job) { c.leave() }, []string{"behind"}},
		"it is deleted": {func(c *contest, head *workload.Job) {
			c.ownerGone(head.Owner.UID)
			c.left(head.Owner.UID)
		}, []string{"behind"}},
		"those who are to leave do not": {func(c *contest, _ *workload.Job) {
			c.clock.Step(time.Hour)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.tendClaims(c.clock.Now())
		}, nil},
		"its queue becomes BestEffortFIFO":      {func(c *contest, _ *workload.Job) { c.policy("strict", "", 12, lowerPriority) }, []string{"behind"}},
		"nothing happens":                       {func(*contest, *workload.Job) {}, nil},
		"something of the queues is changed":    {func(c *contest, _ *workload.Job) { c.UpdateQuota(func(*quota.Tree) {}) }, nil},
		"another one comes that goes before it": {func(c *contest, _ *workload.Job) { c.submit(one("urgent", 4, in("strict")), 3) }, []string{"urgent"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := newContest(t, 8, 8, 8)
			c.strict("strict", 12)
			c.runs(one("low", 8, in("strict")), 0)
			head, behind := one("head", 8, in("strict")), one("behind", 4, in("strict"))
			c.submit(head, 2)
			c.submit(behind, 1)
			c.pass()
			c.wantState(head, Claimed)
			c.wantState(behind, Pending)
			if why := c.why(behind); why.Class != reason.PendingEvaluation || why.Message != "behind job team-a/head in ClusterQueue strict, which is StrictFIFO" {
				t.Errorf("it says %s: %s", why.Class, why)
			}
			tc.ends(c, head)
			var got []string
			for _, name := range c.pass() {
				if name != "head" {
					got = append(got, name)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("admitted (-want +got):\n%s\n%v", diff, c.why(behind))
			}
			if errs := c.waitlistErrors(); len(errs) > 0 {
				t.Errorf("the waitlist: %q", errs)
			}
		})
	}
}
