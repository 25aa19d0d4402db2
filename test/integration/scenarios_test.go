package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/internal/testcluster"
	"github.com/muster-gpu/muster/internal/testobject"
)

type scenario struct {
	name      string
	configure func(*configv1alpha1.SchedulerConfiguration)
	run       func(t *testing.T, e *env)
}

var scenarios = []scenario{
	{name: "of two jobs that fit only one at a time, one runs whole and the other holds nothing, then runs", run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.Node(t, "node-1", 8)
		e.Queue(t, e.namespace, "team", 32)
		first, second := e.job("first", "team", 4, 4), e.job("second", "team", 4, 4)
		e.Create(t, first)
		e.runs(t, first, 4)
		e.event(t, first, "Admitted", "admitted: 16 GPUs on node-0..node-1 from queue team")
		e.Create(t, second)
		e.pending(t, second, "NoPlacement", "0 GPUs are free")
		e.event(t, second, "Pending", "pending: ")
		e.usage(t, "team", 16, 1, 1)
		e.finish(t, first)
		e.runs(t, second, 4)
		e.usage(t, "team", 16, 1, 0)
		e.condition(t, first, kueue.WorkloadFinished, metav1.ConditionTrue, "Succeeded", "completed")
	}},
	{name: "a job over its queue's free quota waits for quota, with numbers", run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.Node(t, "node-1", 8)
		e.Queue(t, e.namespace, "team-nlp", 16)
		small, big := e.job("small", "team-nlp", 2, 4), e.job("big", "team-nlp", 4, 4)
		e.Create(t, small)
		e.runs(t, small, 2)
		e.Create(t, big)
		e.pending(t, big, "WaitingForQuota", "needs 16 GPUs in queue team-nlp, 8 of 16 free")
		e.event(t, big, "Pending", "pending: needs 16 GPUs in queue team-nlp, 8 of 16 free")
	}},
	{name: "8 free GPUs on two half-full nodes do not start an 8-GPU pod, and do not stop the 4-GPU job behind it", run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.Node(t, "node-1", 8)
		e.Queue(t, e.namespace, "team", 64)
		for i := range 2 {
			// A pod that Muster does not manage takes half of each node.
			e.Create(t, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: fmt.Sprintf("half-%d", i)},
				Spec: corev1.PodSpec{NodeName: fmt.Sprintf("node-%d", i), Containers: []corev1.Container{{
					Name: "c", Image: "example.com/x", Resources: corev1.ResourceRequirements{Limits: gpus(4)},
				}}},
			})
		}
		whole, half := e.job("whole", "team", 1, 8), e.job("half", "team", 1, 4)
		e.Create(t, whole)
		e.pending(t, whole, "NoPlacement", "8 GPUs free, but no node has 8")
		e.Create(t, half)
		e.runs(t, half, 1)
	}},
	{name: "pods bind only when all pods of the gang exist", run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.Queue(t, e.namespace, "team", 8)
		js := e.job("gang", "team", 4, 2)
		e.jobs.Withhold("gang-node-0-3", true)
		e.Create(t, js)
		testcluster.Eventually(t, "three of four pods", func(ctx context.Context) error {
			pods, err := e.Pods(ctx, js)
			if err == nil && len(pods) != 3 {
				err = fmt.Errorf("%d pods", len(pods))
			}
			return err
		})
		e.condition(t, js, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "")
		if err := e.Bound(t.Context(), js, 0); err != nil {
			t.Fatal(err)
		}
		e.jobs.Withhold("gang-node-0-3", false)
		e.runs(t, js, 4)
	}},
	{name: "a job whose pods do not all come in time is released whole, and tried again", configure: func(c *configv1alpha1.SchedulerConfiguration) {
		c.Admission.StartTimeout.Duration = 2 * time.Second
	}, run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.Queue(t, e.namespace, "team", 8)
		js := e.job("gang", "team", 4, 2)
		e.jobs.Withhold("gang-node-0-3", true)
		e.Create(t, js)
		e.condition(t, js, kueue.WorkloadEvicted, metav1.ConditionTrue, kueue.WorkloadEvictedByPodsReadyTimeout, "none of 4 pods")
		e.jobs.Withhold("gang-node-0-3", false)
		e.runs(t, js, 4)
	}},
	{name: "a running job's lost pod comes back to its slot although another job waits for the room", run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.Queue(t, e.namespace, "team", 64)
		js, waiter := e.job("gang", "team", 2, 4), e.job("waiter", "team", 1, 4)
		e.Create(t, js)
		e.runs(t, js, 2)
		e.Create(t, waiter)
		e.pending(t, waiter, "NoPlacement", "")
		pods, err := e.Pods(t.Context(), js)
		if err != nil {
			t.Fatal(err)
		}
		old := pods[0].UID
		e.loseOne(t, js)
		e.usage(t, "team", 8, 1, 1)
		e.pending(t, waiter, "NoPlacement", "")
		e.jobs.Withhold(pods[0].Name, false)
		e.runs(t, js, 2)
		if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(&pods[0]), &pods[0]); err != nil || pods[0].UID == old {
			t.Fatalf("the pod was not replaced (%v)", err)
		}
	}},
	{name: "a pod that comes back to a cordoned node waits for another, and the job says so", configure: graceOf(time.Second), run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.Node(t, "node-1", 8)
		e.Queue(t, e.namespace, "team", 64)
		js := e.job("gang", "team", 2, 8)
		e.Create(t, js)
		e.runs(t, js, 2)
		pods, err := e.Pods(t.Context(), js)
		if err != nil {
			t.Fatal(err)
		}
		e.cordon(t, pods[0].Spec.NodeName, true)
		if err := e.Client.Delete(t.Context(), &pods[0], client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
		e.event(t, js, "Replanning", "only 1 of 2 pods have a node: ")
		if err := e.Bound(t.Context(), js, 1); err != nil {
			t.Fatal(err)
		}
		e.Node(t, "node-2", 8)
		e.runs(t, js, 2)
		e.cordon(t, pods[0].Spec.NodeName, false)
		e.usage(t, "team", 16, 1, 0)
	}},
	{name: "a running job that someone suspends is resumed, with an event that says how to stop it", run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.Queue(t, e.namespace, "team", 8)
		js := e.job("gang", "team", 1, 8)
		e.Create(t, js)
		e.runs(t, js, 1)
		testobject.Change(t, e.Client, js, func(js *jobset.JobSet) { js.Spec.Suspend = new(true) })
		e.event(t, js, "Resumed", "set spec.active of its Workload to false")
		e.runs(t, js, 1)
	}},
	{name: "a restarted scheduler keeps the charge and the holds of what is admitted", run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.Queue(t, e.namespace, "team", 64)
		js, waiter := e.job("gang", "team", 2, 4), e.job("waiter", "team", 1, 4)
		e.jobs.Withhold("gang-node-0-1", true)
		e.Create(t, js)
		e.condition(t, js, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "")
		e.restart(t)
		e.Create(t, waiter)
		e.pending(t, waiter, "NoPlacement", "")
		e.jobs.Withhold("gang-node-0-1", false)
		e.runs(t, js, 2)
		e.usage(t, "team", 8, 1, 1)
		e.restart(t)
		e.usage(t, "team", 8, 1, 1)
		e.pending(t, waiter, "NoPlacement", "")
		e.finish(t, js)
		e.runs(t, waiter, 1)
	}},
	{name: "a job that was resumed by hand is suspended again", run: func(t *testing.T, e *env) {
		e.Node(t, "node-0", 8)
		e.Queue(t, e.namespace, "team", 8)
		js := e.job("gang", "team", 4, 4)
		js.Spec.Suspend = new(false)
		e.Create(t, js)
		testcluster.Eventually(t, "gang to be suspended", func(ctx context.Context) error {
			if err := e.Client.Get(ctx, client.ObjectKeyFromObject(js), js); err != nil {
				return err
			}
			if !*js.Spec.Suspend {
				return fmt.Errorf("it runs")
			}
			return nil
		})
		e.condition(t, js, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "ExceedsMaxQuota", "needs 16 GPUs")
		if err := e.Bound(t.Context(), js, 0); err != nil {
			t.Fatal(err)
		}
	}},
	{name: "of equal queues the higher priority, then the older job, comes first", run: func(t *testing.T, e *env) {
		e.Queue(t, e.namespace, "team", 64)
		e.Create(t, &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 100})
		old, young, high := e.job("old", "team", 1, 8), e.job("young", "team", 1, 8), e.job("high", "team", 1, 8)
		high.Labels["kueue.x-k8s.io/priority-class"] = "high"
		e.Create(t, old)
		e.pending(t, old, "ExceedsCluster", "")
		// Creation times count in seconds.
		testcluster.Eventually(t, "the clock to move on", func(context.Context) error {
			if time.Since(old.CreationTimestamp.Time) < 1100*time.Millisecond {
				return fmt.Errorf("same second")
			}
			return nil
		})
		e.Create(t, young)
		e.Create(t, high)
		e.pending(t, young, "ExceedsCluster", "")
		e.pending(t, high, "ExceedsCluster", "")
		e.Node(t, "node-0", 8)
		e.runs(t, high, 1)
		e.pending(t, old, "NoPlacement", "")
		e.Node(t, "node-1", 8)
		e.runs(t, old, 1)
		e.pending(t, young, "NoPlacement", "")
	}},
}
