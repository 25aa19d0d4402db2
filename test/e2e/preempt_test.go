package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/internal/simulator"
)

// TestPreemption has TrainJobs stopped for others of higher priority.
func TestPreemption(t *testing.T) {
	c := up(t, "preemption")
	if err := c.client.Create(t.Context(), &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 100}); err != nil {
		t.Fatal(err)
	}
	tellAll(t, c, "team", anyJobs, []story[team]{
		{"an urgent gang has one job stopped, starts whole, and the other one comes back when it has finished", preempts},
		{"what is being left is kept over the death of the scheduler, and nobody else is stopped", preemptorSurvives},
		{"who is deleted before its victim has left leaves it the room", preemptorDeleted},
	})
}

func preempts(t *testing.T, tm team) {
	tm.preemptingQueue(t, 32)
	tm.create(t, job{name: "steady", queue: "q", nodes: 2, gpus: 8})
	steady := uids(tm.runs(t, "steady", 2))
	tm.create(t, job{name: "victim", queue: "q", nodes: 2, gpus: 8})
	tm.runs(t, "victim", 2)

	tm.urgent(t, job{name: "urgent", queue: "q", nodes: 2, gpus: 8})
	tm.runs(t, "urgent", 2)
	tm.told(t, "urgent", "Preempting", "stops TrainJob "+tm.namespace+"/victim, and waits for it to leave ")
	tm.told(t, "victim", "Preempted", "Preempted to accommodate TrainJob "+tm.namespace+"/urgent (UID: ")
	tm.waits(t, "victim", "WaitingForQuota", "needs 16 GPUs in queue q, 0 of 32 free")
	tm.is(t, "victim", kueue.WorkloadPreempted, kueue.InClusterQueueReason)
	tm.is(t, "victim", kueue.WorkloadRequeued, kueue.WorkloadEvictedByPreemption)
	if got := uids(tm.runs(t, "steady", 2)); !got.Equal(steady) {
		t.Errorf("the pods of the other job are %v, were %v", got, steady)
	}
	tm.usage(t, "q", 32, 2, 1)

	tm.end(t, "urgent")
	tm.finishes(t, "urgent")
	tm.runs(t, "victim", 2)
}

func preemptorSurvives(t *testing.T, tm team) {
	tm.preemptingQueue(t, 32)
	tm.create(t, job{name: "steady", queue: "q", nodes: 2, gpus: 8})
	steady := uids(tm.runs(t, "steady", 2))
	tm.create(t, job{name: "victim", queue: "q", nodes: 2, gpus: 8})
	tm.runs(t, "victim", 2)
	tm.linger(t, "victim", true)

	tm.urgent(t, job{name: "urgent", queue: "q", nodes: 2, gpus: 8})
	tm.waits(t, "urgent", "WaitingForPreemptedWorkloads", "waiting for 1 job to leave ")
	tm.kill(t, "muster-scheduler")
	tm.restart(t, "muster-scheduler")
	tm.waits(t, "urgent", "WaitingForPreemptedWorkloads", "waiting for 1 job to leave ")
	tm.usage(t, "q", 32, 2, 1)

	tm.linger(t, "victim", false)
	tm.runs(t, "urgent", 2)
	if got := uids(tm.runs(t, "steady", 2)); !got.Equal(steady) {
		t.Errorf("the pods of the other job are %v, were %v", got, steady)
	}
	tm.waits(t, "victim", "WaitingForQuota", "0 of 32 free")
}

func preemptorDeleted(t *testing.T, tm team) {
	tm.preemptingQueue(t, 16)
	tm.create(t, job{name: "victim", queue: "q", nodes: 2, gpus: 8})
	before := uids(tm.runs(t, "victim", 2))
	tm.linger(t, "victim", true)
	tm.urgent(t, job{name: "urgent", queue: "q", nodes: 2, gpus: 8})
	tm.waits(t, "urgent", "WaitingForPreemptedWorkloads", "waiting for 1 job to leave ")
	tm.remove(t, "urgent")
	tm.linger(t, "victim", false)
	eventually(t, "the victim to run again", func(ctx context.Context) error {
		pods, err := tm.pods(ctx, "victim")
		if err != nil || len(pods) != 2 {
			return fmt.Errorf("%d pods are there (%v)", len(pods), err)
		}
		if uids(pods).HasAny(before.UnsortedList()...) {
			return errors.New("the old ones are there")
		}
		return nil
	})
	tm.runs(t, "victim", 2)
}

// preemptingQueue creates queue q, in which a higher priority stops lower ones.
func (tm team) preemptingQueue(t *testing.T, gpus int64) {
	t.Helper()
	tm.queueUp(t, "q", gpus)
	eventually(t, "the policy to be set", func(ctx context.Context) error {
		cq := &kueue.ClusterQueue{}
		if err := tm.client.Get(ctx, client.ObjectKey{Name: tm.namespace + "-q"}, cq); err != nil {
			return err
		}
		cq.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
		return tm.client.Update(ctx, cq)
	})
}

// urgent creates a TrainJob of the higher priority.
func (tm team) urgent(t *testing.T, j job) {
	t.Helper()
	u := tm.object(j)
	labels := u.GetLabels()
	labels["kueue.x-k8s.io/priority-class"] = "urgent"
	u.SetLabels(labels)
	if err := tm.client.Create(t.Context(), u); err != nil {
		t.Fatalf("creating TrainJob %s: %v", j.name, err)
	}
}

// linger has the pods of a TrainJob take their time when they are deleted, or
// not any more.
func (tm team) linger(t *testing.T, name string, linger bool) {
	t.Helper()
	delay := "0s"
	if linger {
		delay = "10m"
	}
	eventually(t, "the pods of "+name+" to be told", func(ctx context.Context) error {
		pods, err := tm.pods(ctx, name)
		if err != nil {
			return err
		}
		for i := range pods {
			told := pods[i].DeepCopy()
			metav1.SetMetaDataAnnotation(&told.ObjectMeta, simulator.StopDelayAnnotation, delay)
			if err := tm.client.Patch(ctx, told, client.MergeFrom(&pods[i])); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		return nil
	})
}

// is waits until a condition of a TrainJob's Workload is true for a reason.
func (tm team) is(t *testing.T, name, kind, why string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s to be %s because of %s", name, kind, why), func(ctx context.Context) error {
		wl, err := tm.workload(ctx, name)
		if err != nil || wl == nil {
			return fmt.Errorf("it has no Workload (%v)", err)
		}
		if c := apimeta.FindStatusCondition(wl.Status.Conditions, kind); c == nil || c.Status != metav1.ConditionTrue || c.Reason != why {
			return fmt.Errorf("%s", tm.describe(ctx, name))
		}
		return nil
	})
}
