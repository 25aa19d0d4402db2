package scheduling

import (
	"fmt"
	"strings"
	"testing"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

func TestASearchInVainSaysWhatIsTrue(t *testing.T) {
	low := func(c *contest, n int, gpus int64, queue string) {
		for i := range n {
			c.runs(one(fmt.Sprintf("low-%d", i), gpus, in(queue)), 0)
		}
	}
	tests := map[string]struct {
		nodes []int64
		stage func(c *contest)
		job   *workload.Job
		want  string
	}{
		"quota would be too little": {[]int64{8}, func(c *contest) {
			c.policy("main", "", 8, lowerPriority)
			low(c, 1, 2, "main")
			c.runs(one("equal", 6), 1)
		}, one("j", 8), "stopping the only job that it may preempt would not give it the quota"},
		"nodes would not do": {[]int64{8}, func(c *contest) {
			c.policy("main", "", 8, lowerPriority)
			low(c, 2, 4, "main")
		}, one("j", 8, needsZone), "with all 2 jobs stopped that it may preempt there would be no place for it (no node passes: 1 node(s) didn't match Pod's node affinity/selector)"},
		"others are protected": {[]int64{8}, func(c *contest) {
			c.policy("main", "", 8, lowerPriority)
			low(c, 2, 2, "main")
			c.runs(one("protected", 4, func(j *workload.Job) { j.Hints.MinRuntime = new(time.Hour) }), 0)
		}, one("j", 8), "stopping all 2 jobs that it may preempt would not give it the quota, and others are protected until " + epoch0.Add(time.Hour+2*time.Second).Format(time.RFC3339) + " at least"},
		"their ClusterQueue would come below its quota": {[]int64{8, 8}, func(c *contest) {
			c.set(inCohort("main", "all", 8, -1, reclaims(kueue.PreemptionPolicyAny)), false)
			c.set(inCohort("lender", "all", 8, -1), false)
			c.Restored()
			c.takes("node-1", 4)
			low(c, 3, 4, "lender")
		}, one("j", 8), "the policies of its ClusterQueue do not let it preempt all 3 jobs at once, and no set of them was found that is enough"},
		"its share would be the larger one": {[]int64{8}, func(c *contest) {
			c.UpdateQuota(func(t *quota.Tree) { t.SetFairSharing(true) })
			c.set(inCohort("main", "all", 0, -1, reclaims(kueue.PreemptionPolicyAny)), false)
			c.set(inCohort("other", "all", 0, -1, reclaims(kueue.PreemptionPolicyAny)), false)
			c.set(inCohort("lender", "all", 8, -1), false)
			c.Restored()
			c.runs(one("first", 4), 0)
			low(c, 4, 1, "other")
		}, one("j", 1), "fair sharing does not let it preempt any of the 4 jobs that it might now"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := newContest(t, tc.nodes...)
			tc.stage(c)
			c.submit(tc.job, 1)
			c.pass()
			if got := c.why(tc.job).String(); !strings.HasSuffix(got, "; "+tc.want) {
				t.Errorf("it says %q, and is to end with %q", got, tc.want)
			}
		})
	}
}
