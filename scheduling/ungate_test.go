package scheduling

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
)

// Pods of a job that Kueue has started are made anew with its gate, also when it
// decides no more.
func TestKueuesGateIsTakenOffPodsThatAreMadeAnew(t *testing.T) {
	s := testScene(t, 8, 8)
	a := job("a", set("node", 0, 1, 8))
	s.admitted(a, []string{"node-0"})
	gated := pod(a, "node", 0, "a-0")
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: kueue.TopologySchedulingGate}}
	before := s.wishes.synced[keyOf(a.Owner)]
	s.Seen(gated)
	if s.wishes.synced[keyOf(a.Owner)] == before {
		t.Error("its job is not looked at")
	}
	got := s.read(running(a), s.workloadOf(a.Owner.UID), nil)
	if got.do != doUngate || len(got.pods) != 1 || got.pods[0].UID != gated.UID {
		t.Errorf("to be done is %+v, want that the pod is let go", got)
	}
	s.SetRival(reason.New(reason.AnotherScheduler, "Kueue lives"))
	if got := s.read(running(a), s.workloadOf(a.Owner.UID), nil); got.do == doUngate {
		t.Error("a gate is taken off while Kueue decides")
	}
}
