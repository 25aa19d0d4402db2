package scheduling

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/inquiry"
	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/workload"
)

// imagined is a job that is not created, in queue q.
func imagined(j *workload.Job, priority int32) *entry {
	j.Queue = "q"
	e := newEntry(j)
	e.priority = priority
	return e
}

// simulated asks what would become of a job, and checks that nothing came of asking.
func simulated(t *testing.T, s *stage, e *entry) *inquiry.Simulation {
	t.Helper()
	before := s.seenFromOutside(t)
	out, err := s.cycle.simulate(s.ctx, e)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, s.seenFromOutside(t)); diff != "" {
		t.Errorf("asking has changed something (-before +after):\n%s", diff)
	}
	return out
}

// seenFromOutside is what a question must not change.
func (s *stage) seenFromOutside(t *testing.T) map[string]any {
	t.Helper()
	pods := map[string][]string{}
	dump := s.plain.Dump()
	for name, n := range dump.Nodes {
		for _, p := range n.Pods {
			pods[name] = append(pods[name], string(p.GetPod().UID))
		}
	}
	states := map[string]string{}
	for uid, e := range s.jobs {
		states[string(uid)] = string(e.state)
	}
	w := s.wishes
	return map[string]any{
		"pods": pods, "assumed": len(dump.AssumedPods), "jobs": states, "used": s.quota.Used("q"), "buckets": len(s.waits.buckets), "lines": len(s.waits.lines),
		"heads": len(s.waits.heads), "searches": len(s.waits.searches), "claims": len(s.claims), "wrote": len(w.order), "notes": len(w.notes),
	}
}

func TestASimulatedJobGoesWhereItWouldGoIfItWereCreated(t *testing.T) {
	s := newStage(t.Context(), t)
	for _, name := range []string{"node-a", "node-b", "node-c"} {
		s.watched.AddNode(s.logger, flavored(name, "gpu", 8))
	}
	s.queue("q", false, []string{"gpu"}, 24)
	s.Restored()
	s.submit(withQueue(job("first", set("node", 0, 1, 4))), 0)
	s.pass()

	asked := job("second", set("node", 0, 3, 4))
	got := simulated(t, s, imagined(asked, 0))
	if got.Outcome != inquiry.Starts || got.ClusterQueue != "q" || got.GPUs != 12 {
		t.Fatalf("%+v", got)
	}
	s.submit(withQueue(asked), 0)
	if admitted := s.pass(); len(admitted) != 1 {
		t.Fatalf("admitted %v", admitted)
	}
	pods := map[string]int{}
	for _, sl := range s.jobs[asked.Owner.UID].sets[0].slots {
		pods[sl.node]++
	}
	want := map[string]int{}
	for _, n := range got.Nodes {
		want[n.Node] += n.Pods
	}
	if diff := cmp.Diff(want, pods); diff != "" {
		t.Errorf("(-simulated +real):\n%s", diff)
	}
}

func withQueue(j *workload.Job) *workload.Job {
	j.Queue = "q"
	return j
}

