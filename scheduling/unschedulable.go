package scheduling

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/api/reason"
)

// mark tells an autoscaler whether nodes are missing for pods that wait: all
// pods of a job that has quota and no place are called unschedulable, and none
// of a job that needs no more nodes, such as one that waits for quota. Those say their
// class of reason instead. A pod with scheduling gates says these. One that cannot be
// told keeps no other from being told: an autoscaler needs to see all of them.
func (r *reporter) mark(ctx context.Context, pods []*corev1.Pod, why reason.Reason, needsNoNodes bool) error {
	var failed []error
	missing := (why.Class == reason.NoPlacement || why.Class == reason.ExceedsCluster) && !needsNoNodes
	for _, pod := range pods {
		says := string(why.Class)
		if missing {
			says = corev1.PodReasonUnschedulable
		}
		_, c := podutil.GetPodCondition(&pod.Status, corev1.PodScheduled)
		if (c != nil && c.Status == corev1.ConditionFalse && c.Reason == says) || len(pod.Spec.SchedulingGates) > 0 {
			continue
		}
		want := pod.DeepCopy()
		condition := corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, ObservedGeneration: pod.Generation,
			Reason: says, Message: clip(why.Message), LastTransitionTime: metav1.NewTime(r.clock.Now()),
		}
		podutil.UpdatePodCondition(&want.Status, &condition)
		if err := r.client.Status().Patch(ctx, want, client.StrategicMergeFrom(pod)); client.IgnoreNotFound(err) != nil {
			failed = append(failed, fmt.Errorf("saying why pod %s/%s waits: %w", pod.Namespace, pod.Name, err))
		}
	}
	return errors.Join(failed...)
}
