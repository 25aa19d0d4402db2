package scheduling

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/workload"
)

const grace = time.Minute

// changes tells that a node has become something else.
func (s *scene) changes(name string, gpus int64, change ...func(*corev1.Node)) {
	info := s.plain.Dump().Nodes[name]
	n := node(name, gpus)
	for _, c := range change {
		c(n)
	}
	s.watched.UpdateNode(s.logger, info.Node(), n)
}

// passes lets time pass, as the ticker does.
func (s *scene) passes(d time.Duration) {
	s.clock.Step(d)
	s.giveUpNodes(grace)
}

func TestSlotOnANodeThatIsAwayIsKeptForTheGrace(t *testing.T) {
	away := map[string]func(*corev1.Node){
		"cordoned": cordoned, "not ready": notReady, "tainted as unreachable": unreachable,
		"ready again, and still tainted": func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}
		},
		"short of GPUs": func(n *corev1.Node) { n.Status.Allocatable = roomFor(4) },
	}
	for name, how := range away {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 16, 8, 8)
			j := s.admitted(job("a", set("node", 0, 2, 8)), []string{"node-0", "node-1"})
			bound := s.bindAll(pod(j, "node", 0, "old"), pod(j, "node", 1, "sibling"))
			s.changes("node-0", 8, how)
			s.gone(bound[0])
			next := pod(j, "node", 0, "next")
			s.Seen(next)
			s.passes(grace - time.Second)
			sl := s.slot(j, "node", 0)
			if sl.node != "node-0" || sl.hold == nil {
				t.Fatalf("within the grace the slot is %+v, want it held on node-0", *sl)
			}
			if ok, why := s.MayEnter(next); ok || why != "waiting for node node-0 to return" {
				t.Errorf("the next pod enters: %v, %q", ok, why)
			}
			s.Take(next)
			if sl.inFlight {
				t.Error("a pod is scheduled to a node that is away")
			}

			clear(s.wishes.woken)
			s.changes("node-0", 8)
			if s.wishes.woken["next"] == 0 {
				t.Error("the pod is not woken when the node is back")
			}
			s.passes(grace)
			if ok, why := s.MayEnter(next); !ok || sl.node != "node-0" {
				t.Errorf("the pod does not come back to its node, %q: %s", sl.node, why)
			}
			s.changes("node-0", 8, how)
			s.passes(grace)
			if !sl.lost() || s.slot(j, "node", 1).node != "node-1" {
				t.Errorf("after the grace the slots are %+v and %+v, want only the first one given up", *sl, *s.slot(j, "node", 1))
			}
			if len(s.wishes.notes["a"]) != 1 {
				t.Errorf("the events are %q, want one", s.wishes.notes["a"])
			}
		})
	}
}

func TestRunningPodsStayOnANodeThatIsAway(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	j := s.admitted(job("a", set("node", 0, 2, 8)), []string{"node-0", "node-1"})
	s.bindAll(pod(j, "node", 0, "a"), pod(j, "node", 1, "b"))
	s.changes("node-0", 8, unreachable, notReady)
	s.passes(10 * grace)
	if sl := s.slot(j, "node", 0); !sl.bound || sl.node != "node-0" {
		t.Errorf("the slot is %+v, want its pod in it", *sl)
	}
}

func TestPodsOfASecondSlotWaitForANodeThatIsAway(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	j := s.admitted(job("a", set("node", 0, 2, 8)), []string{"node-0", "node-1"})
	s.changes("node-0", 8, cordoned)
	first, second := pod(j, "node", 0, "first"), pod(j, "node", 1, "second")
	s.Seen(first)
	s.Seen(second)
	if ok, why := s.MayEnter(second); ok || why != "waiting with its gang for node node-0 to return" {
		t.Errorf("the second pod enters: %v, %q", ok, why)
	}
	s.changes("node-0", 8)
	if s.wishes.woken["first"] == 0 || s.wishes.woken["second"] == 0 {
		t.Errorf("woken are %v, want both", s.wishes.woken)
	}
}

