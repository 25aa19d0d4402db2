package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/internal/sandbox"
	"github.com/muster-gpu/muster/workload"
)

// TestNativePodGroups tells stories of Kubernetes' own PodGroups, in a sandbox that
// has them.
func TestNativePodGroups(t *testing.T) {
	c := up(t, "native-groups", func(o *sandbox.Options) {
		o.NativePodGroups, o.With = true, []string{sandbox.WithJobSet, sandbox.WithScheduler}
	})
	tellAll(t, c, "native", anyJobs, []story[team]{
		{"a PodGroup with a gang policy starts when as many pods are there as it says", nativeGang},
		{"the pods of one with a basic policy start one by one", nativeBasic},
	})
}

// nativePods are pods of Kubernetes' PodGroup of that name, with gpus GPUs each.
func (tm team) nativePods(group string, gpus int64, names ...string) []*corev1.Pod {
	var out []*corev1.Pod
	for _, name := range names {
		pod := tm.alone(name, gpus, nil, nil)
		pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group}
		out = append(out, pod)
	}
	return out
}

func (tm team) nativeGroup(name string, policy schedulingv1beta1.PodGroupSchedulingPolicy) *schedulingv1beta1.PodGroup {
	return &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: tm.namespace, Name: name, Labels: map[string]string{workload.QueueLabel: "q"}},
		Spec:       schedulingv1beta1.PodGroupSpec{SchedulingPolicy: policy},
	}
}

func nativeGang(t *testing.T, tm team) {
	tm.queueUp(t, "q", 32)
	pods := tm.nativePods("gang", 8, "a", "b")
	tm.make(t, pods[0])
	tm.podWaits(t, pods[0], reason.PodGroupNotFound)
	tm.make(t, tm.nativeGroup("gang", schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: 2}}))
	tm.podWaits(t, pods[0], reason.WaitingForPods)
	tm.make(t, pods[1])
	tm.started(t, pods...)
	tm.usage(t, "q", 16, 1, 0)
}

func nativeBasic(t *testing.T, tm team) {
	tm.queueUp(t, "q", 8)
	pods := tm.nativePods("service", 8, "a", "b")
	tm.make(t, tm.nativeGroup("service", schedulingv1beta1.PodGroupSchedulingPolicy{Basic: &schedulingv1beta1.BasicSchedulingPolicy{}}))
	tm.make(t, pods[0])
	tm.started(t, pods[0])
	tm.make(t, pods[1])
	tm.podWaits(t, pods[1], reason.WaitingForQuota)
	tm.usage(t, "q", 8, 1, 1)
	if err := tm.client.Delete(t.Context(), pods[0]); err != nil {
		t.Fatal(err)
	}
	tm.started(t, pods[1])
}
