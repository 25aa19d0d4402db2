package scheduling

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// restarted is a pod of which a container has ended and is begun anew by its kubelet.
func restarted(p *corev1.Pod, now corev1.ContainerState) *corev1.Pod {
	p = p.DeepCopy()
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "c", RestartCount: 1, State: now,
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}},
	}}
	return p
}

// The pod is the same, so nothing of its gang is to be planned or let in again.
func TestAPodWhoseContainerRestartsKeepsItsSlot(t *testing.T) {
	for name, state := range map[string]corev1.ContainerState{
		"it has ended":        {Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}},
		"it waits to restart": {Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		"it runs again":       {Running: &corev1.ContainerStateRunning{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := closeStage(t, 4, 4)
			j := s.pending(job("a", asking(set("node", 0, 3, 8), kueue.PodSetTopologyRequest{Required: new("rack")})))
			s.plan(j, []string{"b0", "b1", "b2"})
			s.write(j)
			bound := s.bindAll(pods(j, "node", "first")...)
			again := restarted(bound[1], state)
			if err := s.watched.UpdatePod(s.logger, bound[1], again); err != nil {
				t.Fatal(err)
			}
			if sl := s.slot(j, "node", 1); sl.pod != again || !sl.bound || sl.node != "b1" || sl.hold != nil || len(s.wishes.settles) > 0 {
				t.Errorf("its slot is %+v; ends that were asked for: %d", sl, len(s.wishes.settles))
			}
			if got := s.taken("b1"); got != 8 {
				t.Errorf("%d GPUs of its node are taken", got)
			}
			another := pod(j, "node", 1, "another")
			s.Seen(another)
			if ok, why := s.MayEnter(another); ok {
				t.Errorf("another pod of its number may enter: %q", why)
			}

			// The place of one that is lost is still beside it, and it enters alone.
			s.gone(bound[2])
			s.removeNode(t, "b2")
			s.pass()
			if got := s.placed(j); got != "b0 b1 b3" {
				t.Errorf("after the loss of b2 the gang is on %s", got)
			}
			s.write(j)
			next := pod(j, "node", 2, "next")
			s.Seen(next)
			if ok, why := s.MayEnter(next); !ok {
				t.Errorf("one that comes back may not enter: %q", why)
			}
		})
	}
}