func TestPodsThatTolerateItAreNotKeptFromANode(t *testing.T) {
	s := testScene(t, 16, 8)
	j := s.admitted(with(job("a", set("node", 0, 1, 8)), func(j *workload.Job) {
		j.PodSets[0].Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}), []string{"node-0"})
	s.changes("node-0", 8, cordoned)
	p := pod(j, "node", 0, "p")
	s.Seen(p)
	s.passes(2 * grace)
	if ok, why := s.MayEnter(p); !ok {
		t.Errorf("it is kept off: %s", why)
	}
}

func TestPodThatIsRefusedWhileItsNodeGoesAwayKeepsItsNode(t *testing.T) {
	tests := map[string]func(s *scene){
		"the node is away when the pod comes back": func(s *scene) { s.changes("node-0", 8, cordoned) },
		"the node was away for an instant": func(s *scene) {
			s.changes("node-0", 8, cordoned)
			s.changes("node-0", 8)
		},
	}
	for name, meanwhile := range tests {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 16, 8)
			j := s.admitted(job("a", set("node", 0, 1, 8)), []string{"node-0"})
			p := pod(j, "node", 0, "p")
			s.Seen(p)
			s.take(p)
			meanwhile(s)
			s.GiveBack(p, true)
			if sl := s.slot(j, "node", 0); sl.node != "node-0" || sl.hold == nil {
				t.Errorf("the slot is %+v, want it held on node-0", *sl)
			}
		})
	}
}

func TestPodsThatWaitAtTheBarrierForANodeThatGoesAwayComeBack(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	j := s.admitted(job("a", set("node", 0, 2, 8)), []string{"node-0", "node-1"})
	first, second := pod(j, "node", 0, "first"), pod(j, "node", 1, "second")
	s.Seen(first)
	s.Seen(second)
	s.take(first)
	s.assume(first)
	s.Reserve(first)
	s.changes("node-0", 8, cordoned)
	if s.wishes.returned["first"] == 0 {
		t.Error("the first pod is not sent back")
	}
}

// stuck is a pod on a node that died under it: it is being deleted, and nobody
// removes it. Its replacement is there.
func stuck(t *testing.T) (s *scene, j *workload.Job, old, next *corev1.Pod) {
	s = testScene(t, 16, 8, 8)
	j = s.admitted(job("a", set("node", 0, 1, 8)), []string{"node-0"})
	was := s.bindAll(pod(j, "node", 0, "old"))[0]
	s.changes("node-0", 8, unreachable, notReady)
	old, next = terminating(was), pod(j, "node", 0, "next")
	if err := s.watched.UpdatePod(s.logger, was, old); err != nil {
		t.Fatal(err)
	}
	s.Seen(next)
	return s, j, old, next
}

func TestSlotOfAPodThatADeadNodeNeverRemovesPassesToTheNext(t *testing.T) {
	s, j, old, next := stuck(t)
	sl := s.slot(j, "node", 0)
	if s.passes(grace - time.Second); sl.pod.UID != "old" {
		t.Fatalf("within the grace the slot has pod %s", sl.pod.Name)
	}
	s.passes(time.Second)
	if !sl.lost() || sl.pod == nil || sl.pod.UID != next.UID {
		t.Fatalf("after the grace the slot is %+v, want the next pod in it, and another node looked for", *sl)
	}
	s.mu.Lock()
	e := s.jobs[j.Owner.UID]
	e.moveTo(sl, "node-1")
	s.holdAgain(e, sl)
	s.nodesWritten(e)
	s.mu.Unlock()
	s.bindAll(next)
	if sl.node != "node-1" || !sl.bound {
		t.Fatalf("the slot is %+v, want the next pod on node-1", *sl)
	}
	s.read(with(j, func(j *workload.Job) { j.Deleting = true }), nil, nil)
	s.gone(onNode(next, "node-1"))
	if _, got := s.ownerGone(j.Owner.UID); got.do != doNothing || s.used() != 8 {
		t.Errorf("with the old pod on its node the job needs %d, %d GPUs are charged; want nothing, and 8", got.do, s.used())
	}
	s.gone(old)
	if _, got := s.ownerGone(j.Owner.UID); got.do != doDelete {
		t.Errorf("without the old pod the job needs %d, want its Workload deleted", got.do)
	}
}

