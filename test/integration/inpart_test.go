package integration

import (
	"context"
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/internal/testcluster"
)

func init() {
	scenarios = append(scenarios,
		scenario{name: "a batch Job that fits only in part runs with fewer pods, also after a restart, and is whole again when it was preempted", run: func(t *testing.T, e *env) {
			e.RunBatchJobs(t)
			e.Node(t, "node-0", 8)
			e.preempting(t, "team", 8)
			first := testcluster.BatchJob(e.namespace, "first", "team", 1, 3)
			e.Create(t, first)
			e.jobRuns(t, first, 1)
			job := e.partial("train", 8, 2, false)
			e.Create(t, job)
			pods := e.jobRuns(t, job, 5)
			e.size(t, job, false, 5, 8)
			e.admittedWith(t, job, 8, 5)
			e.usage(t, "team", 8, 2, 0)
			e.restart(t)
			e.usage(t, "team", 8, 2, 0)
			e.size(t, job, false, 5, 8)
			for i, p := range e.jobRuns(t, job, 5) {
				if p.UID != pods[i].UID {
					t.Errorf("after the restart pod %s runs, before it was %s", p.Name, pods[i].Name)
				}
			}
			// What has come free meanwhile is not for it.
			e.podsSucceed(t, first, 1)
			e.usage(t, "team", 5, 1, 0)
			urgent := e.urgent(t, "urgent", 1, 7)
			e.runs(t, urgent, 1)
			e.condition(t, job, kueue.WorkloadPreempted, metav1.ConditionTrue, kueue.InClusterQueueReason, string(urgent.UID))
			e.condition(t, job, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "WaitingForQuota", "; it would start with 2 of its 8 pods")
			e.onNodes(t, job, 0)
			e.size(t, job, true, 8, 8)
			e.admittedWith(t, job, 8, 0)
			e.finish(t, urgent)
			e.jobRuns(t, job, 8)
			e.size(t, job, false, 8, 8)
			e.podsSucceed(t, job, 8)
			e.condition(t, job, kueue.WorkloadFinished, metav1.ConditionTrue, "Succeeded", "")
			e.usage(t, "team", 0, 0, 0)
		}},
		scenario{name: "a batch Job with as many completions as pods runs in part, and its completions are restored when it is deactivated", run: func(t *testing.T, e *env) {
			e.RunBatchJobs(t)
			e.Node(t, "node-0", 3)
			e.Queue(t, e.namespace, "team", 8)
			job := e.partial("train", 8, 2, true)
			e.Create(t, job)
			e.jobRuns(t, job, 3)
			e.size(t, job, false, 3, 3)
			e.setActive(t, job, false)
			e.onNodes(t, job, 0)
			e.condition(t, job, kueue.WorkloadAdmitted, metav1.ConditionFalse, "NoReservation", "")
			e.size(t, job, true, 8, 8)
			e.Node(t, "node-1", 1)
			e.setActive(t, job, true)
			e.jobRuns(t, job, 4)
			e.size(t, job, false, 4, 4)
			e.podsSucceed(t, job, 4)
			e.condition(t, job, kueue.WorkloadFinished, metav1.ConditionTrue, "Succeeded", "")
			e.usage(t, "team", 0, 0, 0)
		}},
		scenario{name: "a batch Job that runs in part works off all of its completions, and its slots as it comes to an end", run: func(t *testing.T, e *env) {
			e.RunBatchJobs(t)
			e.Node(t, "node-0", 3)
			e.Queue(t, e.namespace, "team", 8)
			job := e.partial("train", 5, 2, false)
			e.Create(t, job)
			waiter := e.job("waiter", "team", 1, 1)
			e.jobRuns(t, job, 3)
			e.Create(t, waiter)
			e.pending(t, waiter, "NoPlacement", "")
			for range 2 {
				e.podsSucceed(t, job, 1)
				e.jobRuns(t, job, 3)
			}
			e.pending(t, waiter, "NoPlacement", "")
			e.podsSucceed(t, job, 1)
			e.runs(t, waiter, 1)
			e.podsSucceed(t, job, 2)
			e.condition(t, job, kueue.WorkloadFinished, metav1.ConditionTrue, "Succeeded", "")
		}},
	)
}

// partial is a batch Job of pods with one GPU each that can do with least.
func (e *env) partial(name string, pods, least int32, sync bool) *batchv1.Job {
	job := testcluster.BatchJob(e.namespace, name, "team", pods, 1)
	job.Annotations = map[string]string{
		"kueue.x-k8s.io/job-min-parallelism":               fmt.Sprint(least),
		"kueue.x-k8s.io/job-completions-equal-parallelism": fmt.Sprint(sync),
	}
	return job
}

// size waits until a batch Job has the numbers given, and is suspended or not.
func (e *env) size(t *testing.T, job *batchv1.Job, suspended bool, parallelism, completions int32) {
	t.Helper()
	testcluster.Eventually(t, fmt.Sprintf("%s to have parallelism %d", job.Name, parallelism), func(ctx context.Context) error {
		now := &batchv1.Job{}
		if err := e.Client.Get(ctx, client.ObjectKeyFromObject(job), now); err != nil {
			return err
		}
		if s := &now.Spec; *s.Suspend != suspended || *s.Parallelism != parallelism || *s.Completions != completions {
			return fmt.Errorf("suspended %v, parallelism %d, completions %d", *s.Suspend, *s.Parallelism, *s.Completions)
		}
		return nil
	})
}

// admittedWith checks how many pods the Workload of a job asks for, and with how
// many it is admitted, 0 for not at all.
func (e *env) admittedWith(t *testing.T, job *batchv1.Job, asks, has int32) {
	t.Helper()
	wl, err := e.workload(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	var admitted int32
	if a := wl.Status.Admission; a != nil {
		admitted = *a.PodSetAssignments[0].Count
	}
	if got := wl.Spec.PodSets[0].Count; got != asks || admitted != has {
		t.Errorf("the Workload asks for %d pods and is admitted with %d, want %d and %d", got, admitted, asks, has)
	}
}
