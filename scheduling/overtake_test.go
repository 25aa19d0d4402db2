package scheduling

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// settled lets all be done that can be done without anybody leaving.
func (c *contest) settled() {
	for range 5 {
		c.pass()
		c.clock.Step(2 * time.Second)
		c.expire(time.Hour)
	}
	c.pass()
	if errs := c.waitlistErrors(); len(errs) > 0 {
		c.t.Errorf("the waitlist: %s", strings.Join(errs, "; "))
	}
}

func TestAJobThatComesFirstOvertakesOneThatWaitsForOthersToLeave(t *testing.T) {
	tests := map[string]struct {
		quota, lent int64
		policy      kueue.ClusterQueuePreemption
		// low runs, and leaves for claimant; other runs too, on another node.
		low, other string
		comes      *workload.Job
		priority   int32
		// claims is who has the claim then, stopped who leaves.
		claims  string
		stopped []string
	}{
		"it needs the quota that they leave":            {16, 0, lowerPriority, "main", "main", one("comes", 8), 20, "comes", []string{"low"}},
		"it needs the room that they leave":             {100, 0, lowerPriority, "main", "main", one("comes", 8), 20, "comes", []string{"low"}},
		"it needs only a part of what they leave":       {16, 0, lowerPriority, "main", "main", one("comes", 4), 20, "comes", []string{"low"}},
		"it needs more, and may have more jobs stopped": {16, 0, lowerPriority, "main", "main", job("comes", set("node", 0, 2, 8)), 20, "comes", []string{"low", "other"}},
		"it could not start even so":                    {24, 0, lowerPriority, "main", "main", job("comes", set("node", 0, 3, 8)), 20, "claimant", []string{"low"}},
		"it may stop nobody of its queue, and takes what others leave": {
			8, 8, kueue.ClusterQueuePreemption{ReclaimWithinCohort: kueue.PreemptionPolicyAny}, "lent", "lent", one("comes", 8), 20, "comes", []string{"low"},
		},
		"it comes after the other one": {16, 0, lowerPriority, "main", "main", one("comes", 8), 5, "claimant", []string{"low"}},
		"it is of the same priority and younger": {16, 0, lowerPriority, "main", "main", one("comes", 8, func(j *workload.Job) {
			j.Created = epoch0.Add(time.Hour)
		}), 10, "claimant", []string{"low"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := newContest(t, 8, 8)
			c.policy("main", "all", tc.quota, tc.policy)
			c.policy("lent", "all", tc.lent, kueue.ClusterQueuePreemption{})
			c.runs(one("other", 8, in(tc.other)), 9)
			c.runs(one("low", 8, in(tc.low)), 0)
			claimant := one("claimant", 8)
			c.submit(claimant, 10)
			c.pass()
			c.wantState(claimant, Claimed)
			c.wantLeaving("low")

			c.submit(tc.comes, tc.priority)
			c.settled()
			c.wantLeaving(tc.stopped...)
			first, second := claimant, tc.comes
			if tc.claims == "comes" {
				first, second = tc.comes, claimant
			}
			c.wantState(first, Claimed)
			c.wantState(second, Pending)
			told := strings.Join(c.wishes.notes["claimant"], "; ")
			if got := strings.Contains(told, "ClaimEnded: what jobs leave that were stopped for it is for JobSet team-a/comes now, which comes before it"); got != (first != claimant) {
				t.Errorf("the claimant was told %q", told)
			}

			c.leave()
			if diff := cmp.Diff(first.Owner.Name, strings.Join(c.pass(), " ")); diff != "" {
				t.Fatalf("admitted, once they have left (-want +got):\n%s", diff)
			}
			c.write(first, c.entry(first).priority)
			c.settled()
			c.wantState(first, Admitted)
		})
	}
}

// Both come to be looked at in the same pass.
func TestWhoComesWhenTheLastHasLeftGoesBeforeTheOneForWhomTheyLeft(t *testing.T) {
	c := newContest(t, 8)
	c.policy("main", "", 8, lowerPriority)
	c.runs(one("low", 8), 0)
	high, highest := one("high", 8), one("highest", 8)
	c.submit(high, 1)
	c.pass()
	c.wantState(high, Claimed)
	c.leave()
	c.submit(highest, 2)
	if diff := cmp.Diff([]string{"highest"}, c.pass()); diff != "" {
		t.Errorf("admitted (-want +got):\n%s", diff)
	}
	c.wantState(high, Pending)
	c.wantNoPhantoms()
}

func TestWhoWasOvertakenGetsTheClaimBackWithNobodyElseStopped(t *testing.T) {
	c := newContest(t, 8, 8)
	c.policy("main", "", 16, lowerPriority)
	c.runs(one("other", 8), 0)
	c.runs(one("low", 8), 0)
	high, highest := one("high", 8), one("highest", 8)
	c.submit(high, 1)
	c.pass()
	stopped := c.leaving()
	c.submit(highest, 2)
	c.pass()
	c.wantState(highest, Claimed)
	c.ownerGone(highest.Owner.UID)
	c.settled()
	c.wantState(high, Claimed)
	c.wantLeaving(stopped...)
}

// What cannot be claimed, whatever the reason, is not tried pass after pass.
func TestVictimsThatCannotBeStoppedAreNotLookedForAllTheTime(t *testing.T) {
	c := newContest(t, 8)
	c.policy("main", "", 8, lowerPriority)
	c.runs(one("low", 8), 0)
	high := one("high", 8)
	c.submit(high, 1)
	e := c.entry(high)
	c.mu.Lock()
	a, _ := c.assign(e)
	// Its phantom is there already, although there is no claim.
	hold := claimHolds(prototypes(e, a, c.quota), [][]string{{"elsewhere"}})[0]
	c.mu.Unlock()
	if err := c.plain.AssumePod(c.logger, hold); err != nil {
		t.Fatal(err)
	}
	c.pass()
	c.wantState(high, Pending)
	c.wantLeaving()
	if err := c.plain.ForgetPod(c.logger, hold); err != nil {
		t.Fatal(err)
	}
	c.clock.Step(time.Second)
	c.expire(time.Hour)
	c.pass()
	c.wantState(high, Claimed)
	c.wantLeaving("low")
}
