package scheduling

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/workload"
)

// groupPod is a pod of the PodGroup ddd that names no queue.
func groupPod(name string) *corev1.Pod {
	p := plainPod(name, "", 4)
	p.Labels = map[string]string{workload.PodGroupLabel: "ddd"}
	return p
}

func TestPodThatComesToAGroupWhichWasLetGoIsNotLetInWithIt(t *testing.T) {
	s := testScene(t, 8, 8)
	first, waits := groupPod("first"), groupPod("waits")
	group, _ := workload.PodJob(first)
	s.Seen(first)
	s.Seen(waits)
	s.LetGo(group.UID, []*corev1.Pod{first, waits})
	for _, p := range []*corev1.Pod{first, waits} {
		if ok, why := s.MayEnter(p); !ok || s.wishes.woken[p.UID] != 1 {
			t.Errorf("pod %s may not enter: %s; it was woken %d times, want once", p.Name, why, s.wishes.woken[p.UID])
		}
	}
	s.confirm(onNode(first, "node-0"))
	// What is told again of a pod that was let go does not stop it.
	s.Seen(waits)

	later := groupPod("later")
	if ok, _ := s.MayEnter(later); ok {
		t.Error("the later pod may enter before anyone was told of it")
	}
	s.wishes.synced = map[JobKey]int{}
	s.Seen(later)
	if s.wishes.synced[keyOf(group)] == 0 {
		t.Error("the group is not read again for it")
	}
	// A reading that did not know it lets it go no more than before.
	s.LetGo(group.UID, []*corev1.Pod{onNode(first, "node-0"), waits})
	if ok, _ := s.MayEnter(later); ok {
		t.Error("a group that was read without the pod has let it in")
	}
	if ok, why := s.MayEnter(waits); !ok {
		t.Errorf("the pod that was let go waits: %s", why)
	}
	s.LetGo(group.UID, []*corev1.Pod{onNode(first, "node-0"), waits, later})
	if ok, why := s.MayEnter(later); !ok || s.wishes.woken[later.UID] != 1 {
		t.Errorf("it may not enter though its group is still unmanaged: %s; it was woken %d times", why, s.wishes.woken[later.UID])
	}

	s.gone(onNode(first, "node-0"))
	s.Deleted(waits)
	s.Deleted(later)
	s.ForgetPodOwner(group.UID)
	if len(s.free) > 0 || len(s.podOwners) > 0 || len(s.strays) > 0 {
		t.Errorf("left behind are %v, %v and %v", s.free, s.podOwners, s.strays)
	}
}
