package integration

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/internal/testcluster"
	"github.com/muster-gpu/muster/workload"
)

// pod is a pod that nobody owns.
func (e *env) pod(name string, gpuCount int64, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name, Labels: labels},
		Spec: corev1.PodSpec{
			SchedulerName: "muster", TerminationGracePeriodSeconds: new(int64(0)), RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{Name: "c", Image: "example.com/x", Resources: corev1.ResourceRequirements{Limits: gpus(gpuCount)}}},
		},
	}
}

func queued(queue string) map[string]string { return map[string]string{workload.QueueLabel: queue} }

// group is n pods of one of Kueue's pod groups.
func (e *env) group(name, queue string, n int, gpuCount int64) []*corev1.Pod {
	var out []*corev1.Pod
	for i := range n {
		pod := e.pod(fmt.Sprintf("%s-%d", name, i), gpuCount, queued(queue))
		pod.Labels[workload.KueueGroupLabel] = name
		pod.Annotations = map[string]string{workload.KueueGroupCountAnnotation: fmt.Sprint(n)}
		out = append(out, pod)
	}
	return out
}

// podGroup is a PodGroup object in a queue.
func (e *env) podGroup(name, queue string, minMember int64) *unstructured.Unstructured {
	group := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"minMember": minMember}}}
	group.SetGroupVersionKind(workload.PodGroupGVK)
	group.SetNamespace(e.namespace)
	group.SetName(name)
	group.SetLabels(queued(queue))
	return group
}

// now is a pod as the API has it.
func (e *env) now(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	have := &corev1.Pod{}
	return have, e.Client.Get(ctx, client.ObjectKeyFromObject(pod), have)
}

// onNode waits until the pods are on nodes.
func (e *env) onNode(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		testcluster.Eventually(t, pod.Name+" to be on a node", func(ctx context.Context) error {
			have, err := e.now(ctx, pod)
			if err == nil && have.Spec.NodeName == "" {
				err = fmt.Errorf("its conditions are %+v", have.Status.Conditions)
			}
			return err
		})
	}
}

// waits checks that none of the pods is on a node.
func (e *env) waits(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		if have, err := e.now(t.Context(), pod); err != nil || have.Spec.NodeName != "" {
			t.Fatalf("%s is on node %q (%v), and should wait", pod.Name, have.Spec.NodeName, err)
		}
	}
}

// podEvent waits for an event on a pod.
func (e *env) podEvent(t *testing.T, pod *corev1.Pod, why, part string) {
	t.Helper()
	e.eventOn(t, pod.Name, pod.UID, why, part)
}

// unschedulable waits until a pod is, or is not, called unschedulable.
func (e *env) unschedulable(t *testing.T, pod *corev1.Pod, want bool) {
	t.Helper()
	testcluster.Eventually(t, fmt.Sprintf("%s unschedulable: %v", pod.Name, want), func(ctx context.Context) error {
		have, err := e.now(ctx, pod)
		if err != nil {
			return err
		}
		for _, c := range have.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
				if want {
					return nil
				}
				return fmt.Errorf("it is: %+v", c)
			}
		}
		if want {
			return fmt.Errorf("its conditions are %+v", have.Status.Conditions)
		}
		return nil
	})
}

// saysScheduled waits until a pod that waits says why in its condition PodScheduled.
func (e *env) saysScheduled(t *testing.T, pod *corev1.Pod, why, part string) {
	t.Helper()
	testcluster.Eventually(t, fmt.Sprintf("%s to say %s", pod.Name, why), func(ctx context.Context) error {
		have, err := e.now(ctx, pod)
		if err != nil {
			return err
		}
		_, c := podutil.GetPodCondition(&have.Status, corev1.PodScheduled)
		if c == nil || c.Status != corev1.ConditionFalse || c.Reason != why || !strings.Contains(c.Message, part) {
			return fmt.Errorf("the condition is %+v", c)
		}
		return nil
	})
}

// succeed ends pods as their kubelet would.
func (e *env) succeed(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	e.become(t, corev1.PodSucceeded, pods...)
}

// become has pods be in a phase.
func (e *env) become(t *testing.T, phase corev1.PodPhase, pods ...*corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		testcluster.Eventually(t, pod.Name+" to be "+string(phase), func(ctx context.Context) error {
			have, err := e.now(ctx, pod)
			if err != nil {
				return err
			}
			have.Status.Phase = phase
			return e.Client.Status().Update(ctx, have)
		})
	}
}

// groupFinished waits until the Workload of one of Kueue's groups is finished.
func (e *env) groupFinished(t *testing.T, name string) {
	t.Helper()
	testcluster.Eventually(t, "Workload "+name+" to be finished", func(ctx context.Context) error {
		wl := &kueue.Workload{}
		if err := e.Client.Get(ctx, client.ObjectKey{Namespace: e.namespace, Name: name}, wl); err != nil {
			return err
		}
		if !apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished) {
			return fmt.Errorf("its conditions are %+v", wl.Status.Conditions)
		}
		return nil
	})
}

