package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/internal/testcluster"
	"github.com/muster-gpu/muster/internal/testobject"
)

func init() {
	scenarios = append(scenarios,
		scenario{name: "a batch Job that is created running is suspended, admitted, runs whole, and gives its quota back when it is complete", run: func(t *testing.T, e *env) {
			e.RunBatchJobs(t)
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 8)
			job := testcluster.BatchJob(e.namespace, "train", "team", 2, 4)
			job.Spec.Suspend = new(false)
			e.Create(t, job)
			e.event(t, job, "Admitted", "admitted: 8 GPUs on node-0 from queue team")
			e.jobRuns(t, job, 2)
			e.usage(t, "team", 8, 1, 0)
			e.podsSucceed(t, job, 2)
			e.condition(t, job, kueue.WorkloadFinished, metav1.ConditionTrue, "Succeeded", "")
			e.usage(t, "team", 0, 0, 0)
		}},
		scenario{name: "a batch Job that does not fit waits with its reason, without pods, and runs when there is room", run: func(t *testing.T, e *env) {
			e.RunBatchJobs(t)
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 64)
			first, second := testcluster.BatchJob(e.namespace, "first", "team", 2, 4), testcluster.BatchJob(e.namespace, "second", "team", 1, 8)
			e.Create(t, first)
			e.jobRuns(t, first, 2)
			e.Create(t, second)
			e.condition(t, second, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "NoPlacement", "0 GPUs are free")
			e.onNodes(t, second, 0)
			e.podsSucceed(t, first, 2)
			e.jobRuns(t, second, 1)
		}},
		scenario{name: "the replacement of a batch Job's deleted pod takes its slot although another job waits for the room", run: func(t *testing.T, e *env) {
			e.RunBatchJobs(t)
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 64)
			job, waiter := testcluster.BatchJob(e.namespace, "train", "team", 2, 4), e.job("waiter", "team", 1, 4)
			e.Create(t, job)
			pods := e.jobRuns(t, job, 2)
			e.Create(t, waiter)
			e.pending(t, waiter, "NoPlacement", "")
			if err := e.Client.Delete(t.Context(), &pods[0]); err != nil {
				t.Fatal(err)
			}
			e.isGone(t, &pods[0])
			e.jobRuns(t, job, 2)
			e.pending(t, waiter, "NoPlacement", "")
			e.usage(t, "team", 8, 1, 1)
		}},
		scenario{name: "a batch Job that ran is deactivated, and activated again runs in another flavor", run: func(t *testing.T, e *env) {
			e.RunBatchJobs(t)
			for _, pool := range []string{"a", "b"} {
				testobject.Change(t, e.Client, e.Node(t, "node-"+pool, 8), func(node *corev1.Node) { node.Labels["pool"] = pool })
				e.Create(t, &kueue.ResourceFlavor{
					ObjectMeta: metav1.ObjectMeta{Name: "pool-" + pool},
					Spec:       kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"pool": pool}},
				})
			}
			e.Queue(t, e.namespace, "team", 8)
			e.useFlavor(t, "team", "pool-a")
			job := testcluster.BatchJob(e.namespace, "train", "team", 1, 8)
			e.Create(t, job)
			if pods := e.jobRuns(t, job, 1); pods[0].Spec.NodeName != "node-a" {
				t.Errorf("it runs on %s", pods[0].Spec.NodeName)
			}
			e.setActive(t, job, false)
			e.onNodes(t, job, 0)
			e.condition(t, job, kueue.WorkloadAdmitted, metav1.ConditionFalse, "NoReservation", "")
			e.useFlavor(t, "team", "pool-b")
			e.setActive(t, job, true)
			if pods := e.jobRuns(t, job, 1); pods[0].Spec.NodeName != "node-b" {
				t.Errorf("it runs on %s", pods[0].Spec.NodeName)
			}
			e.usage(t, "team", 8, 1, 0)
		}},
		scenario{name: "a restarted scheduler charges a batch Job once, and does not hold for its pods that are over", run: func(t *testing.T, e *env) {
			e.RunBatchJobs(t)
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 64)
			job, waiter := testcluster.BatchJob(e.namespace, "train", "team", 2, 4), e.job("waiter", "team", 1, 4)
			e.Create(t, job)
			e.jobRuns(t, job, 2)
			e.Create(t, waiter)
			e.pending(t, waiter, "NoPlacement", "")
			e.restart(t)
			e.usage(t, "team", 8, 1, 1)
			e.pending(t, waiter, "NoPlacement", "")
			e.stop()
			e.podsSucceed(t, job, 1)
			e.start(t)
			e.runs(t, waiter, 1)
			e.onNodes(t, job, 1)
		}},
		scenario{name: "pods of a batch Job that follow each other take each other's slots", run: func(t *testing.T, e *env) {
			e.RunBatchJobs(t)
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 64)
			job := testcluster.BatchJob(e.namespace, "train", "team", 2, 4)
			job.Spec.Completions, job.Spec.CompletionMode = new(int32(5)), new(batchv1.NonIndexedCompletion)
			waiter := e.job("waiter", "team", 1, 4)
			e.Create(t, job)
			e.jobRuns(t, job, 2)
			e.Create(t, waiter)
			for range 3 {
				e.podsSucceed(t, job, 1)
				e.jobRuns(t, job, 2)
				e.pending(t, waiter, "NoPlacement", "")
			}
			e.podsSucceed(t, job, 1)
			e.runs(t, waiter, 1)
			e.podsSucceed(t, job, 1)
			e.condition(t, job, kueue.WorkloadFinished, metav1.ConditionTrue, "Succeeded", "")
		}},
		scenario{name: "an index of a batch Job that has failed for good is not waited for", configure: func(c *configv1alpha1.SchedulerConfiguration) {
			c.Admission.StartTimeout.Duration = 2 * time.Second
		}, run: func(t *testing.T, e *env) {
			e.RunBatchJobs(t)
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 64)
			job := testcluster.BatchJob(e.namespace, "train", "team", 2, 4)
			job.Spec.BackoffLimitPerIndex, job.Spec.MaxFailedIndexes = new(int32(0)), new(int32(2))
			waiter := e.job("waiter", "team", 1, 4)
			e.Create(t, job)
			e.jobRuns(t, job, 2)
			e.Create(t, waiter)
			e.pending(t, waiter, "NoPlacement", "")
			e.podsEnd(t, job, 1, corev1.PodFailed)
			e.runs(t, waiter, 1)
			since := time.Now()
			testcluster.Eventually(t, "the start timeout to be over", func(context.Context) error {
				if time.Since(since) < 2*e.config.Admission.StartTimeout.Duration {
					return fmt.Errorf("not yet")
				}
				return nil
			})
			e.onNodes(t, job, 1)
			e.podsSucceed(t, job, 1)
			e.condition(t, job, kueue.WorkloadFinished, metav1.ConditionTrue, "Failed", "")
			e.usage(t, "team", 4, 1, 0)
		}},
		scenario{name: "a batch Job without a queue, of a CronJob or of a JobSet, or of another controller, is left alone, also after a restart", run: func(t *testing.T, e *env) {
			e.RunBatchJobs(t)
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 64)
			owner := func(apiVersion, kind string) []metav1.OwnerReference {
				return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "owner", UID: "owner-1", Controller: new(true)}}
			}
			plain := testcluster.BatchJob(e.namespace, "plain", "", 1, 1)
			cron := testcluster.BatchJob(e.namespace, "cron", "", 1, 1)
			cron.OwnerReferences = owner("batch/v1", "CronJob")
			child := testcluster.BatchJob(e.namespace, "child", "team", 1, 1)
			child.OwnerReferences = owner("jobset.x-k8s.io/v1alpha2", "JobSet")
			for _, round := range []string{"at once", "after a restart"} {
				for _, job := range []*batchv1.Job{plain, cron, child} {
					job = job.DeepCopy()
					job.Name += map[string]string{"at once": "-1", "after a restart": "-2"}[round]
					job.Spec.Suspend = new(false)
					e.Create(t, job)
					e.onNodes(t, job, 1)
				}
				e.restart(t)
			}
			e.usage(t, "team", 0, 0, 0)
		}},
		scenario{name: "a queued Job of a CronJob is a job of its own", run: func(t *testing.T, e *env) {
			e.RunBatchJobs(t)
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 64)
			job := testcluster.BatchJob(e.namespace, "nightly-1", "team", 1, 4)
			job.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "CronJob", Name: "nightly", UID: "nightly-1", Controller: new(true)}}
			e.Create(t, job)
			e.jobRuns(t, job, 1)
			e.usage(t, "team", 4, 1, 0)
		}},
		scenario{name: "a pod whose batch Job does not exist is let go", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: e.namespace, Name: "orphan",
					OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "gone", UID: "gone-1", Controller: new(true)}},
				},
				Spec: corev1.PodSpec{SchedulerName: "muster", Containers: []corev1.Container{{Name: "c", Image: "example.com/x"}}},
			}
			e.Create(t, pod)
			e.onNode(t, pod)
		}},
		scenario{name: "a batch Job that is deleted while it runs gives its quota back when its pods are gone", run: func(t *testing.T, e *env) {
			e.RunBatchJobs(t)
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 8)
			job, waiter := testcluster.BatchJob(e.namespace, "train", "team", 2, 4), e.job("waiter", "team", 1, 4)
			e.Create(t, job)
			e.jobRuns(t, job, 2)
			e.Create(t, waiter)
			e.pending(t, waiter, "WaitingForQuota", "")
			e.remove(t, job)
			e.runs(t, waiter, 1)
			e.usage(t, "team", 4, 1, 0)
		}},
	)
}

