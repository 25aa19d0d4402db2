package scheduling

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-gpu/muster/workload"
)

func TestNodesAreWantedByJobsThatHaveQuotaBesideEachOther(t *testing.T) {
	s := newStage(t.Context(), t)
	s.queue("q", false, []string{"gpu"}, 8)
	s.watched.AddNode(s.logger, flavored("node-0", "gpu", 2))
	s.Restored()
	at := func(seconds int) func(*workload.Job) {
		return func(j *workload.Job) { j.Created = epoch0.Add(time.Duration(seconds) * time.Second) }
	}
	gated := func(j *workload.Job) { j.Gated = true }
	for _, j := range []*workload.Job{
		one("third", 4, in("q"), at(3)), one("first", 4, in("q"), at(1)), one("second", 4, in("q"), at(2)),
		one("too-large", 16, in("q"), at(0)), one("with-pods", 4, in("q"), at(4), gated),
	} {
		s.submit(j, 0)
	}
	if got := s.pass(); len(got) > 0 {
		t.Fatalf("%q were admitted", got)
	}
	wanted := func() []string {
		var out []string
		for _, w := range s.wantNodes(s.clock.Now()) {
			out = append(out, w.job.Owner.Name)
			if len(w.pods) != 1 || w.pods[0].Spec.NodeSelector["flavor"] == "" {
				t.Errorf("%s asks for %v", w.job.Owner.Name, w.pods)
			}
		}
		return out
	}
	for range 2 {
		// The quota that the first would have is free for all of them the next time.
		if diff := cmp.Diff([]string{"first", "second"}, wanted()); diff != "" {
			t.Errorf("nodes are wanted by (-want +got):\n%s", diff)
		}
	}
	s.ownerGone("first-uid")
	if diff := cmp.Diff([]string{"second", "third"}, wanted()); diff != "" {
		t.Errorf("when the first is gone, by (-want +got):\n%s", diff)
	}
	s.ownerGone("third-uid")
	s.submit(one("fifth", 4, in("q"), at(5)), 0)
	s.pass()
	if diff := cmp.Diff([]string{"second"}, wanted()); diff != "" {
		t.Errorf("beside one that has pods, by (-want +got):\n%s", diff)
	}
	s.watched.AddNode(s.logger, flavored("node-1", "gpu", 8))
	if diff := cmp.Diff([]string{"second", "with-pods"}, s.pass()); diff != "" {
		t.Errorf("with a node there start (-want +got):\n%s", diff)
	}
	if got := wanted(); len(got) > 0 {
		t.Errorf("nodes are wanted by %q, which run", got)
	}
}

func TestWhatBecomesOfTheNodesIsSaidOnceWithTheReason(t *testing.T) {
	s := newStage(t.Context(), t)
	s.queue("q", false, []string{"gpu"}, 8)
	s.watched.AddNode(s.logger, flavored("node-0", "gpu", 2))
	s.Restored()
	j := one("job", 4, in("q"))
	s.submit(j, 0)
	s.pass()
	before := s.whyPending(s.entry(j), s.clock.Now(), 1).Message
	if !s.sayProvisioning(j.Owner.UID, "; no") || s.sayProvisioning(j.Owner.UID, "; no") {
		t.Error("it is not news once")
	}
	if got := s.whyPending(s.entry(j), s.clock.Now(), 1).Message; got != before+"; no" {
		t.Errorf("its reason is %q, want %q and more", got, before)
	}
	if s.sayProvisioning("nobody", "; no") {
		t.Error("it is news of a job that is gone")
	}
}
