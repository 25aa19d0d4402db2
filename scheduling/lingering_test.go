package scheduling

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestAJobThatIsStoppedAndDoesNotLeaveSaysWhatItWaitsFor(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.admitted(job("a", set("node", 0, 2, 2)), []string{"node-0", "node-0"})
	bound := s.bindAll(pods(j, "node", "node")...)
	told := func() (out []string) {
		for _, n := range s.wishes.notes["a"] {
			if strings.HasPrefix(n, noteStillLeaving) {
				out = append(out, n)
			}
		}
		delete(s.wishes.notes, "a")
		return out
	}
	wait := func(d time.Duration) []string {
		for range 2 {
			s.clock.Step(d / 2)
			s.tick(Timing{StartTimeout: time.Hour})
		}
		return told()
	}
	s.stop(j, eviction{reason: kueue.WorkloadEvictedByPreemption, message: "make way"})
	if got := wait(leavingLong - 2*time.Second); got != nil {
		t.Errorf("before it should have left it says %q", got)
	}
	want := func(when string, got []string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	head := "StillLeaving: it has been stopped for "
	want("pods stay", wait(leavingLong), head+"1m29s (make way), and keeps its quota and its nodes: 2 pods are still on nodes ("+bound[0].Name+", "+bound[1].Name+")")
	want("it was told", wait(time.Minute))
	s.stopped(j.Owner.UID)
	s.read(suspended(j), nil, nil)
	for _, p := range bound {
		s.gone(p)
	}
	s.stillActive(j.Owner.UID, "Job a-node-0: its controllers have not stopped it yet")
	want("its controller is down", wait(tellLeavingEvery), head+"12m29s (make way), and keeps its quota and its nodes: its pods have gone, and Job a-node-0: its controllers have not stopped it yet")
	s.left(j.Owner.UID)
	want("it has left", wait(2*tellLeavingEvery))
	if len(s.lingering) > 0 {
		t.Errorf("what left is remembered: %v", s.lingering)
	}
}

func TestAJobThatNeverRanIsNotSaidToBeSuspended(t *testing.T) {
	s := testScene(t, 8, 8)
	j := job("a", set("node", 0, 1, 2))
	s.pending(j)
	s.plan(j, []string{"node-0"})
	s.stop(j, eviction{reason: kueue.WorkloadEvictedByPreemption})
	if s.stopped(j.Owner.UID) {
		t.Error("an event says that it was suspended, which it was all the time")
	}
}