// livePods are the pods of a batch Job that have not ended.
func (e *env) livePods(ctx context.Context, job *batchv1.Job) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := e.Client.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}); err != nil {
		return nil, err
	}
	var live []corev1.Pod
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			live = append(live, *p)
		}
	}
	return live, nil
}

// onNodes waits until want live pods of a batch Job are on nodes, and no other
// is there.
func (e *env) onNodes(t *testing.T, job *batchv1.Job, want int) []corev1.Pod {
	t.Helper()
	var live []corev1.Pod
	testcluster.Eventually(t, fmt.Sprintf("%d pods of %s to be on nodes", want, job.Name), func(ctx context.Context) (err error) {
		if live, err = e.livePods(ctx, job); err != nil {
			return err
		}
		bound := 0
		for i := range live {
			if live[i].Spec.NodeName != "" {
				bound++
			}
		}
		if bound != want || len(live) != want {
			return fmt.Errorf("%d of %d pods are", bound, len(live))
		}
		return nil
	})
	return live
}

// jobRuns waits until a batch Job is admitted and all its pods are on nodes.
func (e *env) jobRuns(t *testing.T, job *batchv1.Job, pods int) []corev1.Pod {
	t.Helper()
	live := e.onNodes(t, job, pods)
	e.condition(t, job, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "admitted: ")
	return live
}

