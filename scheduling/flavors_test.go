package scheduling

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// newChoice is a contest in a queue, main, of two flavors with the quota given, whose
// nodes have as many GPUs as is said, in the order of their flavors.
func newChoice(t *testing.T, quotas [2]int64, a, b []int64, change ...func(*kueue.ClusterQueueSpec)) *contest {
	t.Helper()
	c := newContest(t)
	for flavor, nodes := range map[string][]int64{"a": a, "b": b} {
		for i, gpus := range nodes {
			c.watched.AddNode(c.logger, flavored(fmt.Sprintf("%s-%d", flavor, i), flavor, gpus))
		}
	}
	cq := clusterQueue("main", []string{"a", "b"}, quotas[0], quotas[1])
	for _, f := range change {
		f(&cq.Spec)
	}
	c.set(cq, false)
	c.Restored()
	return c
}

func preempts(s *kueue.ClusterQueueSpec) {
	s.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
}

// flavorsOf are the flavors of the GPUs of each pod set.
func (c *contest) flavorsOf(j *workload.Job) []string {
	var out []string
	if a := c.entry(j).assignment; a != nil {
		for _, f := range a.Flavors {
			out = append(out, f[gpuResource])
		}
	}
	return out
}

func TestAClaimKeepsTheFlavorOfEachPodSet(t *testing.T) {
	c := newChoice(t, [2]int64{8, 8}, []int64{8}, []int64{4, 4}, preempts)
	c.runs(one("low", 8), 0)
	high := job("high", set("small", 0, 8, 1), set("large", 0, 1, 8))
	c.submit(high, 1)
	c.pass()
	c.wantLeaving("low")
	// Now the first flavor is free to the first pod set as well.
	c.leave()
	c.pass()
	if diff := cmp.Diff([]string{"b", "a"}, c.flavorsOf(high)); diff != "" {
		t.Errorf("flavors (-want +got):\n%s\n%v", diff, c.why(high))
	}
}

func TestAnElasticJobGrowsInTheFlavorThatItRunsIn(t *testing.T) {
	c := newChoice(t, [2]int64{8, 8}, []int64{8}, []int64{8})
	first := one("first", 8)
	c.runs(first, 0)
	grows := elastic("grows", 2, 1)
	c.runs(grows, 0)
	c.read(running(grows), c.entry(grows).workload, nil)
	c.ownerGone(first.Owner.UID)
	c.left(first.Owner.UID)
	c.read(running(asks(grows, 4)), c.entry(grows).workload, nil)
	c.pass()
	if diff := cmp.Diff([]string{"b-0", "b-0", "b-0", "b-0"}, slotNodes(c.entry(grows))); diff != "" {
		t.Errorf("nodes (-want +got):\n%s\n%v", diff, c.entry(grows).growth.refused)
	}
}

// slotNodes are the nodes of a job's slots.
func slotNodes(e *entry) []string {
	var out []string
	for _, set := range e.sets {
		for _, s := range set.slots {
			out = append(out, s.node)
		}
	}
	return out
}
