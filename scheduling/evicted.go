package scheduling

import (
	"context"
	"fmt"
	"math"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/metrics"
	"github.com/muster-gpu/muster/workload"
)

// writeEviction says in the Workload that it is being stopped, before its
// owner is suspended. A job that failed to start too often is deactivated
// first, so that a crash in between cannot forget it; one whose eviction says
// that it is deactivated, after that, and a restart reads it from there.
func (j *Jobs) writeEviction(ctx context.Context, uid types.UID, why eviction) error {
	if err := j.sayEvicted(ctx, uid, why); err != nil || !why.deactivates() {
		return err
	}
	return j.deactivate(ctx, uid)
}

func (j *Jobs) deactivate(ctx context.Context, uid types.UID) error {
	defer j.writesOf.one(uid)()
	wl := j.ledger.workloadOf(uid)
	if wl == nil || isParked(wl) {
		return nil
	}
	stop := wl.DeepCopy()
	stop.Spec.Active = new(false)
	// Nothing but that is written: the Workload may be Kueue's, with fields of a newer one.
	onlyThat := client.MergeFromWithOptions(wl, client.MergeFromWithOptimisticLock{})
	if err := j.client.Patch(ctx, stop, onlyThat); err != nil {
		return fmt.Errorf("deactivating Workload %s: %w", klog.KObj(wl), err)
	}
	j.ledger.observe(uid, stop)
	return nil
}

func (j *Jobs) sayEvicted(ctx context.Context, uid types.UID, why eviction) error {
	wl := j.ledger.workloadOf(uid)
	if wl == nil || why.isSaid(wl) {
		return nil
	}
	if why.backOff && j.tooManyStarts(wl) {
		if err := j.deactivate(ctx, uid); err != nil {
			return err
		}
		why.reason = deactivatedDueTo + kueue.WorkloadRequeuingLimitExceeded
		why.message = fmt.Sprintf("it failed to start %d times in a row, the last time: %s", *j.timing.Backoff.Limit+1, why.message)
		why.backOff = false
	}
	err := j.change(ctx, uid, func(wl *kueue.Workload) {
		if why.isSaid(wl) {
			// An earlier try has come through, and its start is counted.
			return
		}
		j.condition(wl, kueue.WorkloadEvicted, metav1.ConditionTrue, why.reason, why.message)
		j.sayPreempted(wl, why)
		if why.backOff {
			j.backOff(wl)
		}
	})
	if err != nil {
		return fmt.Errorf("writing the eviction: %w", err)
	}
	metrics.Evicted(j.ledger.clusterQueueOf(uid), why.reason)
	return nil
}

// isSaid says that a Workload tells of this eviction. Where its admission is
// still to be written, it may tell of the one before.
func (why eviction) isSaid(wl *kueue.Workload) bool {
	c := saysEvicted(wl)
	return c != nil && (wl.Status.Admission != nil || c.Message == clip(why.message))
}

// saysEvicted is the condition of a Workload that is evicted, nil of another.
func saysEvicted(wl *kueue.Workload) *metav1.Condition {
	if c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted); c != nil && c.Status == metav1.ConditionTrue {
		return c
	}
	return nil
}

// starts is the number of failed starts that a Workload has counted.
func starts(wl *kueue.Workload) int32 {
	if wl == nil {
		return 0
	}
	if r := wl.Status.RequeueState; r != nil && r.Count != nil {
		return *r.Count
	}
	return 0
}

func (j *Jobs) tooManyStarts(wl *kueue.Workload) bool {
	return j.timing.Backoff.spent(int(starts(wl)) + 1)
}

// backOff counts a failed start and sets the time of the next, doubled each
// time.
func (j *Jobs) backOff(wl *kueue.Workload) {
	count := starts(wl) + 1
	at := metav1.NewTime(j.clock.Now().Add(j.timing.Backoff.wait(int(count))).Truncate(time.Second))
	wl.Status.RequeueState = &kueue.RequeueState{Count: &count, RequeueAt: &at}
}

// writeRequeue makes the Workload of a job that has left its nodes pending.
func (j *Jobs) writeRequeue(ctx context.Context, job *workload.Job) error {
	err := j.change(ctx, job.Owner.UID, func(wl *kueue.Workload) {
		if wl.Status.Admission == nil && !isAdmitted(wl) {
			return
		}
		wl.Status.Admission, wl.Status.ReclaimablePods = nil, nil
		j.sayRequeued(wl)
		j.sayNotIdle(wl, stoppedIdle)
		j.countExecuted(wl)
		j.sayWaiting(wl)
		if isParked(wl) {
			// Who activates it again starts counting from zero.
			wl.Status.RequeueState = nil
		}
		j.condition(wl, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "Pending", "The job was stopped and waits again")
		j.condition(wl, kueue.WorkloadAdmitted, metav1.ConditionFalse, "NoReservation", "The workload has no reservation")
	})
	if err != nil {
		return fmt.Errorf("writing the requeue: %w", err)
	}
	j.ledger.left(job.Owner.UID)
	return nil
}

// countExecuted adds the admission that ends to the time for which a Workload
// has been admitted. Who activates a job again whose time was up gives it all
// of it anew.
func (j *Jobs) countExecuted(wl *kueue.Workload) {
	if c := saysEvicted(wl); c != nil && c.Reason == deactivatedDueTo+kueue.WorkloadMaximumExecutionTimeExceeded {
		wl.Status.AccumulatedPastExecutionTimeSeconds = nil
		return
	}
	const most = float64(math.MaxInt32)
	wl.Status.AccumulatedPastExecutionTimeSeconds = new(int32(min(executed(wl, j.clock.Now()).Seconds(), most)))
}
