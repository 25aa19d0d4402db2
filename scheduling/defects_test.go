package scheduling

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload"
)

func TestBackOffKeepsAStoppedJobWaitingFromTheInstantItIsReleased(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.admitted(job("a", set("node", 0, 1, 8)), []string{"node-0"})
	s.stop(j, eviction{reason: kueue.WorkloadEvictedByPodsReadyTimeout, backOff: true})
	at := metav1.NewTime(epoch0.Add(60e9))
	s.observe(j.Owner.UID, s.workloadOfJob(j, func(wl *kueue.Workload) {
		wl.Status.RequeueState = &kueue.RequeueState{Count: new(int32(1)), RequeueAt: &at}
	}))
	s.stopped(j.Owner.UID)
	s.read(suspended(j), nil, nil)
	s.left(j.Owner.UID)
	if s.state(j) != Pending || s.isHead(j) {
		t.Error("it is tried again at once")
	}
	s.clock.Step(time.Minute)
	s.expire(time.Hour)
	if !s.isHead(j) {
		t.Error("it is not tried again when the time has come")
	}
}

func TestChargeStaysUntilTheAPINoLongerSaysAdmitted(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.admitted(job("a", set("node", 0, 1, 8)), []string{"node-0"})
	s.stop(j, eviction{reason: kueue.WorkloadDeactivated})
	s.stopped(j.Owner.UID)
	if got := s.read(suspended(j), nil, nil); got.do != doRequeue {
		t.Fatalf("the job needs %d, want a requeue", got.do)
	}
	// The write fails, and the owner is looked at again.
	if got := s.used(); got != 8 {
		t.Errorf("%d GPUs are charged before the requeue is written, want 8", got)
	}
	if got := s.read(suspended(j), nil, nil); got.do != doRequeue {
		t.Errorf("the second try does %d, want the requeue again", got.do)
	}
}

func TestJobDeletedAndCreatedAgainUnderItsNameReleasesTheFirstWhenItsPodsAreGone(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.admitted(job("a", set("node", 0, 1, 8)), []string{"node-0"})
	bound := s.bindAll(pod(j, "node", 0, "p"))
	s.ownerGone(j.Owner.UID)
	s.pending(again(j, "second"))
	s.wishes.synced = map[JobKey]int{}
	s.gone(bound[0])
	if s.wishes.synced[keyOf(j.Owner)] == 0 {
		t.Error("the first job is not looked at when its pod is gone")
	}
	if _, got := s.ownerGone(j.Owner.UID); got.do != doDelete {
		t.Errorf("the first job needs %d, want its Workload deleted", got.do)
	}
	s.left(j.Owner.UID)
	if got := s.used(); got != 0 {
		t.Errorf("%d GPUs stay charged to a job that is gone", got)
	}
}

func TestLateNewsOfABindingDoesNotFillASlotWithAPodThatIsGone(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.admitted(job("a", set("node", 0, 1, 8)), []string{"node-0"})
	p := pod(j, "node", 0, "p")
	s.Seen(p)
	s.take(p)
	bound := s.assume(p)
	s.Reserve(p)
	// The scheduler's listener runs ahead of the Ledger's own.
	if err := s.watched.AddPod(s.logger, bound); err != nil {
		t.Fatal(err)
	}
	if err := s.watched.RemovePod(s.logger, bound); err != nil {
		t.Fatal(err)
	}
	s.Seen(bound)
	s.Deleted(bound)
	if sl := s.slot(j, "node", 0); sl.hold == nil || sl.pod != nil {
		t.Errorf("the slot is %+v, want it held for the next pod", *sl)
	}
}

func TestPodThatIsBeingDeletedWhenItIsPoppedLeavesItsSlotHeld(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.admitted(job("a", set("node", 0, 1, 8)), []string{"node-0"})
	p := pod(j, "node", 0, "p")
	s.Seen(p)
	s.take(p)
	s.GiveBack(p, false)
	// The scheduler drops a pod with a deletion timestamp without a word.
	s.Seen(terminating(p))
	s.Take(terminating(p))
	if got := s.taken("node-0"); got != 8 {
		t.Errorf("node-0 shows %d GPUs taken, want 8", got)
	}
}

