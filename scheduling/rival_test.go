package scheduling

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics/testutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-gpu/muster/metrics"
)

func TestALiveKueueManagerIsToldOnceForTheWholeCluster(t *testing.T) {
	s := testScene(t, 8, 8)
	renewed := metav1.NewMicroTime(epoch0)
	j := s.jobsOn(t, interceptor.Funcs{}, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: kueueLease.Namespace, Name: kueueLease.Name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("kueue-0"), RenewTime: &renewed, LeaseDurationSeconds: new(int32(15))},
	})
	events := j.recorder.(*record.FakeRecorder).Events
	look := func(want float64, told int) {
		t.Helper()
		if err := j.lookForRival(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, err := testutil.GetGaugeMetricValue(metrics.AnotherScheduler); err != nil || got != want {
			t.Errorf("muster_another_scheduler is %v (%v), want %v", got, err, want)
		}
		if len(events) != told {
			t.Errorf("%d events, want %d", len(events), told)
		}
	}
	waits := s.pending(job("a", set("node", 0, 1, 8)))
	look(1, 1)
	if s.wishes.synced[keyOf(waits.Owner)] == 0 {
		t.Error("the jobs are not looked at again")
	}
	look(1, 1)
	if got := <-events; !strings.Contains(got, "Warning AnotherScheduler Muster admits nothing: a Kueue manager (kueue-0)") {
		t.Errorf("event %q", got)
	}
	s.clock.Step(time.Minute)
	look(0, 0)
	s.clock.SetTime(epoch0)
	look(1, 1)
	// It has given the Lease back.
	lease := &coordinationv1.Lease{}
	if err := j.client.Get(t.Context(), kueueLease, lease); err != nil {
		t.Fatal(err)
	}
	lease.Spec.HolderIdentity = new("")
	if err := j.client.Update(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	look(0, 1)
	lease.Spec.HolderIdentity = new("kueue-1")
	if err := j.client.Update(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	s.follow()
	look(0, 1)
}
