package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/internal/testcluster"
)

func init() {
	scenarios = append(scenarios,
		scenario{name: "a gang of higher priority has as few jobs stopped as it needs, starts whole when they have left, and they come back", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.Node(t, "node-1", 8)
			e.preempting(t, "team", 16)
			small := e.small(t, 4)
			urgent := e.urgent(t, "urgent", 1, 8)
			e.runs(t, urgent, 1)
			e.event(t, urgent, "Preempting", ", and waits for them to leave node-")
			victims := e.preempted(t, small, urgent, 2)
			e.usage(t, "team", 16, 3, 2)
			for _, v := range victims {
				e.pending(t, v, "WaitingForQuota", "0 of 16 free")
				e.condition(t, v, kueue.WorkloadRequeued, metav1.ConditionTrue, kueue.WorkloadEvictedByPreemption, urgent.Name)
				e.event(t, v, "Preempted", "Preempted to accommodate JobSet "+e.namespace+"/urgent")
				e.event(t, v, "Suspended", "preempted by JobSet "+e.namespace+"/urgent")
			}
			e.finish(t, urgent)
			for _, v := range victims {
				e.runs(t, v, 1)
				e.condition(t, v, kueue.WorkloadPreempted, metav1.ConditionFalse, "QuotaReserved", "Previously: Preempted to accommodate")
			}
		}},
		scenario{name: "what victims leave is kept for whom they were stopped, however long their pods take", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.preempting(t, "team", 16)
			slow := e.job("slow", "team", 1, 8)
			e.Create(t, slow)
			e.runs(t, slow, 1)
			e.linger(t, slow, true)
			urgent := e.urgent(t, "urgent", 1, 8)
			e.condition(t, urgent, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "WaitingForPreemptedWorkloads", "waiting for 1 job to leave node-0")
			e.condition(t, slow, kueue.WorkloadPreempted, metav1.ConditionTrue, kueue.InClusterQueueReason, string(urgent.UID))
			// There is quota for it, and it comes as soon as a GPU is free.
			other := e.job("other", "team", 1, 1)
			e.Create(t, other)
			e.pending(t, other, "NoPlacement", "needs 1 GPU; 0 GPUs are free")
			e.usage(t, "team", 8, 1, 2)
			e.linger(t, slow, false)
			e.runs(t, urgent, 1)
			e.pending(t, other, "NoPlacement", "needs 1 GPU; 0 GPUs are free")
		}},
		scenario{name: "who is deleted while its victims leave leaves nothing behind, and the victims come back", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.preempting(t, "team", 8)
			low := e.job("low", "team", 1, 8)
			e.Create(t, low)
			e.runs(t, low, 1)
			e.linger(t, low, true)
			urgent := e.urgent(t, "urgent", 1, 8)
			e.condition(t, urgent, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "WaitingForPreemptedWorkloads", "waiting for 1 job to leave")
			if err := e.Client.Delete(t.Context(), urgent); err != nil {
				t.Fatal(err)
			}
			e.linger(t, low, false)
			e.startedAgain(t, low)
		}},
		scenario{name: "a scheduler that is restarted while victims leave stops nobody else", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.Node(t, "node-1", 8)
			e.preempting(t, "team", 16)
			small := e.small(t, 4)
			for _, js := range small {
				e.linger(t, js, true)
			}
			urgent := e.urgent(t, "urgent", 1, 8)
			e.condition(t, urgent, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "WaitingForPreemptedWorkloads", "waiting for 2 jobs to leave")
			e.restart(t)
			for _, js := range small {
				e.linger(t, js, false)
			}
			e.runs(t, urgent, 1)
			e.preempted(t, small, urgent, 2)
		}},
		scenario{name: "a job that must run for a while is not stopped before, and an annotation that cannot be read is told", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.preempting(t, "team", 8)
			low := e.job("low", "team", 1, 8)
			low.Annotations = map[string]string{"muster.dev/min-runtime": "5s", "muster.dev/checkpointed-at": "noon"}
			e.Create(t, low)
			e.runs(t, low, 1)
			e.event(t, low, "InvalidAnnotation", `annotation muster.dev/checkpointed-at is "noon"`)
			urgent := e.urgent(t, "urgent", 1, 8)
			e.condition(t, urgent, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "WaitingForQuota", "the jobs that it may preempt are protected until")
			e.runs(t, urgent, 1)
			wl, err := e.workload(t.Context(), low)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range wl.Status.Conditions {
				if c.Type == kueue.WorkloadPreempted && c.LastTransitionTime.Sub(wl.CreationTimestamp.Time) < 5*time.Second {
					t.Errorf("it was stopped after %s", c.LastTransitionTime.Sub(wl.CreationTimestamp.Time))
				}
			}
		}},
	)
}

// preempting makes a queue in which a higher priority stops lower ones.
func (e *env) preempting(t *testing.T, name string, gpus int64) {
	t.Helper()
	e.Queue(t, e.namespace, name, gpus)
	testcluster.Eventually(t, "the policy to be set", func(ctx context.Context) error {
		cq := &kueue.ClusterQueue{}
		if err := e.Client.Get(ctx, client.ObjectKey{Name: e.namespace + "-" + name}, cq); err != nil {
			return err
		}
		cq.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
		return e.Client.Update(ctx, cq)
	})
	e.Create(t, &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: e.namespace + "-urgent"}, Value: 100})
}

// small has n jobs of one pod of 4 GPUs run.
func (e *env) small(t *testing.T, n int) []*jobset.JobSet {
	t.Helper()
	var all []*jobset.JobSet
	for i := range n {
		js := e.job(fmt.Sprintf("small-%d", i), "team", 1, 4)
		e.Create(t, js)
		e.runs(t, js, 1)
		all = append(all, js)
	}
	return all
}

// urgent creates a job of the higher priority.
func (e *env) urgent(t *testing.T, name string, pods int32, gpus int64) *jobset.JobSet {
	t.Helper()
	js := e.job(name, "team", pods, gpus)
	js.Labels["kueue.x-k8s.io/priority-class"] = e.namespace + "-urgent"
	e.Create(t, js)
	return js
}

// preempted waits until n of the jobs say that they were stopped for another
// one, and fails if more do.
func (e *env) preempted(t *testing.T, jobs []*jobset.JobSet, by *jobset.JobSet, n int) []*jobset.JobSet {
	t.Helper()
	var victims []*jobset.JobSet
	testcluster.Eventually(t, fmt.Sprintf("%d jobs to be stopped for %s", n, by.Name), func(ctx context.Context) error {
		victims = nil
		for _, js := range jobs {
			wl, err := e.workload(ctx, js)
			if err != nil {
				return err
			}
			if isTrue(wl, kueue.WorkloadPreempted) {
				victims = append(victims, js)
			}
		}
		if len(victims) < n {
			return fmt.Errorf("%d are", len(victims))
		}
		return nil
	})
	if len(victims) != n {
		t.Fatalf("%d jobs were stopped for %s, want %d", len(victims), by.Name, n)
	}
	for _, js := range victims {
		e.condition(t, js, kueue.WorkloadEvicted, metav1.ConditionTrue, kueue.WorkloadEvictedByPreemption, string(by.UID))
		e.condition(t, js, kueue.WorkloadPreempted, metav1.ConditionTrue, kueue.InClusterQueueReason, string(by.UID))
	}
	return victims
}