func TestPodOfAnotherNamespaceCannotTakeASlot(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.admitted(job("a", set("node", 0, 1, 8)), []string{"node-0"})
	forged := pod(j, "node", 0, "forged")
	forged.Namespace = "team-b"
	s.Seen(forged)
	if _, managed := s.NodeFor(forged); managed {
		t.Error("the forged pod counts as a member")
	}
	if sl := s.slot(j, "node", 0); sl.pod != nil {
		t.Errorf("slot 0 went to pod %s/%s", sl.pod.Namespace, sl.pod.Name)
	}
}

func TestSlotThatWasDoneIsHeldOrPlannedAgainForTheNextAttemptsPod(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	j := s.admitted(job("a", set("init", 0, 1, 8), set("node", 1, 1, 8)), []string{"node-0"}, []string{"node-1"})
	bound := s.bindAll(pod(j, "init", 0, "first"))
	s.gone(bound[0])
	s.settle(true)
	s.Seen(pod(j, "init", 0, "second"))
	sl := s.slot(j, "init", 0)
	if sl.hold == nil && !sl.lost() {
		t.Errorf("the slot is %+v: neither held nor looked for", *sl)
	}
}

func TestJobWithMoreCompletionsThanParallelPodsRunsThemAll(t *testing.T) {
	s := testScene(t, 8, 8)
	three := set("node", 0, 2, 4)
	three.Completions = 3
	j := s.admitted(job("a", three), []string{"node-0", "node-0"})
	bound := s.bindAll(pod(j, "node", 0, "c0"), pod(j, "node", 1, "c1"))
	s.gone(bound[0])
	s.settle(true)
	third := pod(j, "node", 2, "c2")
	s.Seen(third)
	if ok, why := s.MayEnter(third); !ok {
		t.Errorf("completion 2 of 3 never starts: %s", why)
	}
}

func TestJobThatIsResumedByHandWhileItLeavesIsSuspendedAgain(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.admitted(job("a", set("node", 0, 1, 8)), []string{"node-0"})
	s.stop(j, eviction{reason: kueue.WorkloadDeactivated})
	s.stopped(j.Owner.UID)
	if got := s.read(running(j), nil, nil); got.do != doSuspend {
		t.Errorf("the job needs %d, want it suspended: it would leave for ever", got.do)
	}
}

func TestNewPodDoesNotInheritTheFlightOfThePodBeforeIt(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	j := s.admitted(job("a", set("node", 0, 2, 8)), []string{"node-0", "node-1"})
	first, other := pod(j, "node", 0, "first"), pod(j, "node", 1, "other")
	s.Seen(first)
	s.Seen(other)
	s.take(first)
	assumed := s.assume(first)
	if wait, _ := s.Reserve(first); !wait {
		t.Fatal("the first of two pods does not wait")
	}
	s.Seen(terminating(first))
	s.Seen(pod(j, "node", 0, "second"))
	s.GiveBack(first, false)
	if err := s.watched.ForgetPod(s.logger, assumed); err != nil {
		t.Fatal(err)
	}
	if got := s.taken("node-0"); got != 8 {
		t.Errorf("node-0 shows %d GPUs taken while the second pod waits, want 8", got)
	}
	s.Deleted(first)
	s.take(other)
	if wait, _ := s.Reserve(other); !wait {
		t.Error("the other pod goes on without the second pod")
	}
}

func TestAdmittedJobWhosePodSetsChangedIsStoppedAndDoesNotPanic(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	j := s.admitted(job("a", set("node", 0, 1, 8)), []string{"node-0"})
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("reading the job panics: %v", r)
		}
	}()
	got := s.read(with(suspended(j), func(j *workload.Job) { j.PodSets = append(j.PodSets, set("more", 0, 1, 8)) }), nil, nil)
	if got.do != doSuspend && s.state(j) != Leaving {
		t.Errorf("the job is %s and needs %d, want it stopped", s.state(j), got.do)
	}
}

