package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/internal/testobject"
)

// TestOutage tells what becomes of a cluster in which replicas of the webhook die.
func TestOutage(t *testing.T) {
	c := up(t, "outage")
	tellAll(t, c, "outage", anyJobs, []story[team]{
		{"with every replica dead only what has GPUs or a queue is refused, and all heals when one is back", everyReplicaDead},
		{"a job is stopped while every replica is dead, and starts again when one is back", stoppedMeanwhile},
		{"of two replicas each is stopped in turn, and no pod is refused or misses its defaults", eachStoppedInTurn},
	})
}

func everyReplicaDead(t *testing.T, tm team) {
	tm.queueUp(t, "q", 16)
	tm.create(t, job{name: "llm", queue: "q", nodes: 2, gpus: 4})
	before := uids(tm.runs(t, "llm", 2))
	web := tm.deployment(1, 1)
	web.Labels = nil
	tm.make(t, web)
	tm.serving(t, "", 1)
	exempt := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tm.namespace + "-exempt", Labels: map[string]string{"muster.dev/webhook": "ignore"}}}
	tm.make(t, exempt)
	outside := team{cluster: tm.cluster, namespace: exempt.Name}
	t.Cleanup(func() { outside.removeAll(t) })

	tm.kill(t, "muster-webhook")

	for asked, object := range map[string]client.Object{
		"pods.policies.muster.dev":      tm.alone("late", 1, nil, nil),
		"workloads.policies.muster.dev": tm.object(job{name: "late", nodes: 1, gpus: 1}),
		"templates.policies.muster.dev": &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: tm.namespace, Name: "late"}, Spec: jobSpec(1, 1)},
	} {
		if err := tm.client.Create(t.Context(), object); !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), asked) {
			t.Errorf("of %T the answer is %v, want that %s cannot be asked", object, err, asked)
		}
	}

	plain := batchTeam{tm}.withoutGPUs(t, "plain")
	batchTeam{tm}.runs(t, plain.Name, 1)
	free := tm.deployment(2, 1)
	free.Name, free.Labels = "free", nil
	free.Spec.Selector.MatchLabels, free.Spec.Template.Labels = map[string]string{"app": "free"}, map[string]string{"app": "free"}
	free.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	system := tm.alone(tm.namespace+"-system", 1, nil, nil)
	system.Namespace = metav1.NamespaceSystem
	unasked := outside.alone("unasked", 1, nil, nil)
	tm.make(t, free, system, unasked,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: tm.namespace, Name: "c"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: tm.namespace}})
	tm.started(t, system, unasked)
	eventually(t, "a Deployment without GPUs to have its pods", func(ctx context.Context) error {
		if pods, err := tm.living(ctx, "app", "free"); err != nil || len(pods) != 2 {
			return fmt.Errorf("it has %d (%v)", len(pods), err)
		}
		return nil
	})
	for _, object := range []client.Object{system, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: tm.namespace}}} {
		if err := tm.client.Delete(t.Context(), object, client.GracePeriodSeconds(0)); err != nil {
			t.Error(err)
		}
	}
	testobject.Change(t, tm.client, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-0"}}, func(node *corev1.Node) { node.Labels[tm.namespace] = "" })

	// A controller cannot replace a pod with GPUs now, and says so.
	gone, err := tm.living(t.Context(), "app", "web")
	if err != nil || len(gone) != 1 {
		t.Fatalf("%d pods serve (%v)", len(gone), err)
	}
	if err := tm.client.Delete(t.Context(), &gone[0], client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Deployment to say why it has no pod", func(ctx context.Context) error {
		var sets appsv1.ReplicaSetList
		if err := tm.client.List(ctx, &sets, client.InNamespace(tm.namespace), client.MatchingLabels{"app": "web"}); err != nil {
			return err
		}
		for _, set := range sets.Items {
			for _, c := range set.Status.Conditions {
				if strings.Contains(c.Message, "pods.policies.muster.dev") {
					return nil
				}
			}
		}
		return fmt.Errorf("it has the ReplicaSets %+v", sets.Items)
	})
	if got := uids(tm.runs(t, "llm", 2)); !got.Equal(before) {
		t.Errorf("the running job's pods were replaced: %v, before %v", got, before)
	}

	tm.restart(t, "muster-webhook")
	tm.serving(t, "", 1)
	late := tm.alone("late", 1, nil, nil)
	tm.make(t, late)
	tm.started(t, late)
	if variables(&late.Spec.Containers[0])["NCCL_DEBUG"] == "" {
		t.Errorf("the pod has no defaults: %v", late.Spec.Containers[0].Env)
	}
	tm.end(t, "llm")
	tm.finishes(t, "llm")
}

// stoppedMeanwhile is about what the Trainer does of a TrainJob that the scheduler
// has stopped or started: it changes the JobSet.
func stoppedMeanwhile(t *testing.T, tm team) {
	tm.queueUp(t, "q", 16)
	tm.create(t, job{name: "llm", queue: "q", nodes: 2, gpus: 8})
	tm.runs(t, "llm", 2)
	tm.kill(t, "muster-webhook")
	tm.activate(t, "llm", false)
	tm.waits(t, "llm", "Deactivated", "spec.active is false")
	tm.usage(t, "q", 0, 0, 0)
	tm.activate(t, "llm", true)
	tm.restart(t, "muster-webhook")
	tm.runs(t, "llm", 2)
}
