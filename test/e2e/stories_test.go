package e2e

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-gpu/muster/internal/testsandbox"
)

// story is told by what a team, or a team of one kind of jobs, does.
type story[T any] struct {
	name string
	tell func(*testing.T, T)
}

// tellAll tells one story after the other on one sandbox, each in a namespace
// of its own whose name begins with prefix. as makes a team the one that tells.
func tellAll[T any](t *testing.T, c *cluster, prefix string, as func(*testing.T, team) T, stories []story[T]) {
	for i, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			s.tell(t, as(t, c.team(t, fmt.Sprintf("%s-%d", prefix, i))))
		})
	}
}

func anyJobs(_ *testing.T, tm team) team { return tm }

// team creates the namespace of a team, which is empty again when the test has
// ended. Whatever the team did, what must always hold must hold.
func (c *cluster) team(t *testing.T, namespace string) team {
	t.Helper()
	if err := c.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		t.Fatal(err)
	}
	tm := team{cluster: c, namespace: namespace}
	// Last, when everything is removed.
	t.Cleanup(func() { c.holds(t) })
	t.Cleanup(func() { tm.removeAll(t) })
	return tm
}

// makers are all kinds that make pods or other makers in these tests, those that
// make others first.
func makers() []client.Object {
	objects := []client.Object{&batchv1.CronJob{}, &appsv1.Deployment{}, &appsv1.StatefulSet{}}
	for _, kind := range []schema.GroupVersionKind{
		{Group: "trainer.kubeflow.org", Version: "v1alpha1", Kind: "TrainJob"},
		{Group: "kubeflow.org", Version: "v1", Kind: "PyTorchJob"},
		{Group: "kubeflow.org", Version: "v1", Kind: "TFJob"},
		{Group: "kubeflow.org", Version: "v1", Kind: "MPIJob"},
	} {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(kind)
		objects = append(objects, u)
	}
	return append(objects, &jobset.JobSet{}, &batchv1.Job{})
}

// removeAll empties the namespace of all that makes pods, and of pods.
func (tm team) removeAll(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, obj := range makers() {
		err := tm.client.DeleteAllOf(ctx, obj, client.InNamespace(tm.namespace), client.PropagationPolicy(metav1.DeletePropagationBackground))
		// Not every sandbox has all kinds.
		if err != nil && !apimeta.IsNoMatchError(err) {
			t.Errorf("deleting every %s: %v", nameOfKind(obj), err)
		}
	}
	if err := tm.client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(tm.namespace), client.GracePeriodSeconds(0)); err != nil {
		t.Errorf("deleting pods: %v", err)
	}
	if err := testsandbox.Poll(ctx, func(ctx context.Context) error {
		var jobs batchv1.JobList
		var pods corev1.PodList
		for _, list := range []client.ObjectList{&jobs, &pods} {
			if err := tm.client.List(ctx, list, client.InNamespace(tm.namespace)); err != nil {
				return err
			}
		}
		if len(jobs.Items)+len(pods.Items) > 0 {
			return fmt.Errorf("%d Jobs and %d pods are left", len(jobs.Items), len(pods.Items))
		}
		return nil
	}); err != nil {
		t.Errorf("emptying %s: %v", tm.namespace, err)
	}
}

func nameOfKind(obj client.Object) string {
	if kind := obj.GetObjectKind().GroupVersionKind().Kind; kind != "" {
		return kind
	}
	return fmt.Sprintf("%T", obj)
}
