package scheduling

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-gpu/muster/workload"
)

// The role is what somebody has written on it; the place is one for less.
func TestPodThatAsksForMoreThanItsRoleTakesNoPlaceInItsGroup(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	first, second := ofGroup("g", "first"), ofGroup("g", "second")
	j := s.admitted(groupOf(first, second), []string{"node-0", "node-1"})
	bound := s.bindAll(first, second)
	s.gone(bound[0])
	larger, same := ofGroup("g", "larger"), ofGroup("g", "same")
	larger.Annotations = map[string]string{"kueue.x-k8s.io/role-hash": workload.RoleOf(first)}
	larger.Spec.Containers[0].Resources.Requests[gpuResource] = resource.MustParse("16")
	s.Seen(larger)
	if e := s.entry(j); e.seats[larger.UID] != nil || e.unplaced[larger.UID] == nil {
		t.Error("it has a place")
	}
	s.Seen(same)
	if s.entry(j).seats[same.UID] == nil {
		t.Error("one that asks for the same has none")
	}
}

// The room of a pod that has succeeded was given away.
func TestPodThatIsMadeAgainAfterItSucceededGetsANewNode(t *testing.T) {
	s := testScene(t, 8, 8, 8)
	j := s.admitted(job("a", set("node", 0, 1, 8)), []string{"node-0"})
	bound := s.bindAll(pod(j, "node", 0, "a-0"))
	s.gone(bound[0])
	s.settle(true)
	if e := s.entry(j); !e.sets[0].slots[0].done || s.taken("node-0") != 0 {
		t.Fatalf("its slot is %+v, %d GPUs are taken", e.sets[0].slots[0], s.taken("node-0"))
	}
	s.wishes.admits = 0
	again := pod(j, "node", 0, "a-0-again")
	s.Seen(again)
	e := s.entry(j)
	slot := e.sets[0].slots[0]
	if slot.pod != again || slot.done || slot.node != "" || !slot.wasReady {
		t.Errorf("its slot is %+v", slot)
	}
	if _, lost := s.waits.lost[e]; !lost || s.wishes.admits == 0 {
		t.Errorf("among those without nodes: %t, %d passes are asked for", lost, s.wishes.admits)
	}
	for replica, n := range e.sets[0].succeeded {
		if n != 0 {
			t.Errorf("%d pods of replica %d have succeeded", n, replica)
		}
	}
}

func TestLostSlotIsLookedAfterOnceUntilRoomComes(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	j := s.admitted(job("a", set("node", 0, 1, 8)), []string{"node-0"})
	s.NodeGone("node-0")
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.jobs[j.Owner.UID]
	if got := s.lostSlots(); len(got) != 1 || got[0] != e {
		t.Fatalf("lost are %v", got)
	}
	e.tried = s.epoch
	if got := s.lostSlots(); len(got) > 0 {
		t.Errorf("%v is tried again at once", got)
	}
	s.otherRoomCame()
	if got := s.lostSlots(); len(got) != 1 {
		t.Error("it is not tried again when room has come")
	}
}

func TestTheOthersOfAGangAreLetInWhenOneThatHadNoNodeIsBoundByOthers(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	j := s.admitted(job("a", set("node", 0, 2, 4)), []string{"node-0", "node-1"})
	first, second := pod(j, "node", 0, "a-0"), pod(j, "node", 1, "a-1")
	s.Seen(first)
	s.NodeGone("node-1")
	s.Seen(second)
	if s.wishes.woken[first.UID] > 0 {
		t.Fatal("it is let in without the other")
	}
	if err := s.watched.AddPod(s.logger, onNode(second, "node-0")); err != nil {
		t.Fatal(err)
	}
	if s.wishes.woken[first.UID] == 0 {
		t.Error("it is not let in")
	}
}
