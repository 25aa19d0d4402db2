package scheduling

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// TestPodsReady follows one Workload through an admission: what it says of its
// pods, and that it is written only when that changes.
func TestPodsReady(t *testing.T) {
	s := testScene(t, 8, 8)
	writes := 0
	j := s.jobsOn(t, interceptor.Funcs{SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
		writes++
		return c.SubResource(sub).Update(ctx, obj, opts...)
	}})
	of := job("a", set("init", 0, 1, 1), set("node", 1, 2, 1))
	wl := s.stored(t, j, of)
	// sync does what is to be done for the owner.
	sync := func() {
		t.Helper()
		want := s.read(running(of), s.workloadOf(of.Owner.UID), nil)
		if err := j.act(t.Context(), nil, nil, running(of), want); err != nil {
			t.Fatal(err)
		}
	}
	says := func(when string, status metav1.ConditionStatus, why string, afterWrites int) {
		t.Helper()
		sync()
		c := apimeta.FindStatusCondition(latest(t, j, wl).Status.Conditions, kueue.WorkloadPodsReady)
		if c == nil || c.Status != status || c.Reason != why {
			t.Errorf("%s: PodsReady is %+v, want %s, %s", when, c, status, why)
		}
		if diff := cmp.Diff(afterWrites, writes); diff != "" {
			t.Errorf("%s: writes (-want +got):\n%s", when, diff)
		}
	}
	failed := latest(t, j, wl)
	failed.Status.RequeueState = &kueue.RequeueState{Count: new(int32(3))}
	if err := j.client.Status().Update(t.Context(), failed); err != nil {
		t.Fatal(err)
	}
	s.observe(of.Owner.UID, failed)
	writes = 0
	s.plan(of, []string{"node-0"}, []string{"node-0", "node-0"})
	if err := j.writeAdmission(t.Context(), of.Owner.UID); err != nil {
		t.Fatal(err)
	}
	says("admitted", metav1.ConditionFalse, "WaitForStart", 1)
	first := s.bindAll(pods(of, "init", "init")...)
	s.become(true, first...)
	says("the first phase runs", metav1.ConditionFalse, "WaitForStart", 1)
	s.gone(first[0])
	s.settle(true)
	nodes := s.bindAll(pods(of, "node", "node")...)
	s.become(true, nodes[0])
	says("one node is ready", metav1.ConditionFalse, "WaitForStart", 1)
	s.wishes.synced = map[JobKey]int{}
	s.become(true, nodes[1])
	if s.wishes.synced[keyOf(of.Owner)] == 0 {
		t.Error("the owner is not looked at when the last pod becomes ready")
	}
	says("all are ready", metav1.ConditionTrue, "Started", 2)
	if r := latest(t, j, wl).Status.RequeueState; r != nil {
		t.Errorf("failed starts still count: %+v", r)
	}
	s.become(false, nodes...)
	s.become(true, nodes...)
	says("they were unready for a while", metav1.ConditionTrue, "Started", 2)
	s.entry(of).moveTo(s.slot(of, "node", 0), "node-0")
	if err := j.writeAdmission(t.Context(), of.Owner.UID); err != nil {
		t.Fatal(err)
	}
	says("a slot has a new node", metav1.ConditionTrue, "Started", 3)
	s.gone(nodes[1])
	s.settle(false)
	s.tick(Timing{StartTimeout: time.Hour})
	says("a pod has just gone", metav1.ConditionTrue, "Started", 3)
	s.clock.Step(goneFor)
	s.wishes.synced = map[JobKey]int{}
	s.tick(Timing{StartTimeout: time.Hour})
	if s.wishes.synced[keyOf(of.Owner)] == 0 {
		t.Error("the owner is not looked at when a pod has been gone for a while")
	}
	says("a pod has been gone for a while", metav1.ConditionFalse, "WaitForRecovery", 4)
	if got := apimeta.FindStatusCondition(latest(t, j, wl).Status.Conditions, kueue.WorkloadPodsReady).Message; got != "1 of 3 pods has gone; others are waited for" {
		t.Errorf("it says %q", got)
	}
	s.tick(Timing{StartTimeout: time.Hour})
	says("and is gone still", metav1.ConditionFalse, "WaitForRecovery", 4)
	if _, all := s.entry(of).readiness(1); all != 2 || !s.entry(of).allReady() {
		t.Error("what has been ready counts no more")
	}
	again := pod(of, "node", 1, "again")
	s.bindAll(again)
	s.tick(Timing{StartTimeout: time.Hour})
	says("another one has come", metav1.ConditionTrue, "Recovered", 5)
}
