package e2e

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/internal/testobject"
	"github.com/muster-gpu/muster/workload"
)

// TestDefaults tells stories of what the webhook fills in, and of its absence.
func TestDefaults(t *testing.T) {
	c := up(t, "defaults")
	tellAll(t, c, "defaults", batchJobs, []story[batchTeam]{
		{"jobs that name no queue run through the default one of their namespace", defaultQueued},
		{"a namespace names another queue for jobs and pods that name none, and what runs stays in it", namedDefault},
		{"in a namespace without a default queue they run unqueued", noDefaultQueue},
		{"a queued pod is made for Muster, and without the webhook it is made all the same", podWithoutWebhook},
	})
}

func defaultQueued(t *testing.T, tm batchTeam) {
	tm.queueUp(t, "default", 16)
	tm.team.create(t, job{name: "llm", nodes: 2, gpus: 4})
	tm.team.runs(t, "llm", 2)
	tm.usage(t, "default", 8, 1, 0)

	train := tm.create(t, "train", "", 2, 4)
	if queue := train.Labels[workload.QueueLabel]; queue != "default" || !ptr.Deref(train.Spec.Suspend, false) {
		t.Errorf("the Job was created with suspend %v in queue %q", ptr.Deref(train.Spec.Suspend, false), queue)
	}
	tm.runs(t, "train", 2)
	tm.usage(t, "default", 16, 2, 0)

	plain := tm.withoutGPUs(t, "plain")
	if plain.Labels[workload.QueueLabel] != "" || ptr.Deref(plain.Spec.Suspend, false) {
		t.Errorf("a Job without GPUs was created with labels %v, suspend %v", plain.Labels, ptr.Deref(plain.Spec.Suspend, false))
	}
	tm.runs(t, "plain", 1)
	tm.usage(t, "default", 16, 2, 0)

	// There is room on the nodes, but not in the queue.
	tm.create(t, "later", "", 1, 4)
	tm.waits(t, "later", "WaitingForQuota", "needs 4 GPUs in queue default, 0 of 16 free")
	tm.end(t, "train")
	tm.runs(t, "later", 1)
	tm.usage(t, "default", 12, 2, 0)
}

func namedDefault(t *testing.T, tm batchTeam) {
	tm.queueUp(t, "own", 16)
	tm.queueUp(t, "other", 16)
	testobject.Change(t, tm.client, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tm.namespace}}, func(ns *corev1.Namespace) {
		ns.Annotations = map[string]string{workload.DefaultQueueAnnotation: "own"}
	})
	train := tm.create(t, "train", "", 2, 4)
	tm.runs(t, "train", 2)
	tm.usage(t, "own", 8, 1, 0)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: tm.namespace, Name: "alone"}, Spec: jobSpec(1, 4).Template.Spec}
	tm.make(t, pod)
	tm.usage(t, "own", 12, 2, 0)

	moved := train.DeepCopy()
	moved.Labels[workload.QueueLabel] = "other"
	err := tm.client.Patch(t.Context(), moved, client.MergeFrom(train))
	if err == nil || !strings.Contains(err.Error(), "the job runs in queue own, in which it holds quota: suspend it before") {
		t.Errorf("moving the job to another queue: %v", err)
	}
}

// withoutGPUs creates a Job of one pod that asks for no GPU.
func (tm batchTeam) withoutGPUs(t *testing.T, name string) *batchv1.Job {
	t.Helper()
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: tm.namespace, Name: name}, Spec: jobSpec(1, 1)}
	j.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	tm.make(t, j)
	return j
}

func noDefaultQueue(t *testing.T, tm batchTeam) {
	tm.queueUp(t, "q", 8)
	tm.team.create(t, job{name: "llm", nodes: 2, gpus: 4})
	train := tm.create(t, "train", "", 2, 4)
	if train.Labels[workload.QueueLabel] != "" || ptr.Deref(train.Spec.Suspend, false) {
		t.Errorf("the Job was created with labels %v, suspend %v", train.Labels, ptr.Deref(train.Spec.Suspend, false))
	}
	tm.team.runs(t, "llm", 2)
	tm.runs(t, "train", 2)
	tm.usage(t, "q", 0, 0, 0)
}

func podWithoutWebhook(t *testing.T, tm batchTeam) {
	tm.queueUp(t, "q", 8)
	queue := map[string]string{workload.QueueLabel: "q"}
	stamped := tm.alone("stamped", 4, queue, nil)
	tm.make(t, stamped)
	if stamped.Spec.SchedulerName != "muster" {
		t.Errorf("a queued pod was created for scheduler %s", stamped.Spec.SchedulerName)
	}
	tm.started(t, stamped)
	tm.usage(t, "q", 4, 1, 0)

	tm.kill(t, "muster-webhook")
	defer tm.restart(t, "muster-webhook")
	tm.forgoPolicies(t)
	missed := tm.alone("missed", 4, queue, nil)
	tm.make(t, missed)
	if missed.Spec.SchedulerName != corev1.DefaultSchedulerName {
		t.Errorf("without the webhook the pod was created for scheduler %s", missed.Spec.SchedulerName)
	}
	// The sandbox's scheduler serves both names.
	tm.started(t, missed)
	tm.usage(t, "q", 8, 2, 0)
	train := tm.create(t, "train", "", 1, 4)
	if queue := train.Labels[workload.QueueLabel]; queue != "" {
		t.Errorf("who put the Job in queue %s?", queue)
	}
	tm.runs(t, "train", 1)
}
