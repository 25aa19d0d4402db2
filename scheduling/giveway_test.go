package scheduling

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-gpu/muster/workload"
)

// refusedStage has a job that no node takes for its affinity, refused once, and
// nodes that lack nothing else.
func refusedStage(t *testing.T) *stage {
	t.Helper()
	s := newStage(t.Context(), t)
	s.queue("q", false, []string{"gpu"}, 100)
	s.Restored()
	for i := range 3 {
		s.watched.AddNode(s.logger, flavored(fmt.Sprintf("node-%d", i), "gpu", 8))
	}
	picky := job("picky", set("node", 0, 1, 1))
	picky.Queue = "q"
	picky.PodSets[0].Template.Spec.Affinity = needsLabel("infiniband")
	s.submit(picky, 0)
	if got := s.pass(); len(got) > 0 {
		t.Fatalf("%v was admitted", got)
	}
	return s
}

func TestJobThatIsTriedOnTheOffChanceGivesWayToPods(t *testing.T) {
	s := refusedStage(t)
	right := flavored("node-3", "gpu", 8)
	right.Labels["infiniband"] = "yes"
	s.watched.AddNode(s.logger, right)
	s.cycle.podWaits.Store(true)
	if !s.cycle.Pass(s.ctx) {
		t.Fatal("nothing is left to do, and the job was not tried")
	}
	if len(s.wishes.order) > 0 {
		t.Fatal("the job was tried while a pod waited")
	}
	s.cycle.podWaits.Store(false)
	if diff := cmp.Diff([]string{"picky"}, s.pass()); diff != "" {
		t.Errorf("once no pod waits (-want +got):\n%s", diff)
	}
}

func TestPodsDoNotKeepAJobFromBeingTriedForLong(t *testing.T) {
	s := refusedStage(t)
	right := flavored("node-3", "gpu", 8)
	right.Labels["infiniband"] = "yes"
	s.watched.AddNode(s.logger, right)
	s.cycle.podWaits.Store(true)
	s.cycle.Pass(s.ctx)
	s.clock.Step(patience)
	s.cycle.Pass(s.ctx)
	if len(s.wishes.order) != 1 {
		t.Errorf("after %s of pods %d jobs are admitted", patience, len(s.wishes.order))
	}
}

func TestPlanOnTheOffChanceStopsForAPodAndIsMadeAgain(t *testing.T) {
	s := refusedStage(t)
	right := flavored("node-3", "gpu", 8)
	right.Labels["infiniband"] = "yes"
	s.watched.AddNode(s.logger, right)
	p := &pass{Cycle: s.cycle, ctx: s.ctx, start: s.clock.Now()}
	s.mu.Lock()
	b := s.next()
	if b == nil || !b.cure.blind {
		t.Fatal("the job is not due on the off chance")
	}
	s.cycle.podWaits.Store(true)
	if err := p.try(b); err != nil {
		t.Fatal(err)
	}
	if len(s.wishes.order) > 0 || b.cure.wait != aside {
		t.Fatalf("the plan went on although a pod waited: it waits for %v", b.cure.wait)
	}
	p.putBack()
	if !b.cure.blind {
		t.Error("the next try would not give way to pods")
	}
	s.cycle.podWaits.Store(false)
	if diff := cmp.Diff([]string{"picky"}, s.pass()); diff != "" {
		t.Errorf("once no pod waits (-want +got):\n%s", diff)
	}
}

func TestJobForWhichThereIsEnoughNowGoesBeforeOnePod(t *testing.T) {
	s := newStage(t.Context(), t)
	s.queue("q", false, []string{"gpu"}, 100)
	s.Restored()
	s.watched.AddNode(s.logger, flavored("node-0", "gpu", 8))
	big := job("big", set("node", 0, 2, 8))
	big.Queue = "q"
	s.submit(big, 0)
	if got := s.pass(); len(got) > 0 {
		t.Fatalf("%v was admitted", got)
	}
	s.watched.AddNode(s.logger, flavored("node-1", "gpu", 8))
	s.cycle.podWaits.Store(true)
	s.cycle.Pass(s.ctx)
	if len(s.wishes.order) != 1 {
		t.Error("it gave way to a pod, which may take its GPUs")
	}
}

func TestAJobBeforeWhichOthersHaveComeLeavesTheTurnToThem(t *testing.T) {
	for name, gpus := range map[string]int64{"one like it": 8, "another one": 4} {
		t.Run(name, func(t *testing.T) { leavesTheTurn(t, one("before", gpus)) })
	}
}

func leavesTheTurn(t *testing.T, before *workload.Job) {
	t.Helper()
	c := newContest(t)
	for name, gpus := range map[string][]int64{"main": {8, 0}, "side": {8, 0}, "lender": {0, 8}} {
		cq := clusterQueue(name, []string{"a", "b"}, gpus...)
		cq.Spec.CohortName = "all"
		c.set(cq, false)
	}
	c.Restored()
	first, other := one("first", 8), one("other", 8)
	other.Queue = "side"
	c.submit(first, 0)
	p := &pass{Cycle: c.cycle, ctx: c.ctx, start: c.clock.Now()}
	c.mu.Lock()
	e := c.jobs[first.Owner.UID]
	a, _, _ := c.look(e)
	try := &attempt{b: c.next(), e: e, job: e.job, version: e.version, detours: c.detours(e, e.job, "main")}
	c.mu.Unlock()
	// While it is planned in a, others come. In b it would borrow.
	c.submit(other, 1)
	c.submit(before, 2)
	if _, done := p.detour(try, &option{assignment: a}); !done {
		t.Error("it goes on")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if got := c.next().jobs.items[0].job.Owner.Name; got != "before" {
		t.Errorf("next is %s", got)
	}
}
