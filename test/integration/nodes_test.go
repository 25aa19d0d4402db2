package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/component-base/metrics/legacyregistry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/internal/testcluster"
)

func init() { scenarios = append(scenarios, nodeScenarios...) }

// graceOf sets the time for which slots on nodes that are away are kept.
func graceOf(d time.Duration) func(*configv1alpha1.SchedulerConfiguration) {
	return func(c *configv1alpha1.SchedulerConfiguration) { c.Admission.NodeLossGrace.Duration = d }
}

var nodeScenarios = []scenario{
	{name: "a node is not ready for a while, a pod of it is deleted, and comes back to it", run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.Node(t, "node-1", 8)
		e.Node(t, "node-2", 8)
		e.Queue(t, e.namespace, "team", 64)
		js := e.job("gang", "team", 2, 8)
		e.Create(t, js)
		e.runs(t, js, 2)
		before := e.places(t, js)
		victim := e.podOn(t, js, "node-0")
		e.node(t, "node-0", unready)
		e.delete(t, victim)
		e.reborn(t, victim)
		// The API shows nothing of a pod that is kept waiting; a job that comes
		// after it shows that the scheduler has had its chance.
		other := e.job("other", "team", 1, 8)
		e.Create(t, other)
		e.runs(t, other, 1)
		if err := e.Bound(t.Context(), js, 1); err != nil {
			t.Fatal(err)
		}
		e.node(t, "node-0", ready)
		e.runs(t, js, 2)
		if after := e.places(t, js); after != before {
			t.Errorf("the pods were on %s and are on %s", before, after)
		}
	}},
	{name: "the slot of a node that stays away moves, and only that one", configure: graceOf(time.Second), run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.Node(t, "node-1", 8)
		e.Queue(t, e.namespace, "team", 64)
		js := e.job("gang", "team", 2, 8)
		e.Create(t, js)
		e.runs(t, js, 2)
		e.Node(t, "node-2", 8)
		e.node(t, "node-0", unready)
		e.delete(t, e.podOn(t, js, "node-0"))
		e.event(t, js, "NodeLost", "node node-0 has been not ready for 1s; another one is looked for, for 1 pod")
		e.runs(t, js, 2)
		e.podOn(t, js, "node-1")
		e.podOn(t, js, "node-2")
		e.usage(t, "team", 16, 1, 0)
	}},
	{name: "a gang whose node stays away and finds no other is released whole", configure: func(c *configv1alpha1.SchedulerConfiguration) {
		graceOf(time.Second)(c)
		c.Admission.RecoveryTimeout.Duration = 3 * time.Second
	}, run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.Node(t, "node-1", 8)
		e.Queue(t, e.namespace, "team", 64)
		js := e.job("gang", "team", 2, 8)
		e.Create(t, js)
		e.runs(t, js, 2)
		e.node(t, "node-0", unready)
		e.delete(t, e.podOn(t, js, "node-0"))
		e.condition(t, js, kueue.WorkloadEvicted, metav1.ConditionTrue, kueue.WorkloadEvictedByPodsReadyTimeout, "1 of 2 pods has been gone for 3s")
		e.event(t, js, "Suspended", "1 of 2 pods has been gone for 3s; all are released")
		e.node(t, "node-0", ready)
		e.runs(t, js, 2)
	}},
	{name: "a pod that a dead node never removes gives its slot to the next, and its job stays charged until it is gone", configure: graceOf(time.Second), run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.Queue(t, e.namespace, "team", 64)
		js := e.job("gang", "team", 1, 8)
		e.Create(t, js)
		e.runs(t, js, 1)
		e.Node(t, "node-1", 8)
		old := e.podOn(t, js, "node-0")
		e.node(t, "node-0", unready)
		e.finalizers(t, old, "example.com/no-kubelet")
		t.Cleanup(func() { e.finalizers(t, old) })
		e.delete(t, old)
		next := old.DeepCopy()
		next.ObjectMeta = metav1.ObjectMeta{Namespace: old.Namespace, Name: "next", Labels: old.Labels, OwnerReferences: []metav1.OwnerReference{aJob}}
		next.Spec.NodeName = ""
		next.Spec.Volumes, next.Spec.Containers[0].VolumeMounts = nil, nil
		e.Create(t, next)
		e.on(t, next, "node-1")
		e.restart(t)
		e.usage(t, "team", 8, 1, 0)
		if err := e.Client.Delete(t.Context(), js, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
			t.Fatal(err)
		}
		e.delete(t, next)
		e.usage(t, "team", 8, 1, 0)
		e.finalizers(t, old)
		e.usage(t, "team", 0, 0, 0)
	}},
	{name: "a gang that is released gives up all but what a dead node's pod takes, and starts again when that is gone", configure: func(c *configv1alpha1.SchedulerConfiguration) {
		graceOf(time.Second)(c)
		c.Admission.RecoveryTimeout.Duration = 3 * time.Second
	}, run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.Node(t, "node-1", 8)
		e.Queue(t, e.namespace, "team", 16)
		js := e.job("gang", "team", 2, 8)
		e.Create(t, js)
		e.runs(t, js, 2)
		dead := e.podOn(t, js, "node-0")
		e.node(t, "node-0", unready)
		e.finalizers(t, dead, "example.com/no-kubelet")
		t.Cleanup(func() { e.finalizers(t, dead) })
		e.delete(t, dead)
		e.condition(t, js, kueue.WorkloadEvicted, metav1.ConditionTrue, kueue.WorkloadEvictedByPodsReadyTimeout, "1 of 2 pods has been gone for 3s")
		other := e.job("other", "team", 1, 8)
		e.Create(t, other)
		// Nothing is expected any more of a pod that should have ended a minute ago.
		err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, 3*time.Minute, true, func(ctx context.Context) (bool, error) {
			return e.Bound(ctx, other, 1) == nil, nil
		})
		if err != nil {
			t.Fatal("the other job does not get the room of the one that is released")
		}
		e.usage(t, "team", 16, 2, 0)
		e.restart(t)
		e.usage(t, "team", 16, 2, 0)
		e.finalizers(t, dead)
		e.usage(t, "team", 8, 1, 1)
		e.node(t, "node-0", ready)
		e.finish(t, other)
		e.runs(t, js, 2)
		e.usage(t, "team", 16, 1, 0)
	}},
	{name: "a pod that others bind onto held room has the gang planned anew, with an event that names it", run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.Node(t, "node-1", 8)
		e.Queue(t, e.namespace, "team", 64)
		js := e.job("gang", "team", 2, 8)
		e.jobs.Withhold("gang-node-0-0", true)
		e.jobs.Withhold("gang-node-0-1", true)
		e.Create(t, js)
		e.condition(t, js, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "node-0..node-1")
		e.Node(t, "node-2", 8)
		before := brokenHolds(t)
		foreign := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "x"},
			Spec: corev1.PodSpec{SchedulerName: "other-scheduler", Containers: []corev1.Container{{
				Name: "c", Image: "example.com/x", Resources: corev1.ResourceRequirements{Limits: gpus(1)},
			}}},
		}
		e.Create(t, foreign)
		err := e.Client.SubResource("binding").Create(t.Context(), foreign, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "node-0"}})
		if err != nil {
			t.Fatal(err)
		}
		e.event(t, js, "HoldBroken", fmt.Sprintf("pod %s/x, whose schedulerName is other-scheduler, was put on node node-0 by others and took the room that was held for 1 pod", e.namespace))
		if got := brokenHolds(t); got != before+1 {
			t.Errorf("%v broken holds are counted, want 1 more than %v", got, before)
		}
		e.jobs.Withhold("gang-node-0-0", false)
		e.jobs.Withhold("gang-node-0-1", false)
		e.runs(t, js, 2)
		e.podOn(t, js, "node-1")
		e.podOn(t, js, "node-2")
	}},
	{name: "a pod of a gang that is bound by others elsewhere takes its slot with it, and the Workload says so", run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.Queue(t, e.namespace, "team", 64)
		js := e.job("gang", "team", 2, 4)
		e.jobs.Withhold("gang-node-0-0", true)
		e.Create(t, js)
		e.condition(t, js, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "on node-0 ")
		e.Node(t, "node-1", 8)
		pod := &corev1.Pod{}
		testcluster.Eventually(t, "the second pod", func(ctx context.Context) error {
			return e.Client.Get(ctx, client.ObjectKey{Namespace: e.namespace, Name: "gang-node-0-1"}, pod)
		})
		labels := pod.Labels
		labels[batchv1.JobCompletionIndexAnnotation] = "0"
		pod = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "first", Labels: labels, OwnerReferences: []metav1.OwnerReference{aJob}},
			Spec: corev1.PodSpec{SchedulerName: "other-scheduler", Containers: []corev1.Container{{
				Name: "c", Image: "example.com/x", Resources: corev1.ResourceRequirements{Limits: gpus(4)},
			}}},
		}
		e.Create(t, pod)
		err := e.Client.SubResource("binding").Create(t.Context(), pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "node-1"}})
		if err != nil {
			t.Fatal(err)
		}
		e.condition(t, js, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "on node-0..node-1 ")
		e.runs(t, js, 2)
	}},
	{name: "a node that loses a GPU keeps the holds that still fit", configure: graceOf(time.Second), run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.Queue(t, e.namespace, "team", 64)
		first, second := e.job("first", "team", 1, 4), e.job("second", "team", 1, 4)
		for _, js := range []*jobset.JobSet{first, second} {
			e.jobs.Withhold(js.Name+"-node-0-0", true)
			e.Create(t, js)
			e.condition(t, js, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "on node-0 ")
			// Times of admission count in seconds.
			e.secondPasses(t)
		}
		e.Node(t, "node-1", 8)
		e.node(t, "node-0", func(n *corev1.Node) { n.Status.Allocatable[testcluster.GPU] = resource.MustParse("7") })
		e.event(t, second, "HoldBroken", "node node-0 has 7 nvidia.com/gpu now, too little for what was held for 1 pod")
		for _, js := range []*jobset.JobSet{first, second} {
			e.jobs.Withhold(js.Name+"-node-0-0", false)
			e.runs(t, js, 1)
		}
		e.podOn(t, first, "node-0")
		e.podOn(t, second, "node-1")
	}},
}