func TestPodsOfAJobThatLostItsQueueStillReleaseIt(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.admitted(job("a", set("node", 0, 1, 8)), []string{"node-0"})
	bound := s.bindAll(pod(j, "node", 0, "p"))
	// The label is removed: the JobSet's event comes, then its reconciliation.
	s.Unmanaged(j.PodOwnerUID)
	s.ownerGone(j.Owner.UID)
	s.gone(bound[0])
	s.ownerGone(j.Owner.UID)
	s.left(j.Owner.UID)
	if got := s.used(); got != 0 {
		t.Errorf("%d GPUs stay charged for ever", got)
	}
}

func TestUnnumberedPodThatComesWhileTheOldOneTerminatesGetsItsSlot(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.admitted(job("a", set("node", 0, 1, 8)), []string{"node-0"})
	bound := s.bindAll(pod(j, "node", -1, "old"))
	s.Seen(terminating(bound[0]))
	replacement := pod(j, "node", -1, "new")
	s.Seen(replacement)
	s.gone(bound[0])
	s.settle(false)
	if ok, why := s.MayEnter(replacement); !ok || s.wishes.woken["new"] == 0 {
		t.Errorf("the replacement is not let in: %v %q, woken %d times", ok, why, s.wishes.woken["new"])
	}
}

func TestJobWhoseWorkloadIsDeletedBetweenTheListAndTheTryIsNotAdmitted(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.pending(job("a", set("node", 0, 1, 8)))
	e := s.entry(j)
	s.workloadDeleted(j.Owner.UID, e.workload.UID)
	s.mu.Lock()
	defer s.mu.Unlock()
	a, no := s.quota.Assign(e.request(nil))
	if no != nil {
		t.Fatal(no)
	}
	if err := s.charge(e, e.version, a, [][]string{{"node-0"}}, prototypes(e, a, s.quota)); err == nil {
		t.Error("it is charged, and nothing will ever write or undo its admission")
	}
}

func TestPendingJobIsTriedAgainWhenItsPodTemplateChanges(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.pending(job("a", set("node", 0, 1, 8)))
	s.refused(j)
	s.read(with(j, func(j *workload.Job) {
		j.PodSets[0].Template.Spec.Tolerations = []corev1.Toleration{{Key: "reserved", Operator: corev1.TolerationOpExists}}
	}), nil, nil)
	if !s.isHead(j) {
		t.Error("a new toleration does not have it tried again")
	}
}

func TestPendingJobIsTriedAgainWhenItsWorkloadWasMadeAnew(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.pending(job("a", set("node", 0, 1, 8)))
	s.workloadDeleted(j.Owner.UID, s.entry(j).workload.UID)
	s.wishes.admits = 0
	s.read(j, s.workloadOfJob(j, func(wl *kueue.Workload) { wl.UID = "second" }), nil)
	if s.wishes.admits == 0 {
		t.Error("no pass is asked for")
	}
}

func TestRoomThatADoubleCountGivesBackIsOfferedToWaitingJobs(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	j := s.admitted(job("a", set("node", 0, 1, 8)), []string{"node-0"})
	waiter := s.pending(job("b", set("node", 0, 1, 8)))
	s.refused(waiter)
	// Somebody bound the pod to another node than the planned one.
	s.confirm(onNode(pod(j, "node", 0, "p"), "node-1"))
	if got := s.taken("node-0"); got != 0 {
		t.Fatalf("node-0 shows %d GPUs taken, want 0", got)
	}
	if !s.isHead(waiter) {
		t.Error("node-0 is free and the waiting job is not tried")
	}
}

func TestPodsThatExistBeforeTheirJobIsAdmittedGetTheirSlots(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.pending(job("a", set("node", 0, 1, 8)))
	p := pod(j, "node", 0, "p")
	s.Seen(p)
	s.plan(j, []string{"node-0"})
	s.written(j.Owner.UID, 0, s.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted)), wrote, nil)
	if ok, why := s.MayEnter(p); !ok || s.wishes.woken["p"] == 0 {
		t.Errorf("the pod is not let in: %v %q, woken %d times", ok, why, s.wishes.woken["p"])
	}
}

