package scheduling

import (
	"context"
	"time"

	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-gpu/muster/placement"
)

// failureHandler keeps the members of a gang out of the scheduler's own
// failure path: a single pod of a gang gets neither an Unschedulable
// condition, which would call an autoscaler for capacity that is held, nor a
// FailedScheduling event. Its slot is held again, and planned anew where its
// node no longer takes it, unless a claim that it shares with a pod before it
// is just being met: the pod comes back to the same slot after a moment.
func (c *Cycle) failureHandler(upstream scheduler.FailureHandlerFn) scheduler.FailureHandlerFn {
	return func(ctx context.Context, fw framework.Framework, info *framework.QueuedPodInfo, status *fwk.Status, nominating *fwk.NominatingInfo, start time.Time) {
		if !c.ledger.GiveBack(info.Pod, status.IsRejected() && !placement.AwaitsClaim(fw, info.Pod)) {
			upstream(ctx, fw, info, status, nominating, start)
			return
		}
		logger := klog.FromContext(ctx)
		logger.V(2).Info("Pod of a gang not scheduled, its slot is held", "pod", klog.KObj(info.Pod), "status", status.Message())
		c.requeue(logger, fw, info)
	}
}

// requeue returns a gang's pod to the queue. Without rejector plugins it backs
// off and comes back by itself; a new plan wakes it earlier.
func (c *Cycle) requeue(logger klog.Logger, fw framework.Framework, info *framework.QueuedPodInfo) {
	queue := c.sched.SchedulingQueue
	pod, err := fw.SharedInformerFactory().Core().V1().Pods().Lister().Pods(info.Pod.Namespace).Get(info.Pod.Name)
	if err != nil || pod.UID != info.Pod.UID || pod.Spec.NodeName != "" {
		queue.Done(info.Pod.UID)
		return
	}
	again := info.DeepCopy()
	again.ClearRejectorPlugins()
	// The error is that of an affinity term the API server let through; the
	// pod would be refused again by the same plugin.
	again.PodInfo, _ = framework.NewPodInfo(pod.DeepCopy())
	if err := queue.AddUnschedulablePodIfNotPresent(logger, again, queue.SchedulingCycle()); err != nil {
		logger.Error(err, "Returning a gang's pod to the queue", "pod", klog.KObj(pod))
		queue.Done(info.Pod.UID)
	}
}
