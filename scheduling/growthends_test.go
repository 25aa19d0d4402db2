package scheduling

import (
	"testing"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// A job that asks for more pods may come to be one that cannot grow, or that
// cannot be read.
func TestAJobThatGrowsMayBecomeOneThatDoesNot(t *testing.T) {
	for name, test := range map[string]struct {
		becomes func(*workload.Job)
		no      *reason.Reason
	}{
		"it is not elastic any more": {becomes: func(j *workload.Job) { j.Elastic = false }},
		"its pods cannot be read": {
			becomes: func(j *workload.Job) { j.PodSets = nil },
			no:      reason.New(reason.Misconfigured, "its annotation is spoiled"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newContest(t, 8, 8)
			c.set(inCohort("cq", "all", 4, 0), false)
			c.Restored()
			grows := with(elastic("grows", 2, 2), func(j *workload.Job) { j.Queue = "cq" })
			c.runs(grows, 0)
			c.read(running(grows), c.entry(grows).workload, nil)
			c.read(running(asks(grows, 4)), c.entry(grows).workload, nil)
			c.pass()
			if n := len(c.entry(grows).sets[0].slots); n != 2 || len(c.growing) != 1 {
				t.Fatalf("it has %d pods, and %d jobs grow", n, len(c.growing))
			}
			c.read(running(with(grows, test.becomes)), c.entry(grows).workload, test.no)
			c.UpdateQuota(func(*quota.Tree) {})
			c.pass()
			if len(c.growing) != 0 || c.state(grows) != Admitted {
				t.Errorf("it is %s, and %d jobs grow", c.state(grows), len(c.growing))
			}
		})
	}
}