func TestFinishedJobIsNotChargedAgainByAStaleWorkload(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.admitted(job("a", set("node", 0, 1, 8)), []string{"node-0"})
	stale := s.entry(j).workload
	finished := with(j, func(j *workload.Job) { j.Finish = &workload.Finish{Succeeded: true} })
	s.read(finished, stale, nil)
	s.left(j.Owner.UID)
	s.read(finished, stale, nil)
	if s.used() != 0 || s.taken("node-0") != 0 {
		t.Errorf("a job that has left is charged %d GPUs and holds %d", s.used(), s.taken("node-0"))
	}
}

// refused marks a job as tried in vain: no nodes.
func (s *scene) refused(j *workload.Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.jobs[j.Owner.UID]
	if !s.refuse(e, e.version, s.waits.seen, cure{wait: forRoom, queue: "cq"}, reason.New(reason.NoPlacement, "no node has room")) {
		s.t.Fatalf("%s is still due", e)
	}
}

func TestAnAdmittedJobThatCannotBeReadAnyMoreCanStillBeParked(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.admitted(job("a", set("node", 0, 1, 8)), []string{"node-0"})
	wrong := reason.New(reason.Misconfigured, "its time is no number")
	if s.read(j, nil, wrong); s.state(j) != Admitted {
		t.Fatalf("a job that runs is %s because of its label", s.state(j))
	}
	parked := s.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), s.admissionWritten(j), func(wl *kueue.Workload) { wl.Spec.Active = new(false) })
	if got := s.read(j, parked, wrong); s.state(j) != Leaving || got.do != doSuspend {
		t.Errorf("it is %s, and %v is to be done", s.state(j), got.do)
	}
}

func TestAJobThatChangedItsQueueIsNotAdmittedToTheOldOneAgain(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.admitted(job("a", set("node", 0, 1, 8)), []string{"node-0"})
	elsewhere := with(j, func(j *workload.Job) { j.Queue = "other" })
	stopped := suspended(elsewhere)
	if s.read(stopped, nil, nil); s.state(j) != Leaving {
		t.Fatalf("it is %s", s.state(j))
	}
	s.read(stopped, s.workloadOfJob(stopped), nil)
	clear(s.wishes.synced)
	s.left(j.Owner.UID)
	if s.state(j) != Pending || s.isHead(j) {
		t.Fatalf("it is %s, and first of its old queue: %v", s.state(j), s.isHead(j))
	}
	if s.wishes.synced[keyOf(j.Owner)] == 0 {
		t.Error("nobody reads it again")
	}
	if s.read(stopped, nil, nil); !s.isHead(j) || s.entry(j).job.Queue != "other" {
		t.Errorf("it cannot start in queue %s", s.entry(j).job.Queue)
	}
}

// ofGroup is a pod of a group of two pods, each of 8 GPUs.
func ofGroup(group, name string) *corev1.Pod {
	return (&worldGroup{size: 2, gpus: 8}).pod(group, name)
}

// relabel is the pod after its group label was changed; empty takes it away.
func relabel(p *corev1.Pod, group string) *corev1.Pod {
	p = p.DeepCopy()
	delete(p.Labels, workload.KueueGroupLabel)
	if group != "" {
		p.Labels[workload.KueueGroupLabel] = group
	}
	return p
}

// groupOf is the job of a group as its pods make it.
func groupOf(pods ...*corev1.Pod) *workload.Job {
	owner, _ := workload.PodJob(pods[0])
	ps := set(workload.RoleOf(pods[0]), 0, int32(len(pods)), 8)
	ps.PodsPerReplica = ps.Count
	return &workload.Job{Owner: owner, Queue: "main", Gated: true, PodOwnerUID: owner.UID, PodSets: []workload.PodSet{ps}}
}