func init() {
	scenarios = append(scenarios, podScenarios...)
}

var podScenarios = []scenario{
	{name: "a single pod waits for quota, uncalled, then runs, and its quota ends with it", run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.Queue(t, e.namespace, "team", 4)
		first, second := e.pod("first", 4, queued("team")), e.pod("second", 4, queued("team"))
		e.Create(t, first)
		e.onNode(t, first)
		e.podEvent(t, first, "Admitted", "admitted: 4 GPUs on node-0 from queue team")
		e.Create(t, second)
		e.podEvent(t, second, "Pending", "pending: needs 4 GPUs in queue team, 0 of 4 free")
		e.usage(t, "team", 4, 1, 1)
		e.waits(t, second)
		e.unschedulable(t, second, false)
		e.saysScheduled(t, second, "WaitingForQuota", "needs 4 GPUs in queue team, 0 of 4 free")
		e.succeed(t, first)
		e.onNode(t, second)
		if err := e.Client.Delete(t.Context(), second); err != nil {
			t.Fatal(err)
		}
		e.usage(t, "team", 0, 0, 0)
	}},
	{name: "a pod group of two roles starts whole, keeps its slots over a restart of the scheduler, and finishes", run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.Queue(t, e.namespace, "team", 64)
		pods := e.group("gang", "team", 3, 3)
		// A launcher: the same group, another role.
		pods[2].Spec.Containers[0].Resources = corev1.ResourceRequirements{}
		e.Create(t, pods[0])
		e.podEvent(t, pods[0], "Pending", "1 of 3 pods of group gang exist")
		e.Create(t, pods[1])
		e.waits(t, pods[0], pods[1])
		e.Create(t, pods[2])
		e.onNode(t, pods...)
		e.usage(t, "team", 6, 1, 0)
		full := e.group("gang", "team", 3, 3)[0]
		full.Name = "gang-3"
		e.Create(t, full)
		e.podEvent(t, full, "GroupFull", "group gang has its 3 pods; this one waits until one of them goes")
		if err := e.Client.Delete(t.Context(), full); err != nil {
			t.Fatal(err)
		}
		waiter := e.pod("waiter", 3, queued("team"))
		e.Create(t, waiter)
		e.podEvent(t, waiter, "Pending", "needs 3 GPUs; 2 GPUs are free")
		e.restart(t)
		e.usage(t, "team", 6, 1, 1)
		// A pod deleted by hand comes back to its slot, not the one that waits.
		if err := e.Client.Delete(t.Context(), pods[0]); err != nil {
			t.Fatal(err)
		}
		e.usage(t, "team", 6, 1, 1)
		again := e.group("gang", "team", 3, 3)[0]
		again.Name = "gang-0-again"
		e.Create(t, again)
		e.onNode(t, again)
		e.waits(t, waiter)
		e.succeed(t, again, pods[1], pods[2])
		e.groupFinished(t, "gang")
		e.onNode(t, waiter)
		e.usage(t, "team", 3, 1, 0)
	}},
	{name: "a gang of pods with quota and no place is called unschedulable, all of it, and not when it lacks quota", run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 4)
		e.Queue(t, e.namespace, "team", 8)
		pods := e.group("gang", "team", 2, 4)
		for _, pod := range pods {
			e.Create(t, pod)
		}
		for _, pod := range pods {
			e.unschedulable(t, pod, true)
		}
		e.waits(t, pods...)
		small := e.pod("small", 1, queued("team"))
		e.Create(t, small)
		e.onNode(t, small)
		for _, pod := range pods {
			e.unschedulable(t, pod, false)
		}
		e.succeed(t, small)
		for _, pod := range pods {
			e.unschedulable(t, pod, true)
		}
		e.Node(t, "node-1", 4)
		e.onNode(t, pods...)
	}},
	{name: "a PodGroup's minMember is the least that starts, and its pods get the flavor's tolerations", run: func(t *testing.T, e *env) {
		e.tainted(t, e.Node(t, "node-0", 8))
		e.Queue(t, e.namespace, "team", 8)
		e.flavorTolerates(t, "team")
		group := e.podGroup("gang", "team", 2)
		var pods []*corev1.Pod
		for i := range 2 {
			pods = append(pods, e.pod(fmt.Sprintf("gang-%d", i), 4, map[string]string{workload.PodGroupLabel: "gang"}))
		}
		e.Create(t, pods[0])
		e.Create(t, group)
		e.podEvent(t, pods[0], "Pending", "1 of 2 pods of group gang exist")
		e.Create(t, pods[1])
		e.onNode(t, pods...)
		e.usage(t, "team", 8, 1, 0)
	}},
	{name: "a group made by a StatefulSet is as many pods as that has replicas, whatever minMember says, also when they become fewer", run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.Queue(t, e.namespace, "team", 8)
		e.Create(t, e.podGroup("gang", "team", 2))
		labels := map[string]string{workload.PodGroupLabel: "gang"}
		set := &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "gang"},
			Spec: appsv1.StatefulSetSpec{
				Replicas: new(int32(4)), PodManagementPolicy: appsv1.ParallelPodManagement, Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: e.pod("gang", 2, nil).Spec},
			},
		}
		set.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyAlways
		e.Create(t, set)
		var pods []*corev1.Pod
		for i := range 3 {
			pod := e.pod(fmt.Sprintf("gang-%d", i), 2, labels)
			pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
			e.Create(t, pod)
			pods = append(pods, pod)
		}
		e.podEvent(t, pods[0], "Pending", "of 4 pods of group gang exist")
		e.usage(t, "team", 0, 0, 0)
		e.waits(t, pods...)
		testcluster.Eventually(t, "the StatefulSet to be smaller", func(ctx context.Context) error {
			if err := e.Client.Get(ctx, client.ObjectKeyFromObject(set), set); err != nil {
				return err
			}
			set.Spec.Replicas = new(int32(3))
			return e.Client.Update(ctx, set)
		})
		e.onNode(t, pods...)
		e.usage(t, "team", 6, 1, 0)
	}},
	{name: "a group that does not start in time lets its charge go, evicts what is on nodes, and loses no waiting pod", configure: func(c *configv1alpha1.SchedulerConfiguration) {
		c.Admission.StartTimeout.Duration = 2 * time.Second
	}, run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.Queue(t, e.namespace, "team", 8)
		pods := e.group("gang", "team", 2, 4)
		for _, pod := range pods {
			e.Create(t, pod)
		}
		e.onNode(t, pods...)
		if err := e.Client.Delete(t.Context(), pods[0]); err != nil {
			t.Fatal(err)
		}
		e.podEvent(t, pods[1], "PodsGone", "1 of 2 pods has gone; its place is kept, and all are released if none takes it in 2s")
		e.podEvent(t, pods[1], "Evicted", "1 of 2 pods has been gone for 2s; all are released")
		// The other is evicted, and with the last pod the group is gone.
		testcluster.Eventually(t, "the rest of the gang to be evicted", func(ctx context.Context) error {
			_, err := e.now(ctx, pods[1])
			if client.IgnoreNotFound(err) == nil && err != nil {
				return nil
			}
			return fmt.Errorf("it is there (%v)", err)
		})
		e.usage(t, "team", 0, 0, 0)
	}},
	{name: "GPU pods without a queue go to the queue default where there is one, and run where there is none", run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		free := e.pod("free", 4, nil)
		e.Create(t, free)
		e.onNode(t, free)
		e.Queue(t, e.namespace, "default", 2)
		// The scheduler may not have seen the queue yet: its status says when.
		e.usage(t, "default", 0, 0, 0)
		charged, over := e.pod("charged", 2, nil), e.pod("over", 2, nil)
		e.Create(t, charged)
		e.onNode(t, charged)
		e.usage(t, "default", 2, 1, 0)
		e.Create(t, over)
		e.podEvent(t, over, "Pending", "needs 2 GPUs in queue default, 0 of 2 free")
		e.waits(t, over)
	}},
	{name: "GPU pods without a queue are held where the configuration says so, others are not", configure: func(c *configv1alpha1.SchedulerConfiguration) {
		c.Unqueued = configv1alpha1.UnqueuedHold
	}, run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		held, cpu := e.pod("held", 1, nil), e.pod("cpu", 0, nil)
		cpu.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
		e.Create(t, held)
		e.Create(t, cpu)
		e.onNode(t, cpu)
		e.podEvent(t, held, "Pending", "it asks for GPUs and names no queue")
		e.waits(t, held)
		// A queue frees it.
		e.Queue(t, e.namespace, "team", 1)
		testcluster.Eventually(t, "the pod to be labelled", func(ctx context.Context) error {
			have, err := e.now(ctx, held)
			if err != nil {
				return err
			}
			have.Labels = maps.Clone(queued("team"))
			return e.Client.Update(ctx, have)
		})
		e.onNode(t, held)
		e.usage(t, "team", 1, 1, 0)
	}},
}

// tainted gives a node a taint that only pods of the flavor tolerate.
func (e *env) tainted(t *testing.T, node *corev1.Node) {
	t.Helper()
	testcluster.Eventually(t, node.Name+" to be tainted", func(ctx context.Context) error {
		have := &corev1.Node{}
		if err := e.Client.Get(ctx, client.ObjectKeyFromObject(node), have); err != nil {
			return err
		}
		have.Spec.Taints = []corev1.Taint{{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}}
		return e.Client.Update(ctx, have)
	})
}

// flavorTolerates has the flavor of a queue tolerate that taint.
func (e *env) flavorTolerates(t *testing.T, queue string) {
	t.Helper()
	testcluster.Eventually(t, "the flavor to tolerate the taint", func(ctx context.Context) error {
		flavor := &kueue.ResourceFlavor{}
		if err := e.Client.Get(ctx, client.ObjectKey{Name: e.namespace + "-" + queue}, flavor); err != nil {
			return err
		}
		flavor.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
		return e.Client.Update(ctx, flavor)
	})
}
