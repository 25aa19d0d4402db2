package scheduling

import (
	"context"
	"errors"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
		if failedThere(info.Pod, status) {
			c.ledger.failed(info.Pod)
		}
		logger := klog.FromContext(ctx)
		logger.V(2).Info("Pod of a gang not scheduled, its slot is held", "pod", klog.KObj(info.Pod), "status", status.Message())
		c.requeue(logger, fw, info)
	}
}

// enough is how often in a row a pod may fail to be bound on its node before
// another one is looked for.
const enough = 2

// failedThere says that a pod could not be bound on its node although Filter
// had let it through, for a reason that may lie in the node. It does not lie
// there if we have sent the pod back ourselves, with others of its gang, or if
// the API did not answer.
func failedThere(pod *corev1.Pod, status *fwk.Status) bool {
	var fit *framework.FitError
	err := status.AsError()
	switch {
	case errors.As(err, &fit):
		return pod.Spec.NodeName != "" && !fit.Diagnosis.UnschedulablePlugins.Has(PluginName)
	case status.IsRejected():
		return pod.Spec.NodeName != ""
	}
	var noAnswer *url.Error
	return !errors.As(err, &noAnswer) && !apierrors.IsTooManyRequests(err) && !apierrors.IsServerTimeout(err) &&
		!apierrors.IsTimeout(err) && !apierrors.IsServiceUnavailable(err) && !apierrors.IsInternalError(err)
}

// failed counts that the pod of a slot, which has been given back, could not be
// bound on its node. After enough such failures the slot is planned anew, on
// another node if there is one.
func (l *Ledger) failed(pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, e, _ := l.jobOf(pod)
	if m != member || e.state != Admitted {
		return
	}
	s, seated := e.seats[pod.UID]
	if !seated || s.occupied() || s.node == "" || l.isAway(e, s) {
		return
	}
	if s.failures++; s.failures >= enough {
		s.avoid = s.node
		l.lose(e, s)
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
