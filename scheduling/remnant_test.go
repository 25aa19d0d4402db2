package scheduling

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

func TestWhatAFinishedJobLeavesRunningIsAllThatIsCharged(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	a := s.admitted(job("a", set("master", 0, 1, 4), set("worker", 0, 3, 4)), []string{"node-0"}, []string{"node-0", "node-1", "node-1"})
	pods := s.bindAll(pod(a, "master", 0, "m0"), pod(a, "worker", 0, "w0"), pod(a, "worker", 1, "w1"), pod(a, "worker", 2, "w2"))
	over := with(a, func(j *workload.Job) { j.Finish = &workload.Finish{Succeeded: true} })
	s.gone(pods[0])
	s.gone(pods[2])
	if got := s.read(over, nil, nil); got.do != doLater || got.after != reclaimEvery {
		t.Fatalf("at first its pods have time to end by themselves, but: %+v", got)
	}
	s.clock.Step(reclaimEvery)
	got := s.read(over, nil, nil)
	want := []kueue.ReclaimablePod{{Name: "master", Count: 1}, {Name: "worker", Count: 1}}
	if diff := cmp.Diff(want, got.reclaim); diff != "" || got.do != doReclaim {
		t.Fatalf("to do %+v (-want +got):\n%s", got, diff)
	}
	if s.used() != 16 {
		t.Errorf("%d GPUs are charged before the Workload says that there are fewer", s.used())
	}
	s.reclaimed(a.Owner.UID, got.live)
	if s.used() != 8 || s.taken("node-0") != 4 || s.taken("node-1") != 4 {
		t.Errorf("%d GPUs are charged, %d and %d taken on the nodes", s.used(), s.taken("node-0"), s.taken("node-1"))
	}
	if got := s.read(over, nil, nil); got.do != doNothing {
		t.Errorf("it is to do more: %+v", got)
	}
	s.gone(pods[1])
	if got := s.read(over, nil, nil); got.do != doLater {
		t.Errorf("a pod that went later is to be given up later, but: %+v", got)
	}
	s.gone(pods[3])
	if got := s.read(over, nil, nil); got.do != doFinish {
		t.Errorf("it has left, and is to do %+v", got)
	}
	s.left(a.Owner.UID)
	if s.used() != 0 || s.taken("node-0") != 0 || s.state(a) != Gone {
		t.Errorf("it is %s, %d GPUs are charged, %d taken", s.state(a), s.used(), s.taken("node-0"))
	}
}

func TestAJobThatIsStoppedIsChargedWhole(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	a := s.admitted(job("a", set("worker", 0, 2, 4)), []string{"node-0", "node-1"})
	pods := s.bindAll(pod(a, "worker", 0, "w0"), pod(a, "worker", 1, "w1"))
	s.stop(a, eviction{reason: kueue.WorkloadDeactivated, message: "test"})
	s.stopped(a.Owner.UID)
	s.gone(pods[0])
	s.clock.Step(2 * reclaimEvery)
	if got := s.read(suspended(a), nil, nil); got.do != doNothing || s.used() != 8 {
		t.Errorf("to do %+v with %d GPUs charged", got, s.used())
	}
}

