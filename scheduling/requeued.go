package scheduling

import (
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
)

// The condition Requeued says of a Workload that was evicted whether it waits in
// its queue again, as Kueue has it: with the reason of the eviction when it has
// left, and with that of the end where something else kept it out of the queue.

// sayRequeued says it of a Workload that has left.
func (j *Jobs) sayRequeued(wl *kueue.Workload) {
	c := saysEvicted(wl)
	if c == nil {
		return
	}
	status := metav1.ConditionTrue
	switch {
	case c.Reason == kueue.WorkloadEvictedByLocalQueueStopped, c.Reason == kueue.WorkloadEvictedByClusterQueueStopped,
		isParked(wl), requeueAt(wl).After(j.clock.Now()):
		status = metav1.ConditionFalse
	}
	j.condition(wl, kueue.WorkloadRequeued, status, c.Reason, c.Message)
}

// isParked says that somebody, or its eviction, has deactivated a Workload.
func isParked(wl *kueue.Workload) bool { return wl.Spec.Active != nil && !*wl.Spec.Active }

// sayBack says of a Workload that was kept out of its queue that it is not any
// more. now is why it waits now; a job that is admitted waits for nothing.
func (j *Jobs) sayBack(wl *kueue.Workload, now reason.Class) {
	c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadRequeued)
	if c == nil || c.Status != metav1.ConditionFalse {
		return
	}
	why, message := "", ""
	switch {
	case c.Reason == kueue.WorkloadEvictedByLocalQueueStopped:
		why, message = kueue.WorkloadLocalQueueRestarted, "Its LocalQueue is open again"
	case c.Reason == kueue.WorkloadEvictedByClusterQueueStopped:
		why, message = kueue.WorkloadClusterQueueRestarted, "Its ClusterQueue is open again"
	case strings.HasPrefix(c.Reason, kueue.WorkloadDeactivated):
		why, message = kueue.WorkloadReactivated, "It was activated again"
	default:
		why, message = kueue.WorkloadBackoffFinished, "Its back-off is over"
	}
	kept := now == reason.Deactivated || now == reason.BackingOff && why == kueue.WorkloadBackoffFinished ||
		now == reason.QueueInactive && (why == kueue.WorkloadLocalQueueRestarted || why == kueue.WorkloadClusterQueueRestarted)
	if !kept {
		j.condition(wl, kueue.WorkloadRequeued, metav1.ConditionTrue, why, message)
	}
}
