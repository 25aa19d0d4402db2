package scheduling

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/api/reason"
)

// mark tells an autoscaler whether nodes are missing for pods that wait: all
// pods of a job that has quota and no place are called unschedulable, and none
// of a job that waits for quota, because no node would help it.
func (r *reporter) mark(ctx context.Context, pods []*corev1.Pod, why reason.Reason) error {
	missing := why.Class == reason.NoPlacement || why.Class == reason.ExceedsCluster
	for _, pod := range pods {
		_, c := podutil.GetPodCondition(&pod.Status, corev1.PodScheduled)
		marked := c != nil && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
		if marked == missing {
			continue
		}
		want := pod.DeepCopy()
		condition := corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, ObservedGeneration: pod.Generation,
			Reason: string(why.Class), Message: clip(why.Message), LastTransitionTime: metav1.NewTime(r.clock.Now()),
		}
		if missing {
			condition.Reason = corev1.PodReasonUnschedulable
		}
		podutil.UpdatePodCondition(&want.Status, &condition)
		if err := r.client.Status().Patch(ctx, want, client.StrategicMergeFrom(pod)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("saying why pod %s/%s waits: %w", pod.Namespace, pod.Name, err)
		}
	}
	return nil
}