func TestAJobThatIsStoppedAndHasPodsOnADeadNodeGivesUpTheRest(t *testing.T) {
	s := testScene(t, 24, 8, 8, 8)
	j := s.admitted(job("a", set("node", 0, 3, 8)), []string{"node-0", "node-1", "node-2"})
	bound := s.bindAll(pods(j, "node", "p")...)
	wl := s.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), s.admissionWritten(j))
	s.changes("node-0", 8, unreachable, notReady)
	s.stop(j, eviction{reason: kueue.WorkloadEvictedByPodsReadyTimeout, message: "test"})
	s.stopped(j.Owner.UID)
	dead := terminating(bound[0])
	dead.DeletionTimestamp.Time = s.clock.Now()
	if err := s.watched.UpdatePod(s.logger, bound[0], dead); err != nil {
		t.Fatal(err)
	}
	s.gone(bound[1])
	s.clock.Step(outstayFor + time.Second)
	if got := s.read(suspended(j), nil, nil); got.do != doNothing || s.used() != 24 {
		t.Fatalf("with a pod that is not to end yet the job needs %+v, and is charged for %d GPUs", got, s.used())
	}
	s.gone(bound[2])
	clear(s.wishes.synced)
	s.tick(Timing{StartTimeout: time.Hour})
	if s.wishes.synced[keyOf(j.Owner)] == 0 {
		t.Error("the owner is not looked at when nothing is left but the dead node's pod")
	}
	if got := s.read(suspended(j), nil, nil); got.do != doLater {
		t.Fatalf("it needs %+v at once", got)
	}
	s.clock.Step(reclaimEvery)
	got := s.read(suspended(j), nil, nil)
	if diff := cmp.Diff([]kueue.ReclaimablePod{{Name: "node", Count: 2}}, got.reclaim); diff != "" || got.do != doReclaim {
		t.Fatalf("to do %+v (-want +got):\n%s", got, diff)
	}
	isTrue(kueue.WorkloadEvicted)(wl)
	wl.Status.ReclaimablePods = got.reclaim
	s.reclaimed(j.Owner.UID, got.live)
	if s.used() != 8 || s.taken("node-1") != 0 || s.taken("node-2") != 0 {
		t.Errorf("%d GPUs are charged, %d and %d taken on the nodes that live", s.used(), s.taken("node-1"), s.taken("node-2"))
	}
	s.clock.Step(2 * leavingLong)
	s.tick(Timing{StartTimeout: time.Hour})
	want := "StillLeaving: it has been stopped for 2m5s (test), and keeps what these pods take of its quota and its nodes: a pod is still on nodes (p-0)"
	if diff := cmp.Diff([]string{want}, s.wishes.notes["a"]); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	before := s.plain
	s.fresh(24)
	s.plain = before
	s.bound(dead)
	s.Ledger.restore(suspended(j), wl, nil)
	if s.used() != 8 {
		t.Errorf("after a restart %d GPUs are charged", s.used())
	}
	s.read(suspended(j), wl, nil)
	s.stopped(j.Owner.UID)
	s.gone(dead)
	if got := s.read(suspended(j), wl, nil); got.do != doRequeue {
		t.Errorf("when the pod is gone the job needs %+v", got)
	}
	if s.left(j.Owner.UID); s.used() != 0 || s.state(j) != Pending {
		t.Errorf("it is %s, with %d GPUs charged", s.state(j), s.used())
	}
}

func TestAGroupIsNotEvictedAgainWhileItsPodsEndAndGivesUpWhatADeadNodeDoesNotKeep(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	a, b := ofGroup("g", "a"), ofGroup("g", "b")
	j := s.admitted(groupOf(a, b), []string{"node-0", "node-1"})
	bound := s.bindAll(a, b)
	s.stop(j, eviction{reason: kueue.WorkloadEvictedByPodsReadyTimeout, message: "test"})
	s.stopped(j.Owner.UID)
	now := func(pods ...*corev1.Pod) *workload.Job {
		return with(j, func(j *workload.Job) { j.Suspended, j.Pods = false, pods })
	}
	dead := terminating(bound[0])
	dead.DeletionTimestamp.Time = s.clock.Now()
	if err := s.watched.UpdatePod(s.logger, bound[0], dead); err != nil {
		t.Fatal(err)
	}
	if got := s.read(now(dead, bound[1]), nil, nil); got.do != doSuspend {
		t.Errorf("with a pod that is not being deleted the group needs %+v", got)
	}
	if got := s.read(now(dead, terminating(bound[1])), nil, nil); got.do != doNothing {
		t.Errorf("with pods that are being deleted the group needs %+v", got)
	}
	s.gone(bound[1])
	s.clock.Step(outstayFor + time.Second)
	if got := s.read(now(dead), nil, nil); got.do != doLater {
		t.Fatalf("with nothing left but the dead node's pod the group needs %+v", got)
	}
	s.clock.Step(reclaimEvery)
	got := s.read(now(dead), nil, nil)
	if got.do != doReclaim {
		t.Fatalf("to do %+v", got)
	}
	if s.reclaimed(j.Owner.UID, got.live); s.used() != 8 {
		t.Errorf("%d GPUs are charged", s.used())
	}
}

