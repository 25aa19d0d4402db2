package e2e

import (
	"context"
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// TestBatchJobs tells stories of Kubernetes' own Jobs on one sandbox; each in a
// namespace of its own that is empty again afterwards.
func TestBatchJobs(t *testing.T) {
	c := up(t, "batchjobs")
	tellAll(t, c, "batch", batchJobs, []story[batchTeam]{
		{"a queued Job that is created running runs whole, completes, and frees its quota", batchRuns},
		{"a Job that does not fit waits with its reason, and runs when another is deleted", batchWaits},
		{"a pod that is deleted by hand comes back to its slot", batchPodDeleted},
		{"a deactivated Workload stops its Job, and an activated one runs it again", batchDeactivated},
		{"a killed scheduler charges a Job once, and goes on with it", batchSchedulerKilled},
		{"Jobs of no queue, of a CronJob and of a JobSet run on what nobody holds", batchUnqueued},
	})
}

// batchTeam is a namespace with what a team does in it with Jobs.
type batchTeam struct{ team }

func batchJobs(_ *testing.T, tm team) batchTeam { return batchTeam{tm} }

// create creates a Job of pods pods with gpus GPUs each, as its user would:
// running, and without a scheduler's name.
func (tm batchTeam) create(t *testing.T, name, queue string, pods int32, gpus int64) *batchv1.Job {
	t.Helper()
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: tm.namespace, Name: name},
		Spec:       jobSpec(pods, gpus),
	}
	if queue != "" {
		job.Labels = map[string]string{"kueue.x-k8s.io/queue-name": queue}
	}
	if err := tm.client.Create(t.Context(), job); err != nil {
		t.Fatalf("creating Job %s: %v", name, err)
	}
	return job
}

func jobSpec(pods int32, gpus int64) batchv1.JobSpec {
	limits := corev1.ResourceList{gpu: *resource.NewQuantity(gpus, resource.DecimalSI)}
	return batchv1.JobSpec{
		Parallelism: &pods, Completions: &pods, CompletionMode: new(batchv1.IndexedCompletion),
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{{
				Name: "train", Image: "example.com/train", Resources: corev1.ResourceRequirements{Limits: limits},
			}},
		}},
	}
}

// runs waits until n pods of a Job run, and no other is there.
func (tm batchTeam) runs(t *testing.T, name string, n int) []corev1.Pod {
	t.Helper()
	return tm.running(t, name, n, true, tm.pods)
}

// pods are the pods of a Job that have not ended.
func (tm batchTeam) pods(ctx context.Context, name string) ([]corev1.Pod, error) {
	return tm.living(ctx, batchv1.JobNameLabel, name)
}

// end lets the running pods of a Job succeed, and waits until the Job is
// complete and its Workload finished.
func (tm batchTeam) end(t *testing.T, name string) {
	t.Helper()
	pods, err := tm.pods(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	tm.succeed(t, pods)
	eventually(t, "Job "+name+" to be complete", func(ctx context.Context) error {
		job := &batchv1.Job{}
		if err := tm.client.Get(ctx, client.ObjectKey{Namespace: tm.namespace, Name: name}, job); err != nil {
			return err
		}
		if job.Status.CompletionTime == nil {
			return fmt.Errorf("its status is %+v", job.Status)
		}
		wl, err := tm.workload(ctx, name)
		if err != nil || wl == nil || !apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished) {
			return fmt.Errorf("%s (%v)", tm.describe(ctx, name), err)
		}
		return nil
	})
}

// waits waits until a Job is suspended without pods, and its Workload says why.
func (tm batchTeam) waits(t *testing.T, name, class, part string) {
	t.Helper()
	tm.waiting(t, name, class, part, func(ctx context.Context, name string) (bool, error) {
		job := &batchv1.Job{}
		err := tm.client.Get(ctx, client.ObjectKey{Namespace: tm.namespace, Name: name}, job)
		return ptr.Deref(job.Spec.Suspend, false), err
	}, tm.pods)
}

func (tm batchTeam) remove(t *testing.T, obj client.Object) {
	t.Helper()
	if err := tm.client.Delete(t.Context(), obj, client.PropagationPolicy(metav1.DeletePropagationBackground)); client.IgnoreNotFound(err) != nil {
		t.Fatalf("deleting %s: %v", obj.GetName(), err)
	}
}

func batchRuns(t *testing.T, tm batchTeam) {
	tm.queueUp(t, "q", 8)
	job := tm.create(t, "train", "q", 2, 4)
	if !ptr.Deref(job.Spec.Suspend, false) || job.Spec.Template.Spec.SchedulerName != "muster" {
		t.Errorf("it was created with suspend %v for scheduler %s", ptr.Deref(job.Spec.Suspend, false), job.Spec.Template.Spec.SchedulerName)
	}
	tm.runs(t, "train", 2)
	tm.usage(t, "q", 8, 1, 0)
	tm.end(t, "train")
	tm.usage(t, "q", 0, 0, 0)
}

