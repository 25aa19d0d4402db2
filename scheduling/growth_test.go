package scheduling

import (
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

func TestAnElasticJobDoesNotGrowOntoReservedNodes(t *testing.T) {
	s := newStarving(t)
	grows := elastic("grows", 1, 4)
	s.runs(t, grows, 0)
	s.read(running(grows), s.entry(grows).workload, nil)
	s.ask(s.big, 0, 0)
	s.pass()
	if s.reserved["main"] == nil || s.reserved["main"].nodes[0] != "node-1" {
		t.Fatalf("reserved: %v", s.reserved["main"])
	}
	// There is room for what grows, and not yet for big.
	if err := s.watched.AddPod(s.logger, plainPod("foreign", "node-1", 1)); err != nil {
		t.Fatal(err)
	}
	s.ends(s.short)
	s.read(running(asks(grows, 2)), s.entry(grows).workload, nil)
	s.pass()
	if n := len(s.entry(grows).sets[0].slots); n != 1 {
		t.Errorf("it has grown onto %v; %v", s.entry(grows).nodes(), s.reserved["main"])
	}
	s.ends(s.big)
	s.pass()
	if n := len(s.entry(grows).sets[0].slots); n != 2 {
		t.Errorf("it has not grown where nothing is reserved any more: %v", s.entry(grows).growth.refused)
	}
}

func TestAnElasticJobDoesNotPassTheHeadOfItsStrictFIFOQueue(t *testing.T) {
	for _, reclaim := range []kueue.PreemptionPolicy{kueue.PreemptionPolicyNever, kueue.PreemptionPolicyAny} {
		t.Run(string(reclaim), func(t *testing.T) {
			c := newContest(t, 8, 8)
			c.set(inCohort("strict", "all", 8, 0, strictFIFO, reclaims(reclaim)), false)
			c.Restored()
			grows := with(elastic("grows", 2, 2), func(j *workload.Job) { j.Queue = "strict" })
			c.runs(grows, 0)
			c.read(running(grows), c.entry(grows).workload, nil)
			head := one("head", 8, in("strict"))
			c.submit(head, 0)
			c.pass()
			c.read(running(asks(grows, 4)), c.entry(grows).workload, nil)
			c.pass()
			if n := len(c.entry(grows).sets[0].slots); n != 2 {
				t.Errorf("it has grown to %d pods", n)
			}
			c.wishes.admits = 0
			c.ownerGone(head.Owner.UID)
			c.left(head.Owner.UID)
			if c.wishes.admits == 0 {
				t.Error("no pass is asked for when the head has gone")
			}
			c.pass()
			if n := len(c.entry(grows).sets[0].slots); n != 4 {
				t.Errorf("it has %d pods after the head is gone: %v", n, c.entry(grows).growth.refused)
			}
		})
	}
}

// What grows takes quota of a flavor, and a job that found no nodes of that flavor
// gets another one.
func TestAJobWithAChoiceOfFlavorsStartsWhenWhatHasGrownLeavesItAnother(t *testing.T) {
	c := newContest(t)
	for name, gpus := range map[string]int64{"old-a": 4, "old-b": 2, "old-c": 2} {
		c.watched.AddNode(c.logger, flavored(name, "old", gpus))
	}
	c.watched.AddNode(c.logger, flavored("new-a", "new", 8))
	c.queue("q", false, []string{"old", "new"}, 8, 8)
	c.Restored()
	grows := with(elastic("grows", 4, 1), func(j *workload.Job) { j.Queue = "q" })
	c.runs(grows, 0)
	c.read(running(grows), c.entry(grows).workload, nil)
	waits := one("waits", 4, in("q"))
	c.submit(waits, 0)
	c.pass()
	c.read(running(asks(grows, 6)), c.entry(grows).workload, nil)
	c.pass()
	if n := len(c.entry(grows).sets[0].slots); n != 6 {
		t.Fatalf("it has %d pods", n)
	}
	if got := c.entry(waits).nodes(); len(got) != 1 || got[0] != "new-a" {
		t.Errorf("it is on %v: %v", got, c.why(waits))
	}
}
