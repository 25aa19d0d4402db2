package scheduling

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/profile"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/placement"
)

func TestWhoeverLosesTheLeaseActsNoMore(t *testing.T) {
	ctx := klog.NewContext(t.Context(), klog.Logger{})
	c := fake.NewClientset()
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: c.EventsV1()})
	sched, err := scheduler.New(ctx, c, informers.NewSharedInformerFactory(c, 0), nil, profile.NewRecorderFactory(broadcaster))
	if err != nil {
		t.Fatal(err)
	}
	led := make(chan context.Context, 1)
	cycle := NewCycle(NewLedger(klog.Logger{}, testclock.NewFakeClock(epoch0), newWishes()), placement.NewPlanner(gpu.Is), time.Second)
	cycle.Install(ctx, sched, func(ctx context.Context) { led <- ctx })
	// The scheduler runs as long as it leads; the process goes on.
	leading, lose := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		sched.Run(leading)
	}()
	acting := <-led
	if acting.Err() != nil {
		t.Fatal("it leads and does not act")
	}
	lose()
	<-ended
	if acting.Err() == nil {
		t.Error("it leads no more and goes on acting")
	}
}

func TestLateAdmissionOfAnEarlierLeaderStandsIfItsRoomIsFree(t *testing.T) {
	s := testScene(t, 8, 8)
	a := job("a", set("node", 0, 1, 8))
	s.pending(a)
	s.plan(a, []string{"node-0"})
	write := s.admissionWritten(a)
	after := testScene(t, 8, 8)
	after.pending(a)
	waiting := pod(a, "node", 0, "a-0")
	after.Seen(waiting)
	after.version = 10
	late := after.workloadOfJob(a, isTrue(kueue.WorkloadAdmitted), write)
	after.observe(a.Owner.UID, late)
	if got := after.read(a, late, nil); got.do != doResume {
		t.Errorf("to be done is %v, want that it is resumed", got.do)
	}
	if held, charged := after.taken("node-0"), after.used(); held != 8 || charged != 8 {
		t.Errorf("%d GPUs are held and %d charged, want 8", held, charged)
	}
	if after.slot(a, "node", 0).pod == nil {
		t.Error("the pod that had come already has no slot")
	}
	after.bindAll(waiting)
}

func TestLateAdmissionOfAnEarlierLeaderIsTakenBackIfItsRoomWasGivenAway(t *testing.T) {
	for name, quota := range map[string]int64{"its quota": 8, "its node": 16} {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, quota, 8)
			a, b := job("a", set("node", 0, 1, 8)), job("b", set("node", 0, 1, 8))
			s.pending(a)
			s.plan(a, []string{"node-0"})
			write := s.admissionWritten(a)
			after := testScene(t, quota, 8)
			after.pending(a)
			after.admitted(b, []string{"node-0"})
			after.version += 10
			late := after.workloadOfJob(a, isTrue(kueue.WorkloadAdmitted), write)
			after.observe(a.Owner.UID, late)
			if got := after.read(a, late, nil); got.do != doSuspend || got.eviction == nil {
				t.Errorf("to be done is %+v, want that it is stopped", got)
			}
			if got := after.taken("node-0"); got != 8 {
				t.Errorf("node-0 has %d GPUs taken of 8", got)
			}
			if got := after.state(b); got != Admitted {
				t.Errorf("the job that was given the room is %s", got)
			}
			after.stopped(a.Owner.UID)
			after.left(a.Owner.UID)
			if got := after.used(); got != 8 {
				t.Errorf("%d GPUs stay charged, want the 8 of the other job", got)
			}
		})
	}
}

func TestAPodThatSucceedsWhileItsJobIsRestoredIsCountedOnce(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	of := job("a", set("init", 0, 1, 8), set("node", 1, 1, 8))
	s.pending(of)
	s.plan(of, []string{"node-0"}, []string{"node-1"})
	wl := s.workloadOfJob(of, isTrue(kueue.WorkloadAdmitted), s.admissionWritten(of))
	done := onNode(pod(of, "init", 0, "init-0"), "node-0")
	for name, tc := range map[string]struct{ listed, early bool }{
		"it is listed, and leaves its node afterwards":     {listed: true},
		"it leaves its node after the list and before all": {early: true},
		"it is listed, and leaves its node before all":     {listed: true, early: true},
	} {
		t.Run(name, func(t *testing.T) {
			after := testScene(t, 16, 8, 8)
			after.confirm(done)
			after.restoring()
			if tc.early {
				after.gone(done)
			}
			var listed []*corev1.Pod
			if tc.listed {
				listed = append(listed, done)
			}
			after.restore(of, wl, listed)
			if !tc.early {
				after.gone(done)
			}
			after.settle(true)
			after.Restored()
			if e := after.entry(of); e.set("init").succeeded[0] != 1 || !after.slot(of, "init", 0).done || e.lost() {
				t.Errorf("%d pods of its set have succeeded, the slot is %+v", e.set("init").succeeded[0], *after.slot(of, "init", 0))
			}
			if got := after.taken("node-0"); got != 0 {
				t.Errorf("%d GPUs are held for a pod that has succeeded", got)
			}
		})
	}
}

func TestAFailedStartIsCountedOnceWhenTheAnswerToItsWriteIsLost(t *testing.T) {
	s := testScene(t, 8, 8)
	lost := false
	j := s.jobsOn(t, interceptor.Funcs{SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
		err := c.SubResource(sub).Update(ctx, obj, opts...)
		if err == nil && !lost {
			lost = true
			return errUnanswered
		}
		return err
	}})
	of := job("a", set("node", 0, 1, 8))
	wl := s.stored(t, j, of)
	why := eviction{reason: kueue.WorkloadEvictedByPodsReadyTimeout, message: "late", backOff: true}
	if err := j.writeEviction(t.Context(), of.Owner.UID, why); err == nil {
		t.Fatal("the lost answer is not told")
	}
	if err := j.writeEviction(t.Context(), of.Owner.UID, why); err != nil {
		t.Fatal(err)
	}
	if got := *latest(t, j, wl).Status.RequeueState.Count; got != 1 {
		t.Errorf("%d starts are counted, want 1", got)
	}
}

func TestNoLostSlotIsPlannedAnewBeforeAllAdmittedJobsAreRead(t *testing.T) {
	j := job("a", set("node", 0, 1, 8))
	j.Queue = "q"
	stages := [2]*stage{newStage(t.Context(), t), newStage(t.Context(), t)}
	for _, s := range stages {
		s.queue("q", false, []string{"gpu"}, 16)
		s.watched.AddNode(s.logger, flavored("node-0", "gpu", 8))
	}
	before, after := stages[0], stages[1]
	before.Restored()
	before.submit(j, 0)
	before.pass()
	wl := before.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), before.admissionWritten(j))
	wl.Status.Admission.PodSetAssignments[0].TopologyAssignment = nil

	after.restore(j, wl, nil)
	after.pass()
	if !after.slot(j, "node", 0).lost() {
		t.Error("it is given room that may be that of a job which is still to be read")
	}
	after.Restored()
	after.pass()
	if after.slot(j, "node", 0).lost() {
		t.Error("it is not planned anew")
	}
}
