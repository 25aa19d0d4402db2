package scheduling

import (
	"strings"
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// TestTheSmallestJobInTheWayIsNamed: a job that has quota and no nodes names the
// smallest one that would make room, until that is gone or is not enough any more.
func TestTheSmallestJobInTheWayIsNamed(t *testing.T) {
	c := newContest(t, 8, 8)
	c.policy("main", "", 64, kueue.ClusterQueuePreemption{})
	c.runs(one("large", 8), 0)
	c.runs(one("small", 4), 0)
	waits := one("waits", 8)
	c.submit(waits, 0)
	c.pass()
	if got, want := c.why(waits).String(), "; it would fit if JobSet team-a/small (4 GPUs) left"; !strings.HasSuffix(got, want) {
		t.Errorf("it says %q, and is to end with %q", got, want)
	}
	c.runs(one("more", 2), 0)
	c.renew()
	c.pass()
	if got, want := c.why(waits).String(), "; it would fit if JobSet team-a/large (8 GPUs) left"; !strings.HasSuffix(got, want) {
		t.Errorf("it says %q, and is to end with %q", got, want)
	}
	both := job("both", set("node", 0, 2, 8))
	c.submit(both, 0)
	c.pass()
	if got := c.why(both).String(); strings.Contains(got, "would fit") {
		t.Errorf("it says %q, and no job alone is in its way", got)
	}
}

// The job in the way is told of the flavor that a job would rather have, once.
func TestTheJobInTheWayIsToldOfTheFirstFlavor(t *testing.T) {
	c := newChoice(t, [2]int64{64, 64}, []int64{8}, []int64{8})
	c.runs(one("in-a", 8), 0)
	c.runs(one("in-b", 8), 0)
	waits := one("waits", 8)
	c.submit(waits, 0)
	c.pass()
	got := c.why(waits).String()
	if n := strings.Count(got, "would fit"); n != 1 || !strings.Contains(got, "; it would fit if JobSet team-a/in-a (8 GPUs) left; flavor b: ") {
		t.Errorf("it tells of %d jobs in its way: %q", n, got)
	}
}