func batchWaits(t *testing.T, tm batchTeam) {
	tm.queueUp(t, "q", 8)
	first := tm.create(t, "first", "q", 2, 4)
	tm.runs(t, "first", 2)
	tm.create(t, "second", "q", 1, 8)
	tm.waits(t, "second", "WaitingForQuota", "needs 8 GPUs in queue q, 0 of 8 free")
	tm.remove(t, first)
	tm.runs(t, "second", 1)
	tm.usage(t, "q", 8, 1, 0)
}

func batchPodDeleted(t *testing.T, tm batchTeam) {
	tm.queueUp(t, "q", 64)
	// All four nodes are full, so that the only room is the deleted pod's.
	tm.create(t, "train", "q", 4, 8)
	pods := tm.runs(t, "train", 4)
	tm.create(t, "waiter", "q", 1, 8)
	tm.waits(t, "waiter", "NoPlacement", "")
	old := pods[0]
	if err := tm.client.Delete(t.Context(), &old); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod's replacement to run on its node", func(ctx context.Context) error {
		now, err := tm.pods(ctx, "train")
		if err != nil {
			return err
		}
		for _, pod := range now {
			if pod.UID != old.UID && pod.Spec.NodeName == old.Spec.NodeName && pod.Status.Phase == corev1.PodRunning {
				return nil
			}
		}
		return fmt.Errorf("%d pods are there, none of them", len(now))
	})
	tm.runs(t, "train", 4)
	tm.waits(t, "waiter", "NoPlacement", "")
}

func batchDeactivated(t *testing.T, tm batchTeam) {
	tm.queueUp(t, "q", 8)
	tm.create(t, "train", "q", 2, 4)
	before := uids(tm.runs(t, "train", 2))
	tm.activate(t, "train", false)
	tm.waits(t, "train", "Deactivated", "spec.active is false")
	tm.usage(t, "q", 0, 0, 0)
	tm.activate(t, "train", true)
	if after := uids(tm.runs(t, "train", 2)); len(after.Intersection(before)) > 0 {
		t.Errorf("pods of before run: %v", after.Intersection(before))
	}
	tm.usage(t, "q", 8, 1, 0)
	tm.end(t, "train")
}

func batchSchedulerKilled(t *testing.T, tm batchTeam) {
	tm.queueUp(t, "q", 16)
	tm.create(t, "train", "q", 2, 4)
	before := uids(tm.runs(t, "train", 2))
	tm.kill(t, "muster-scheduler")
	tm.create(t, "later", "q", 1, 8)
	tm.restart(t, "muster-scheduler")
	tm.runs(t, "later", 1)
	tm.create(t, "beyond", "q", 1, 8)
	tm.waits(t, "beyond", "WaitingForQuota", "needs 8 GPUs in queue q, 0 of 16 free")
	tm.usage(t, "q", 16, 2, 1)
	if after := uids(tm.runs(t, "train", 2)); !after.Equal(before) {
		t.Errorf("its pods were %v and are %v", before, after)
	}
}

func batchUnqueued(t *testing.T, tm batchTeam) {
	plain := tm.create(t, "plain", "", 1, 1)
	if ptr.Deref(plain.Spec.Suspend, false) {
		t.Error("a Job of no queue was suspended")
	}
	cron := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: tm.namespace, Name: "cron"},
		Spec:       batchv1.CronJobSpec{Schedule: "* * * * *", Suspend: new(true), JobTemplate: batchv1.JobTemplateSpec{Spec: jobSpec(1, 1)}},
	}
	if err := tm.client.Create(t.Context(), cron); err != nil {
		t.Fatal(err)
	}
	// As "kubectl create job --from=cronjob/cron" makes it.
	made := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: tm.namespace, Name: "made", OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(cron, batchv1.SchemeGroupVersion.WithKind("CronJob")),
		}},
		Spec: jobSpec(1, 1),
	}
	js := &jobset.JobSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: tm.namespace, Name: "js"},
		Spec: jobset.JobSetSpec{ReplicatedJobs: []jobset.ReplicatedJob{{
			Name: "node", Replicas: 1, Template: batchv1.JobTemplateSpec{Spec: jobSpec(1, 1)},
		}}},
	}
	for _, obj := range []client.Object{made, js} {
		if err := tm.client.Create(t.Context(), obj); err != nil {
			t.Fatalf("creating %T: %v", obj, err)
		}
	}
	for _, name := range []string{"plain", "made", "js-node-0"} {
		tm.runs(t, name, 1)
	}
}