// podsSucceed ends n pods of a batch Job, and waits until the Job has counted them.
func (e *env) podsSucceed(t *testing.T, job *batchv1.Job, n int) {
	t.Helper()
	e.podsEnd(t, job, n, corev1.PodSucceeded)
}

func (e *env) podsEnd(t *testing.T, job *batchv1.Job, n int, phase corev1.PodPhase) {
	t.Helper()
	live, err := e.livePods(t.Context(), job)
	if err != nil || len(live) < n {
		t.Fatalf("%d pods of %s can end (%v)", len(live), job.Name, err)
	}
	before := &batchv1.Job{}
	if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(job), before); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		ended := live[i].DeepCopy()
		ended.Status.Phase = phase
		if err := e.Client.Status().Patch(t.Context(), ended, client.MergeFrom(&live[i])); err != nil {
			t.Fatal(err)
		}
	}
	testcluster.Eventually(t, fmt.Sprintf("%s to have counted %d more pods", job.Name, n), func(ctx context.Context) error {
		now := &batchv1.Job{}
		if err := e.Client.Get(ctx, client.ObjectKeyFromObject(job), now); err != nil {
			return err
		}
		if got := now.Status.Succeeded + now.Status.Failed - before.Status.Succeeded - before.Status.Failed; got != int32(n) {
			return fmt.Errorf("its status is %+v", now.Status)
		}
		return nil
	})
}

// useFlavor makes a flavor the only one of a queue.
func (e *env) useFlavor(t *testing.T, queue, flavor string) {
	t.Helper()
	testcluster.Eventually(t, queue+" to have another flavor", func(ctx context.Context) error {
		cq := &kueue.ClusterQueue{}
		if err := e.Client.Get(ctx, client.ObjectKey{Name: e.namespace + "-" + queue}, cq); err != nil {
			return err
		}
		cq.Spec.ResourceGroups[0].Flavors[0].Name = kueue.ResourceFlavorReference(flavor)
		return e.Client.Update(ctx, cq)
	})
}