// aJob is the controller of pods that the tests make themselves.
var aJob = metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "gang-node-0", UID: "gang-node-0", Controller: new(true)}

// brokenHolds is the metric, over all reasons.
func brokenHolds(t *testing.T) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	for _, f := range families {
		if f.GetName() == "muster_holds_broken_total" {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func unready(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }
func ready(n *corev1.Node)   { n.Status.Conditions[0].Status = corev1.ConditionTrue }

// node changes a node's status.
func (e *env) node(t *testing.T, name string, change func(*corev1.Node)) {
	t.Helper()
	testcluster.Eventually(t, name+" to be changed", func(ctx context.Context) error {
		node := &corev1.Node{}
		if err := e.Client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return err
		}
		change(node)
		return e.Client.Status().Update(ctx, node)
	})
}

// dies has a node be not ready, and tainted as the controller of nodes does it, which does
// not run here.
func (e *env) dies(t *testing.T, name string) {
	t.Helper()
	e.node(t, name, unready)
	testcluster.Eventually(t, name+" to be tainted", func(ctx context.Context) error {
		node := &corev1.Node{}
		if err := e.Client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return err
		}
		node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}
		return e.Client.Update(ctx, node)
	})
}

// delete removes a pod, as its kubelet would in the end.
func (e *env) delete(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if err := e.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}

