package scheduling

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/quota"
)

// A job that is barred is not tried for every release; its numbers are true all
// the same, and it starts as soon as it can.
func TestReleasedQuotaHasOnlyThoseTriedWhomItMayHelp(t *testing.T) {
	s := newStage(t.Context(), t)
	for i := range 4 {
		s.watched.AddNode(s.logger, flavored(fmt.Sprintf("node-%d", i), "gpu", 8))
	}
	charge := func(t *quota.Tree, id, cq string, gpus int64) {
		t.Charge(types.UID(id), cq, quota.Usage{{Flavor: "gpu", Resource: gpuResource}: gpus}, quota.Holder{})
	}
	s.set(inCohort("main", "all", 8, -1), false)
	s.set(inCohort("other", "all", 8, -1), false)
	s.UpdateQuota(func(t *quota.Tree) {
		charge(t, "mine", "main", 8)
		charge(t, "one", "other", 2)
		charge(t, "two", "other", 6)
	})
	s.Restored()
	big, small := job("big", set("node", 0, 3, 4)), job("small", set("node", 0, 1, 4))
	small.Created = big.Created.Add(1)
	big.Queue, small.Queue = "main", "main"
	s.submit(big, 0)
	s.submit(small, 0)
	release := func(id, cq string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		root := s.quota.Root(cq)
		s.quota.Release(types.UID(id))
		s.released(root)
	}
	if admitted := s.pass(); len(admitted) > 0 {
		t.Fatalf("%v are admitted without quota", admitted)
	}
	release("one", "other")
	if wait := s.entry(big).spot.bucket.cure.wait; wait != forQuota {
		t.Errorf("big is to be tried (%d) where it still needs 10 GPUs more", wait)
	}
	if wait := s.entry(small).spot.bucket.cure.wait; wait != forQuota {
		t.Errorf("small is to be tried (%d) where it still needs 2 GPUs more", wait)
	}
	if admitted := s.pass(); len(admitted) > 0 {
		t.Fatalf("%v are admitted with 2 GPUs", admitted)
	}
	lines, _ := s.picture(s.clock.Now())
	for _, l := range lines {
		if l.why.Class != reason.WaitingForQuota || !strings.Contains(l.why.Message, "2 more can be borrowed") {
			t.Errorf("%s says %q, and 2 GPUs are free", l.job.Owner.Name, l.why.Message)
		}
	}
	if len(lines) != 2 {
		t.Errorf("%d jobs say why they wait, want 2", len(lines))
	}
	release("mine", "main")
	release("two", "other")
	if got := fmt.Sprint(s.pass()); got != "[big small]" {
		t.Errorf("admitted %s, want [big small]", got)
	}
}

// Jobs of other shapes request the same per pod.
func TestRequestsAreSharedBetweenShapes(t *testing.T) {
	w := newWaitlist()
	if w.known(job("a", set("node", 0, 1, 4))) != nil {
		t.Error("what one job alone requests is kept")
	}
	b, c := w.known(job("b", set("node", 0, 2, 4))), w.known(job("c", set("other", 0, 3, 4)))
	if b == nil || c == nil || b[0][gpuResource] != 4 || c[0][gpuResource] != 4 {
		t.Fatalf("they request %v and %v", b, c)
	}
	b[0][gpuResource] = 5
	if c[0][gpuResource] != 5 {
		t.Error("each keeps its own")
	}
	for i := range 3 * mostRequests {
		w.known(job("d", set("node", 0, 1, int64(i))))
	}
	if len(w.requests) > mostRequests {
		t.Errorf("%d requests are remembered", len(w.requests))
	}
}
