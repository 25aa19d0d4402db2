package e2e

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/internal/simulator"
	"github.com/muster-gpu/muster/workload"
)

// TestPods tells stories of pods that no job owns.
func TestPods(t *testing.T) {
	c := up(t, "pods")
	tellAll(t, c, "pods", anyJobs, []story[team]{
		{"a single pod waits its turn and runs", singlePod},
		{"a pod group starts whole, outlives a killed scheduler, and finishes", podGroup},
		{"a deactivated group leaves its nodes whole", podGroupDeactivated},
		{"a PodGroup of the coscheduling plugin starts when its members are there", coschedulingGroup},
	})
}

// alone is a pod that nobody owns. It runs until it is deleted, unless
// annotations say otherwise.
func (tm team) alone(name string, gpus int64, labels, annotations map[string]string) *corev1.Pod {
	limits := corev1.ResourceList{gpu: *resource.NewQuantity(gpus, resource.DecimalSI)}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: tm.namespace, Name: name, Labels: labels, Annotations: annotations},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "c", Image: "example.com/x", Resources: corev1.ResourceRequirements{Limits: limits}}},
		},
	}
}

// members are n pods of one of Kueue's pod groups.
func (tm team) members(group, queue string, n int, gpus int64, annotations map[string]string) []*corev1.Pod {
	var out []*corev1.Pod
	for i := range n {
		all := map[string]string{workload.KueueGroupCountAnnotation: strconv.Itoa(n)}
		for k, v := range annotations {
			all[k] = v
		}
		out = append(out, tm.alone(fmt.Sprintf("%s-%d", group, i), gpus,
			map[string]string{workload.QueueLabel: queue, workload.KueueGroupLabel: group}, all))
	}
	return out
}

func (tm team) make(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := tm.client.Create(t.Context(), o); err != nil {
			t.Fatalf("creating %s: %v", o.GetName(), err)
		}
	}
}

// started waits until pods run.
func (tm team) started(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		eventually(t, pod.Name+" to run", func(ctx context.Context) error {
			err := tm.client.Get(ctx, client.ObjectKeyFromObject(pod), pod)
			if err == nil && pod.Status.Phase != corev1.PodRunning {
				err = fmt.Errorf("it is %s on node %q: %+v", pod.Status.Phase, pod.Spec.NodeName, pod.Status.Conditions)
			}
			return err
		})
	}
}

func singlePod(t *testing.T, tm team) {
	tm.queueUp(t, "q", 8)
	queue := map[string]string{workload.QueueLabel: "q"}
	first, second := tm.alone("first", 8, queue, nil), tm.alone("second", 8, queue, nil)
	tm.make(t, first)
	tm.started(t, first)
	tm.make(t, second)
	tm.usage(t, "q", 8, 1, 1)
	if err := tm.client.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	tm.started(t, second)
	tm.usage(t, "q", 8, 1, 0)
}

// podWaits waits until a pod says in its condition PodScheduled why it waits.
func (tm team) podWaits(t *testing.T, pod *corev1.Pod, why reason.Class) {
	t.Helper()
	eventually(t, fmt.Sprintf("pod %s to say %s", pod.Name, why), func(ctx context.Context) error {
		have := &corev1.Pod{}
		if err := tm.client.Get(ctx, client.ObjectKeyFromObject(pod), have); err != nil {
			return err
		}
		for _, c := range have.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == string(why) {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %+v", have.Status.Conditions)
	})
}

func podGroup(t *testing.T, tm team) {
	tm.queueUp(t, "q", 32)
	pods := tm.members("gang", "q", 4, 4, map[string]string{simulator.RunForAnnotation: "8s"})
	for _, pod := range pods[:3] {
		tm.make(t, pod)
	}
	tm.podWaits(t, pods[0], reason.WaitingForPods)
	tm.make(t, pods[3])
	tm.started(t, pods...)
	tm.usage(t, "q", 16, 1, 0)
	tm.kill(t, "muster-scheduler")
	tm.restart(t, "muster-scheduler")
	eventually(t, "the group to finish", func(ctx context.Context) error {
		wl := &kueue.Workload{}
		if err := tm.client.Get(ctx, client.ObjectKey{Namespace: tm.namespace, Name: "gang"}, wl); err != nil {
			return err
		}
		if !apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished) {
			return fmt.Errorf("its conditions are %+v", wl.Status.Conditions)
		}
		return nil
	})
	tm.usage(t, "q", 0, 0, 0)
}

func podGroupDeactivated(t *testing.T, tm team) {
	tm.queueUp(t, "q", 32)
	pods := tm.members("gang", "q", 2, 4, nil)
	for _, pod := range pods {
		tm.make(t, pod)
	}
	tm.started(t, pods...)
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: tm.namespace, Name: "gang"}}
	if err := tm.client.Patch(t.Context(), wl, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"active":false}}`))); err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods {
		eventually(t, pod.Name+" to be evicted", func(ctx context.Context) error {
			if err := tm.client.Get(ctx, client.ObjectKeyFromObject(pod), pod); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is there (%v)", err)
			}
			return nil
		})
	}
	tm.usage(t, "q", 0, 0, 0)
}

func coschedulingGroup(t *testing.T, tm team) {
	tm.queueUp(t, "q", 32)
	group := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"minMember": int64(2)}}}
	group.SetGroupVersionKind(workload.PodGroupGVK)
	group.SetNamespace(tm.namespace)
	group.SetName("gang")
	group.SetLabels(map[string]string{workload.QueueLabel: "q"})
	member := map[string]string{workload.PodGroupLabel: "gang"}
	a, b := tm.alone("a", 8, member, nil), tm.alone("b", 8, member, nil)
	tm.make(t, a)
	tm.podWaits(t, a, reason.PodGroupNotFound)
	tm.make(t, group)
	tm.podWaits(t, a, reason.WaitingForPods)
	tm.make(t, b)
	tm.started(t, a, b)
	tm.usage(t, "q", 16, 1, 0)
	eventually(t, "the PodGroup to say that it runs", func(ctx context.Context) error {
		if err := tm.client.Get(ctx, client.ObjectKeyFromObject(group), group); err != nil {
			return err
		}
		if phase, _, _ := unstructured.NestedString(group.Object, "status", "phase"); phase != "Running" {
			return fmt.Errorf("its status is %v", group.Object["status"])
		}
		return nil
	})
}
