package scheduling

import (
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
)

// A Workload that was evicted says Requeued as it does under Kueue, so that what
// watches for it there finds it.
func TestRequeuedSaysWhetherAJobWaitsAgain(t *testing.T) {
	later, before := metav1.NewTime(epoch0.Add(time.Minute)), metav1.NewTime(epoch0.Add(-time.Minute))
	for name, tc := range map[string]struct {
		evicted string
		change  func(*kueue.Workload)
		left    metav1.ConditionStatus
		// kept is why it waits while it is kept out, back what it says after that.
		kept reason.Class
		back string
	}{
		"preempted":                       {evicted: kueue.WorkloadEvictedByPreemption, left: metav1.ConditionTrue, back: kueue.WorkloadEvictedByPreemption},
		"preempted, with a past back-off": {kueue.WorkloadEvictedByPreemption, requeued(before), metav1.ConditionTrue, "", kueue.WorkloadEvictedByPreemption},
		"did not start":                   {kueue.WorkloadEvictedByPodsReadyTimeout, requeued(later), metav1.ConditionFalse, reason.BackingOff, kueue.WorkloadBackoffFinished},
		"its LocalQueue was drained":      {kueue.WorkloadEvictedByLocalQueueStopped, nil, metav1.ConditionFalse, reason.QueueInactive, kueue.WorkloadLocalQueueRestarted},
		"its ClusterQueue was drained":    {kueue.WorkloadEvictedByClusterQueueStopped, nil, metav1.ConditionFalse, reason.QueueInactive, kueue.WorkloadClusterQueueRestarted},
		"deactivated":                     {kueue.WorkloadDeactivated, parked, metav1.ConditionFalse, reason.Deactivated, kueue.WorkloadReactivated},
		"deactivated for its time":        {deactivatedDueTo + kueue.WorkloadMaximumExecutionTimeExceeded, parked, metav1.ConditionFalse, reason.Deactivated, kueue.WorkloadReactivated},
		"changed, and waits at once":      {evicted: evictedByPodSetsChange, left: metav1.ConditionTrue, back: evictedByPodSetsChange},
	} {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 8, 8)
			j := s.jobsOn(t, interceptor.Funcs{})
			wl := &kueue.Workload{}
			if tc.change != nil {
				tc.change(wl)
			}
			says := func(status metav1.ConditionStatus, why string) {
				t.Helper()
				c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadRequeued)
				if c == nil || c.Status != status || c.Reason != why {
					t.Errorf("it says %+v, want %s (%s)", c, status, why)
				}
			}
			j.condition(wl, kueue.WorkloadEvicted, metav1.ConditionTrue, tc.evicted, "m")
			j.sayRequeued(wl)
			says(tc.left, tc.evicted)
			if tc.kept != "" {
				j.sayBack(wl, tc.kept)
				says(tc.left, tc.evicted)
			}
			told := wl.DeepCopy()
			j.sayBack(wl, reason.WaitingForQuota)
			says(metav1.ConditionTrue, tc.back)
			wl = told
			j.sayBack(wl, "")
			says(metav1.ConditionTrue, tc.back)
		})
	}
	t.Run("never evicted", func(t *testing.T) {
		s := testScene(t, 8, 8)
		j, wl := s.jobsOn(t, interceptor.Funcs{}), &kueue.Workload{}
		j.sayRequeued(wl)
		j.sayBack(wl, "")
		if len(wl.Status.Conditions) > 0 {
			t.Errorf("it says %+v", wl.Status.Conditions)
		}
	})
}

func requeued(at metav1.Time) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		wl.Status.RequeueState = &kueue.RequeueState{Count: new(int32(1)), RequeueAt: &at}
	}
}

func parked(wl *kueue.Workload) { wl.Spec.Active = new(false) }
