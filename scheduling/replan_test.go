package scheduling

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestPodsOfAGangThatWasPlannedAnewAreLetInWhenItsWorkloadNamesTheNode(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.admitted(job("a", set("node", 0, 2, 4)), []string{"node-0", "node-0"})
	lost, sibling := pod(j, "node", 0, "lost"), pod(j, "node", 1, "sibling")
	s.Seen(lost)
	s.Seen(sibling)
	s.take(lost)
	s.GiveBack(lost, true)
	e, sl := s.entry(j), s.slot(j, "node", 0)
	s.mu.Lock()
	e.moveTo(sl, "node-1")
	s.holdAgain(e, sl)
	s.mu.Unlock()
	clear(s.wishes.woken)

	held := func(when string) {
		t.Helper()
		for name, in := range map[types.UID]bool{"lost": first(s.MayEnter(lost)), "sibling": first(s.MayEnter(sibling))} {
			if in || s.wishes.woken[name] > 0 {
				t.Errorf("%s pod %s is let in: %v, woken %d times", when, name, in, s.wishes.woken[name])
			}
		}
	}
	held("before the write")
	a, ok := s.admissionOf(j.Owner.UID)
	if !ok {
		t.Fatal("there is nothing to write")
	}
	wl := s.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), s.admissionWritten(j))
	s.written(j.Owner.UID, a.replanned-1, wl, wrote, nil)
	held("after the write of older nodes")
	s.written(j.Owner.UID, a.replanned, wl, wrote, nil)
	if !first(s.MayEnter(lost)) || !first(s.MayEnter(sibling)) || s.wishes.woken["lost"] == 0 || s.wishes.woken["sibling"] == 0 {
		t.Errorf("after the write the pods are not let in; woken: %v", s.wishes.woken)
	}
}

func first(ok bool, _ string) bool { return ok }