// finalizers makes a pod stay when it is deleted, or lets it go.
func (e *env) finalizers(t *testing.T, pod *corev1.Pod, names ...string) {
	t.Helper()
	base := pod.DeepCopy()
	pod.Finalizers = names
	if err := e.Client.Patch(context.Background(), pod, client.MergeFrom(base)); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}

// reborn waits for the pod that comes in a pod's place.
func (e *env) reborn(t *testing.T, old *corev1.Pod) {
	t.Helper()
	testcluster.Eventually(t, "another pod "+old.Name, func(ctx context.Context) error {
		pod := &corev1.Pod{}
		err := e.Client.Get(ctx, client.ObjectKeyFromObject(old), pod)
		if err == nil && pod.UID == old.UID {
			err = fmt.Errorf("it is the old one")
		}
		return err
	})
}

// podOn is a pod of a JobSet on a node.
func (e *env) podOn(t *testing.T, js *jobset.JobSet, node string) *corev1.Pod {
	t.Helper()
	pods, err := e.Pods(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods {
		if pods[i].Spec.NodeName == node {
			return &pods[i]
		}
	}
	t.Fatalf("%s has no pod on %s", js.Name, node)
	return nil
}

// on waits until a pod is on a node.
func (e *env) on(t *testing.T, pod *corev1.Pod, node string) {
	t.Helper()
	testcluster.Eventually(t, pod.Name+" to be on "+node, func(ctx context.Context) error {
		err := e.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		if err == nil && pod.Spec.NodeName != node {
			err = fmt.Errorf("it is on %q", pod.Spec.NodeName)
		}
		return err
	})
}

// places are the nodes of a JobSet's pods, by pod.
func (e *env) places(t *testing.T, js *jobset.JobSet) string {
	t.Helper()
	pods, err := e.Pods(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, pod := range pods {
		out = append(out, pod.Name+" on "+pod.Spec.NodeName)
	}
	return strings.Join(out, ", ")
}

// secondPasses waits until another second has begun.
func (e *env) secondPasses(t *testing.T) {
	t.Helper()
	began := time.Now().Truncate(time.Second)
	testcluster.Eventually(t, "the next second", func(context.Context) error {
		if !time.Now().Truncate(time.Second).After(began) {
			return fmt.Errorf("it is the same")
		}
		return nil
	})
}
