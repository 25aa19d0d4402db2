package scheduling

import (
	"strings"
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/quota"
)

// A slot that has lost its node finds no new one in its slice, and pods that are
// more go on to complete the slice that is open.
func TestAJobGrowsIntoItsSlicesBesideALostSlot(t *testing.T) {
	s := closeStage(t, 2, 2)
	j := elastic("a", 3, 8)
	j.PodSets[0] = asking(j.PodSets[0], kueue.PodSetTopologyRequest{
		Required: new("block"), PodSetSliceRequiredTopology: new("rack"), PodSetSliceSize: new(int32(2)),
	})
	s.submit(j, 0)
	s.pass()
	if got := s.placed(j); got != "b0 b1 a0" {
		t.Fatalf("it is on %s", got)
	}
	s.write(j)
	s.removeNode(t, "b1")
	s.pass()
	if got := s.placed(j); got != "b0  a0" {
		t.Fatalf("after the loss of b1 it is on %s", got)
	}
	s.read(running(asks(j, 4)), s.entry(j).workload, nil)
	s.pass()
	if got := s.placed(j); got != "b0  a0 a1" {
		t.Errorf("it has grown onto %s; %v", got, s.entry(j).growth.refused)
	}
}

func TestALostSlotWaitsWhileTheTopologyIsGone(t *testing.T) {
	s := closeStage(t, 3, 2)
	j := job("a", asking(set("node", 0, 2, 8), kueue.PodSetTopologyRequest{Required: new("rack")}))
	s.submit(j, 0)
	s.pass()
	s.write(j)
	s.UpdateQuota(func(t *quota.Tree) { t.DeleteTopology("dc") })
	s.removeNode(t, "b1")
	s.pass()
	if got := s.placed(j); got != "b0 " {
		t.Errorf("without a topology the lost slot has gone to %s", got)
	}
	if why := s.entry(j).why; why == nil || !strings.Contains(why.Message, "asks for rack, which is none of the topology's levels") {
		t.Errorf("the reason is %v", why)
	}
}
