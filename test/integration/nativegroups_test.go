package integration

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/internal/testcluster"
	"github.com/muster-gpu/muster/workload"
)

// gangOf is a PodGroup of Kubernetes itself in a queue, of which so many pods start
// together.
func (e *env) gangOf(name, queue string, minCount int32) *schedulingv1beta1.PodGroup {
	group := e.basicGroup(name, queue)
	group.Spec.SchedulingPolicy = schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: minCount}}
	return group
}

// basicGroup is one whose pods start one by one.
func (e *env) basicGroup(name, queue string) *schedulingv1beta1.PodGroup {
	return &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name, Labels: queued(queue)},
		Spec: schedulingv1beta1.PodGroupSpec{
			SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{Basic: &schedulingv1beta1.BasicSchedulingPolicy{}},
		},
	}
}

// scheduledIn is a pod of Kubernetes' PodGroup group, which names no queue itself.
func (e *env) scheduledIn(group, name string, gpuCount int64) *corev1.Pod {
	pod := e.pod(name, gpuCount, nil)
	pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group}
	return pod
}

// TestNativePodGroups runs schedulers, each in a process of its own, against an API
// server that has Kubernetes' own PodGroups.
func TestNativePodGroups(t *testing.T) {
	cluster := testcluster.StartBare(t, "--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1beta1=true")
	cluster.AddKueue(t)
	cluster.AddJobSet(t)
	for i, s := range nativeGroupScenarios {
		t.Run(s.name, func(t *testing.T) {
			e := &env{Cluster: cluster, namespace: fmt.Sprintf("native-%d", i), config: configv1alpha1.DefaultScheduler()}
			e.config.LeaderElection.LeaderElect = false
			cluster.Namespace(t, e.namespace)
			t.Cleanup(func() { e.dump(t) })
			s.run(t, e)
		})
	}
}

var nativeGroupScenarios = []scenario{
	{name: "a PodGroup with a gang policy starts as one, also when its object comes last, and after a restart goes on", run: func(t *testing.T, e *env) {
		first := e.spawn(t, "first", e.Kubeconfig)
		e.Node(t, "node-0", 8)
		e.Queue(t, e.namespace, "team", 8)
		a, b := e.scheduledIn("gang", "a", 4), e.scheduledIn("gang", "b", 4)
		e.Create(t, a)
		e.podEvent(t, a, "Pending", "PodGroup gang does not exist")
		e.Create(t, e.gangOf("gang", "team", 2))
		e.podEvent(t, a, "Pending", "1 of 2 pods of group gang exist")
		e.waits(t, a)
		e.Create(t, b)
		e.onNode(t, a, b)
		e.usage(t, "team", 8, 1, 0)
		e.succeed(t, a)
		first.kill()
		e.spawn(t, "second", e.Kubeconfig).leads(t)
		e.usage(t, "team", 8, 1, 0)
		e.succeed(t, b)
		e.usage(t, "team", 0, 0, 0)
	}},
	{name: "the pods of one with a basic policy are jobs of their own in its queue", run: func(t *testing.T, e *env) {
		e.spawn(t, "scheduler", e.Kubeconfig)
		e.Node(t, "node-0", 8)
		e.Queue(t, e.namespace, "team", 4)
		e.Create(t, e.basicGroup("service", "team"))
		a, b := e.scheduledIn("service", "a", 4), e.scheduledIn("service", "b", 4)
		e.Create(t, a)
		e.onNode(t, a)
		e.Create(t, b)
		e.podEvent(t, b, "Pending", "needs 4 GPUs in queue team, 0 of 4 free")
		e.usage(t, "team", 4, 1, 1)
		e.succeed(t, a)
		e.onNode(t, b)
		e.usage(t, "team", 4, 1, 0)
	}},
	{name: "pods of one without a queue run", run: func(t *testing.T, e *env) {
		e.spawn(t, "scheduler", e.Kubeconfig)
		e.Node(t, "node-0", 8)
		group := e.gangOf("gang", "", 2)
		group.Labels = nil
		e.Create(t, group)
		a := e.scheduledIn("gang", "a", 4)
		e.Create(t, a)
		e.onNode(t, a)
	}},
	{name: "Kueue's labels go before it", run: func(t *testing.T, e *env) {
		e.spawn(t, "scheduler", e.Kubeconfig)
		e.Node(t, "node-0", 8)
		e.Queue(t, e.namespace, "team", 8)
		pod := e.scheduledIn("gang", "a", 4)
		pod.Labels = map[string]string{workload.QueueLabel: "team", workload.KueueGroupLabel: "own"}
		pod.Annotations = map[string]string{workload.KueueGroupCountAnnotation: "1"}
		e.Create(t, pod)
		e.onNode(t, pod)
		wl := &kueue.Workload{}
		if err := e.Client.Get(t.Context(), client.ObjectKey{Namespace: e.namespace, Name: "own"}, wl); err != nil {
			t.Error(err)
		}
	}},
}