func TestRunningPodThatIsRelabelledIsChargedToItsGroupUntilItIsGone(t *testing.T) {
	for _, to := range []string{"", "other"} {
		s := testScene(t, 16, 8, 8)
		first, second := ofGroup("g", "first"), ofGroup("g", "second")
		j := s.admitted(groupOf(first, second), []string{"node-0", "node-1"})
		bound := s.bindAll(first, second)
		now := relabel(bound[0], to)
		if err := s.watched.UpdatePod(s.logger, bound[0], now); err != nil {
			t.Fatal(err)
		}
		if got := s.used(); got != 16 {
			t.Errorf("relabelled to %q: %d GPUs are charged while both pods run, want 16", to, got)
		}
		s.stop(j, eviction{reason: kueue.WorkloadDeactivated})
		s.stopped(j.Owner.UID)
		s.gone(bound[1])
		if got := s.read(suspended(j), nil, nil); got.do == doRequeue {
			t.Errorf("relabelled to %q: the job is off its nodes while a pod of it runs", to)
		}
		s.gone(now)
		if got := s.read(suspended(j), nil, nil); got.do != doRequeue {
			t.Errorf("relabelled to %q: the job needs %d when its last pod is gone, want a requeue", to, got.do)
		}
		s.left(j.Owner.UID)
		if got := s.used(); got != 0 {
			t.Errorf("relabelled to %q: %d GPUs stay charged", to, got)
		}
	}
}

func TestWaitingPodThatIsRelabelledLeavesItsSlotToTheNext(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	first, second := ofGroup("g", "first"), ofGroup("g", "second")
	j := s.admitted(groupOf(first, second), []string{"node-0", "node-1"})
	s.Seen(first)
	s.Seen(second)
	clear(s.wishes.synced)
	now := relabel(first, "other")
	s.relabelled(first, now)
	if s.wishes.synced[keyOf(j.Owner)] == 0 {
		t.Error("the group is not read again, which has lost a pod")
	}
	s.Seen(now)
	if ok, _ := s.MayEnter(second); ok {
		t.Error("the other pod is let in although its gang is not complete")
	}
	s.Seen(ofGroup("g", "third"))
	if ok, why := s.MayEnter(second); !ok {
		t.Errorf("the gang is complete again, and its pod is not let in: %s", why)
	}
	if ok, _ := s.MayEnter(now); ok {
		t.Error("the pod is let in although its new group is not admitted")
	}
	if got := s.state(j); got != Admitted {
		t.Errorf("the group is %s", got)
	}
}

func TestPodThatIsRelabelledWhileItIsScheduledLeavesItsSlotWhenItIsGivenBack(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	first, second := ofGroup("g", "first"), ofGroup("g", "second")
	j := s.admitted(groupOf(first, second), []string{"node-0", "node-1"})
	s.Seen(first)
	s.Seen(second)
	s.take(first)
	now := relabel(first, "other")
	s.relabelled(first, now)
	s.Seen(now)
	if node, _ := s.NodeFor(first); node == "" {
		t.Error("it has lost its node while it is being scheduled")
	}
	clear(s.wishes.synced)
	s.GiveBack(first, false)
	if other, _ := workload.PodJob(now); s.wishes.synced[keyOf(j.Owner)] == 0 || s.wishes.synced[keyOf(other)] == 0 || s.strays[other.UID][now.UID] == nil {
		t.Errorf("it has not changed from its group to the other; read again are %v", s.wishes.synced)
	}
	s.Seen(ofGroup("g", "third"))
	for i := range 2 {
		if sl := s.slot(j, groupOf(first).PodSets[0].Name, i); sl.pod == nil || sl.pod.Labels[workload.KueueGroupLabel] != "g" {
			t.Errorf("slot %d has the pod %v", i, sl.pod)
		}
	}
}

func TestPodOnANodeLetsNoOtherPodOfItsGroupIn(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	first, second := onNode(ofGroup("g", "first"), "node-0"), ofGroup("g", "second")
	j := groupOf(first, second)
	if err := s.watched.AddPod(s.logger, first); err != nil {
		t.Fatal(err)
	}
	s.Unmanaged(j.Owner.UID)
	if ok, _ := s.MayEnter(second); ok {
		t.Error("the scheduler lets it in before the Ledger hears of it")
	}
	if _, managed := s.NodeFor(first); managed {
		t.Error("the pod on the node is no longer let go")
	}
	s.Seen(second)
	if ok, _ := s.MayEnter(second); ok {
		t.Error("it is let in before its group is read")
	}
	if s.wishes.synced[keyOf(j.Owner)] == 0 {
		t.Error("its group is not read")
	}
	s.read(with(j, func(j *workload.Job) { j.Pods = []*corev1.Pod{first, second} }), s.workloadOfJob(j), nil)
	if ok, _ := s.MayEnter(second); ok {
		t.Error("it is let in before its group is admitted")
	}
	if p := s.entry(j).unplaced[first.UID]; p == nil {
		t.Error("the pod on the node is not known to its group")
	}
}