func TestASimulatedJobIsToldWhomItWouldPreempt(t *testing.T) {
	s := newStage(t.Context(), t)
	s.watched.AddNode(s.logger, flavored("node-a", "gpu", 8))
	s.watched.AddNode(s.logger, flavored("node-b", "gpu", 8))
	cq := clusterQueue("q", []string{"gpu"}, 16)
	cq.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
	s.set(cq, false)
	s.Restored()
	s.submit(withQueue(job("old", set("node", 0, 1, 8))), 0)
	s.pass()
	s.clock.Step(time.Minute)
	s.submit(with(withQueue(job("young", set("node", 0, 1, 8))), func(j *workload.Job) { j.Created = epoch0.Add(time.Minute) }), 0)
	if admitted := s.pass(); len(admitted) != 1 {
		t.Fatalf("admitted %v", admitted)
	}
	for _, e := range s.jobs {
		e.move(evWritten)
	}

	low := simulated(t, s, imagined(with(job("low", set("node", 0, 1, 8)), func(j *workload.Job) { j.Created = epoch0.Add(time.Hour) }), 0))
	if low.Outcome != inquiry.Waits || low.Reason != string(reason.WaitingForQuota) || low.Message != "needs 8 GPUs in queue q, 0 of 16 free" {
		t.Errorf("%+v", low)
	}
	high := simulated(t, s, imagined(job("high", set("node", 0, 1, 8)), 5))
	want := &inquiry.Simulation{
		Outcome: inquiry.Preempts, Reason: string(reason.WaitingForQuota), Message: "needs 8 GPUs in queue q, 0 of 16 free", ClusterQueue: "q", Flavors: []string{"gpu"},
		Position: 1, Pending: 1, Pods: 1, GPUs: 8, Preempted: []inquiry.Stopped{{Kind: "JobSet", Namespace: namespace, Name: "young", GPUs: 8, Reason: kueue.InClusterQueueReason}},
	}
	if diff := cmp.Diff(want, high, cmpopts.IgnoreFields(inquiry.Simulation{}, "Nodes")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestASimulatedJobWaitsBehindOthersOfAStrictQueue(t *testing.T) {
	s := newStage(t.Context(), t)
	s.watched.AddNode(s.logger, flavored("node-a", "gpu", 8))
	cq := clusterQueue("q", []string{"gpu"}, 8)
	cq.Spec.QueueingStrategy = kueue.StrictFIFO
	s.set(cq, false)
	s.Restored()
	s.submit(withQueue(job("running", set("node", 0, 1, 4))), 0)
	s.submit(with(withQueue(job("waiting", set("node", 0, 1, 8))), func(j *workload.Job) { j.Created = epoch0.Add(time.Minute) }), 0)
	s.pass()
	got := simulated(t, s, imagined(with(job("late", set("node", 0, 1, 4)), func(j *workload.Job) { j.Created = epoch0.Add(time.Hour) }), 0))
	if got.Outcome != inquiry.Waits || got.Reason != string(reason.PendingEvaluation) || got.Position != 2 || got.Pending != 2 {
		t.Errorf("%+v", got)
	}
}

func TestAJobFarBehindIsToldItsOwnReason(t *testing.T) {
	s := newStage(t.Context(), t)
	s.watched.AddNode(s.logger, flavored("node-a", "gpu", 8))
	s.queue("q", false, []string{"gpu"}, 8)
	s.Restored()
	for i := range 30 {
		j := withQueue(job(string(rune('a'+i)), set("node", 0, 1, int64(i%2)*4+4)))
		j.Created = epoch0.Add(time.Duration(i) * time.Minute)
		s.submit(j, 0)
	}
	s.pass()
	got, ok := s.standingOf(job(string(rune('a' + 29))).Owner.UID)
	if !ok || got.Position != got.Pending || got.Pending < 25 || got.Message == farBehind || got.Reason != string(reason.WaitingForQuota) {
		t.Errorf("%+v", got)
	}
	if _, ok := s.standingOf("none"); ok {
		t.Error("an unknown job is known")
	}
}

func TestASimulationIsGivenUpForAPodThatWaits(t *testing.T) {
	s := newStage(t.Context(), t)
	s.watched.AddNode(s.logger, flavored("node-a", "gpu", 8))
	s.queue("q", false, []string{"gpu"}, 8)
	s.Restored()
	p := &pass{Cycle: s.cycle, ctx: s.ctx, start: s.clock.Now()}
	p.stop = p.simulatedLong
	s.clock.Step(simulatesBeside + 1)
	if out := (&inquiry.Simulation{}); p.simulateIn(imagined(job("a", set("node", 0, 1, 8)), 0), out) != nil || out.Outcome != inquiry.Starts {
		t.Errorf("without a pod: %+v", out)
	}
	s.cycle.podWaits.Store(true)
	err := p.simulateIn(imagined(job("b", set("node", 0, 1, 8)), 0), &inquiry.Simulation{})
	if !errors.Is(err, placement.ErrStopped) {
		t.Errorf("with a pod: %v", err)
	}
}

func TestNothingIsSimulatedWhereKueueDecides(t *testing.T) {
	s := newStage(t.Context(), t)
	s.watched.AddNode(s.logger, flavored("node-a", "gpu", 8))
	s.queue("q", false, []string{"gpu"}, 8)
	s.Restored()
	s.follows = true
	if got := simulated(t, s, imagined(job("a", set("node", 0, 1, 8)), 0)); got.Outcome != inquiry.Waits || got.Reason != string(reason.AnotherScheduler) {
		t.Errorf("%+v", got)
	}
}

func TestASimulationLeavesTheMarksOfLeavingJobs(t *testing.T) {
	s := newStage(t.Context(), t)
	s.watched.AddNode(s.logger, flavored("node-a", "gpu", 8))
	cq := clusterQueue("q", []string{"gpu"}, 8)
	cq.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
	s.set(cq, false)
	s.Restored()
	leaving := withQueue(job("leaving", set("node", 0, 1, 8)))
	s.submit(leaving, 0)
	s.pass()
	e := s.jobs[leaving.Owner.UID]
	e.move(evWritten)
	s.mu.Lock()
	s.evict(e, eviction{reason: kueue.WorkloadEvictedByPreemption, message: "for a test"})
	// As a search has left it that was for a job of another keeper.
	s.quota.Stay(leaving.Owner.UID)
	s.mu.Unlock()
	if simulated(t, s, imagined(job("high", set("node", 0, 1, 8)), 5)); s.quota.Leaves(leaving.Owner.UID) {
		t.Error("the simulation has left a mark")
	}
}