func TestARestartChargesWhatAFinishedJobHasLeftRunning(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	a := s.admitted(job("a", set("master", 0, 1, 4), set("worker", 0, 3, 4)), []string{"node-0"}, []string{"node-0", "node-1", "node-1"})
	wl := s.workloadOfJob(a, isTrue(kueue.WorkloadAdmitted), s.admissionWritten(a), func(wl *kueue.Workload) {
		wl.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "master", Count: 1}}
	})
	over := with(a, func(j *workload.Job) { j.Finish = &workload.Finish{Succeeded: true} })
	after := testScene(t, 16, 8, 8)
	for i, node := range []string{"node-0", "node-1", "node-1"} {
		after.confirm(onNode(pod(a, "worker", int32(i), "w"+string(rune('0'+i))), node))
	}
	after.restore(over, wl, nil)
	if after.used() != 12 {
		t.Errorf("%d GPUs are charged", after.used())
	}
	after.read(over, wl, nil)
	after.clock.Step(reclaimEvery)
	got := after.read(over, wl, nil)
	if diff := cmp.Diff(wl.Status.ReclaimablePods, got.reclaim); diff != "" || got.do != doReclaim {
		t.Fatalf("the master's room is to be given up again, but %+v (-want +got):\n%s", got, diff)
	}
	after.reclaimed(a.Owner.UID, got.live)
	if after.used() != 12 || after.taken("node-0") != 4 || after.taken("node-1") != 8 {
		t.Errorf("%d GPUs are charged, %d and %d taken on the nodes", after.used(), after.taken("node-0"), after.taken("node-1"))
	}
	if got := after.read(over, wl, nil); got.do != doNothing {
		t.Errorf("it is to do more: %+v", got)
	}
}

// Of the pods that a finished job has left running nothing says when they end.
func TestWhatAFinishedJobLeavesRunningIsNotAboutToEnd(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	a := s.admitted(job("a", set("master", 0, 1, 4), set("worker", 0, 1, 4)), []string{"node-0"}, []string{"node-0"})
	pods := s.bindAll(pod(a, "master", 0, "m0"), pod(a, "worker", 0, "w0"))
	b := s.admitted(job("b", set("node", 0, 1, 8)), []string{"node-1"})
	bound := s.bindAll(pod(b, "node", 0, "b0"))[0]
	s.read(with(a, func(j *workload.Job) { j.Finish = &workload.Finish{Succeeded: true} }), nil, nil)
	s.gone(pods[0])
	s.stop(b, eviction{reason: kueue.WorkloadDeactivated})
	dying := terminating(bound)
	dying.DeletionTimestamp.Time = s.clock.Now()
	if err := s.watched.UpdatePod(s.logger, bound, dying); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		of   *workload.Job
		ends bool
	}{{a, false}, {b, true}} {
		if _, ends := s.entry(test.of).ends(s.clock.Now()); s.state(test.of) != Leaving || ends != test.ends {
			t.Errorf("%s is %s, and is known to end: %v, want %v", test.of.Owner.Name, s.state(test.of), ends, test.ends)
		}
	}
}

// A group of Ray workers may have no pods when the job is admitted.
func TestAFinishedJobMayHaveASetOfNoPods(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	a := s.admitted(job("a", set("head", 0, 2, 4), set("workers", 0, 0, 4)), []string{"node-0", "node-0"}, nil)
	pods := s.bindAll(pod(a, "head", 0, "h0"), pod(a, "head", 1, "h1"))
	over := with(a, func(j *workload.Job) { j.Finish = &workload.Finish{Succeeded: true} })
	s.gone(pods[0])
	s.read(over, nil, nil)
	s.clock.Step(reclaimEvery)
	got := s.read(over, nil, nil)
	if got.do != doReclaim {
		t.Fatalf("to do %+v", got)
	}
	s.reclaimed(a.Owner.UID, got.live)
	if s.used() != 4 {
		t.Errorf("%d GPUs are charged, want 4", s.used())
	}
}

func TestWhatPodsShareStaysUntilTheLastHasGone(t *testing.T) {
	naming := func(claim string, slots int) *setSlots {
		s := &setSlots{slots: make([]*slot, slots)}
		s.set.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpus", ResourceClaimName: &claim}}
		return s
	}
	payer := naming("a", 4)
	payer.set.Claimed.Shared = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("5")}
	e := &entry{
		sets:       []*setSlots{payer, naming("a", 2), naming("b", 2)},
		assignment: &quota.Assignment{PodSetUsage: []quota.Requests{{"nvidia.com/gpu": 17, "cpu": 8}, {}, {}}},
	}
	for _, test := range []struct {
		live []int32
		want int64
	}{
		{[]int32{4, 2, 2}, 17}, {[]int32{3, 0, 0}, 14}, {[]int32{1, 0, 0}, 8}, {[]int32{0, 0, 0}, 0},
		{[]int32{0, 1, 0}, 5}, {[]int32{0, 0, 2}, 0},
	} {
		if got := e.part(0, "nvidia.com/gpu", test.live); got != test.want {
			t.Errorf("of 4 pods that have 3 GPUs each and share 5, with 2 others, %v are left: %d, want %d", test.live, got, test.want)
		}
	}
	if got := e.part(0, "cpu", []int32{2, 0, 0}); got != 4 {
		t.Errorf("half of what they do not share is %d of 8", got)
	}
}