func TestPodsThatCameBeforeTheirPodGroupAreOfItOnceItHasAQueue(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	pods := []*corev1.Pod{ofGroup("g", "first"), ofGroup("g", "second")}
	for _, p := range pods {
		delete(p.Labels, workload.KueueGroupLabel)
		delete(p.Labels, workload.QueueLabel)
		p.Labels[workload.PodGroupLabel] = "g"
		s.Seen(p)
	}
	j := groupOf(pods...)
	j.Owner = workload.GroupOwner(workload.PodGroupGVK, types.NamespacedName{Namespace: namespace, Name: "g"})
	j.PodOwnerUID = j.Owner.UID
	s.LetGo(j.Owner.UID, pods)
	if ok, _ := s.MayEnter(pods[0]); !ok {
		t.Fatal("pods of no queue are not let go")
	}
	clear(s.wishes.synced)
	s.groupChanged(j.Owner)
	if s.wishes.synced[keyOf(j.Owner)] == 0 {
		t.Error("the group is not read again when its PodGroup has come")
	}
	j.Pods = pods
	s.read(j, s.workloadOfJob(j), nil)
	for _, p := range pods {
		if ok, _ := s.MayEnter(p); ok {
			t.Errorf("%s is let in before its group is admitted", p.Name)
		}
		if s.entry(j).unplaced[p.UID] == nil {
			t.Errorf("%s is not known to its group", p.Name)
		}
	}
}

func TestPodThatIsRelabelledBeforeItsGroupIsAdmittedIsNoneOfIt(t *testing.T) {
	for name, read := range map[string]bool{"before the group is read": false, "after": true} {
		s := testScene(t, 16, 8, 8)
		first, second := ofGroup("g", "first"), ofGroup("g", "second")
		j := groupOf(first, second)
		if read {
			s.pending(j)
		}
		s.Seen(first)
		s.Seen(second)
		s.relabelled(first, relabel(first, "other"))
		if !read {
			s.pending(j)
		}
		if s.entry(j).unplaced[first.UID] != nil || s.entry(j).unplaced[second.UID] == nil {
			t.Errorf("%s: its pods are %v", name, s.entry(j).unplaced)
		}
	}
}

func TestPodThatIsRelabelledToAGroupThatWasLetGoIsLetGo(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	first, second := ofGroup("g", "first"), ofGroup("g", "second")
	s.pending(groupOf(first, second))
	s.Seen(first)
	now := relabel(first, "free")
	delete(now.Labels, workload.QueueLabel)
	free, _ := workload.PodJob(now)
	s.Unmanaged(free.UID)
	s.relabelled(first, now)
	s.Seen(now)
	if ok, _ := s.MayEnter(now); ok || s.wishes.synced[keyOf(free)] == 0 {
		t.Errorf("it is let in: %v; its new group is read again %d times", ok, s.wishes.synced[keyOf(free)])
	}
	s.LetGo(free.UID, []*corev1.Pod{now})
	if ok, why := s.MayEnter(now); !ok || s.wishes.woken[now.UID] == 0 {
		t.Errorf("it is let in: %v %q, woken %d times", ok, why, s.wishes.woken[now.UID])
	}
}

// Its group was let go, and what leaves it needs no reading.
func TestPodThatIsBeingDeletedHasNoGroupReadAgainThatWasLetGo(t *testing.T) {
	for name, dies := range map[string]bool{"a pod that is to run": false, "one that is being deleted": true} {
		s := testScene(t, 16, 8, 8)
		p := ofGroup("g", "p")
		owner, _ := workload.PodJob(p)
		s.Unmanaged(owner.UID)
		if dies {
			p = terminating(p)
		}
		s.Seen(p)
		ok, _ := s.MayEnter(p)
		if read := s.wishes.synced[keyOf(owner)] > 0; read == dies || ok != dies || (len(s.strays[owner.UID]) > 0) == dies {
			t.Errorf("%s: its group is read again: %v; it is let in: %v; kept are %v", name, read, ok, s.strays)
		}
	}
}