func TestPodThatIsStillEndingKeepsItsSlot(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	j := s.admitted(job("a", set("node", 0, 1, 8)), []string{"node-0"})
	was := s.bindAll(pod(j, "node", 0, "old"))[0]
	s.changes("node-0", 8, cordoned)
	ending := terminating(was)
	ending.DeletionTimestamp.Time = epoch0.Add(time.Hour)
	if err := s.watched.UpdatePod(s.logger, was, ending); err != nil {
		t.Fatal(err)
	}
	s.passes(2 * grace)
	if sl := s.slot(j, "node", 0); !sl.bound || s.entry(j).late(s.clock.Now()) {
		t.Errorf("the slot is %+v, want its pod in it until its grace period is over", *sl)
	}
}

func TestPodThatLostItsSlotDoesNotGetItBackAfterARestart(t *testing.T) {
	for _, podsFirst := range []bool{true, false} {
		s, j, old, next := stuck(t)
		s.passes(grace)
		sl := s.slot(j, "node", 0)
		s.mu.Lock()
		s.jobs[j.Owner.UID].moveTo(sl, "node-1")
		s.mu.Unlock()
		wl := s.workloadOfJob(j, isTrue("Admitted"), s.admissionWritten(j))

		s.fresh(16)
		tell := func() {
			s.bound(old)
			s.Seen(next)
		}
		if podsFirst {
			tell()
		}
		s.Ledger.restore(running(j), wl, nil)
		if !podsFirst {
			tell()
		}
		if sl := s.slot(j, "node", 0); sl.node != "node-1" || sl.pod == nil || sl.pod.UID != "next" || !s.entry(j).occupied() {
			t.Errorf("pods first %v: the slot is %+v, want it on node-1 for the next pod, and the job on a node", podsFirst, *sl)
		}
	}
}

func TestJobWhosePodADeadNodeKeepsIsReleasedInTheEnd(t *testing.T) {
	s, j, _, _ := stuck(t)
	s.clock.Step(time.Second)
	s.expire(grace)
	s.clock.Step(grace)
	s.expire(grace)
	if s.state(j) != Leaving {
		t.Errorf("it is %s, want it to leave", s.state(j))
	}
}

func TestDeletedNodeIsGivenUpAtOnce(t *testing.T) {
	s := testScene(t, 16, 8)
	j := s.admitted(job("a", set("node", 0, 1, 8)), []string{"node-0"})
	s.changes("node-0", 8, cordoned)
	if err := s.watched.RemoveNode(s.logger, node("node-0", 8)); err != nil {
		t.Fatal(err)
	}
	if !s.slot(j, "node", 0).lost() {
		t.Error("its slot is kept")
	}
}

func TestLostNodeIsSaidToBeWhatItIs(t *testing.T) {
	for want, change := range map[string]func(*corev1.Node){
		"cordoned":    func(n *corev1.Node) { n.Spec.Unschedulable = true },
		"not ready":   func(n *corev1.Node) { n.Status.Conditions = ready(corev1.ConditionFalse) },
		"unreachable": func(n *corev1.Node) { n.Status.Conditions = ready(corev1.ConditionUnknown) },
		"tainted with node.kubernetes.io/disk-pressure": func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "node.kubernetes.io/disk-pressure", Effect: corev1.TaintEffectNoSchedule}}
		},
	} {
		n := &corev1.Node{}
		change(n)
		if got := (&absence{taints: awayTaints(n)}).what(); got != want {
			t.Errorf("it has been %s, want %s", got, want)
		}
	}
}

func ready(status corev1.ConditionStatus) []corev1.NodeCondition {
	return []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
}
