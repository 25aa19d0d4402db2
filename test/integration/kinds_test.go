package integration

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/internal/invariants"
	"github.com/muster-gpu/muster/internal/testcluster"
)

var mpiJobs = schema.GroupKind{Group: "kubeflow.org", Kind: "MPIJob"}

// TestKindsComeAndGo runs one scheduler, while MPIJobs come to the cluster in
// one version, go with their definition, and come again in another.
func TestKindsComeAndGo(t *testing.T) {
	cluster := testcluster.Start(t)
	e := &env{Cluster: cluster, namespace: "team"}
	e.config = configv1alpha1.DefaultScheduler()
	e.config.ClientConnection.Kubeconfig = e.Kubeconfig
	e.config.LeaderElection.LeaderElect = false
	e.config.SecureServing.Port = 0
	e.Namespace(t, e.namespace)
	e.RunBatchJobs(t)
	e.Node(t, "node-0", 8)
	e.Queue(t, e.namespace, "q", 8)
	e.start(t)
	t.Cleanup(func() { e.stop() })
	t.Cleanup(func() { e.dump(t) })
	// It has found by then that there are none.
	plain := testcluster.BatchJob(e.namespace, "plain", "q", 1, 1)
	e.Create(t, plain)
	e.jobRuns(t, plain, 1)
	if err := e.Client.Delete(t.Context(), plain, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	e.usage(t, "q", 0, 0, 0)

	e.AddKind(t, schema.GroupVersionKind{Group: mpiJobs.Group, Version: "v2beta1", Kind: mpiJobs.Kind})
	check := e.watch(t)
	job := e.mpiJob(t, "v2beta1")
	launcher := e.launcherOf(t, job)
	e.mpiStarts(t, job)
	e.Create(t, e.mpiWorker(job, 0))
	e.Create(t, e.mpiWorker(job, 1))
	suspended := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"suspend":false}}`))
	if err := e.Client.Patch(t.Context(), launcher, suspended); err != nil {
		t.Fatal(err)
	}
	e.mpiRuns(t, 3)
	e.usage(t, "q", 6, 1, 0)
	e.restart(t)
	e.usage(t, "q", 6, 1, 0)

	check()
	e.RemoveKind(t, mpiJobs)
	if err := e.Client.Delete(t.Context(), launcher, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	err := e.Client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(e.namespace), client.GracePeriodSeconds(0), client.HasLabels{"training.kubeflow.org/job-name"})
	if err != nil {
		t.Fatal(err)
	}
	e.usage(t, "q", 0, 0, 0)
	testcluster.Eventually(t, "the Workload of a kind that is gone to be deleted", func(ctx context.Context) error {
		if wl, err := e.workload(ctx, job); err == nil {
			return fmt.Errorf("it is there: %+v", wl.Status)
		}
		return nil
	})

	e.AddKind(t, schema.GroupVersionKind{Group: mpiJobs.Group, Version: "v1", Kind: mpiJobs.Kind})
	check = e.watch(t)
	job = e.mpiJob(t, "v1")
	e.mpiStarts(t, job)
	e.usage(t, "q", 6, 1, 0)
	if err := e.Client.Delete(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	e.usage(t, "q", 0, 0, 0)
	check()
}

// watch watches what must always hold from now on, of the kinds that there are
// now, until what it returns is called.
func (e *env) watch(t *testing.T) (check func()) {
	t.Helper()
	watcher, err := invariants.Start(t.Context(), e.Config, invariants.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watcher.Stop)
	return func() {
		t.Helper()
		e.holds(t, watcher)
		watcher.Stop()
	}
}

// mpiJob creates an MPIJob of two workers of three GPUs each, and a launcher.
func (e *env) mpiJob(t *testing.T, version string) *unstructured.Unstructured {
	t.Helper()
	replicas := func(n int64, gpus string) map[string]any {
		return map[string]any{"replicas": n, "template": map[string]any{"spec": map[string]any{
			"schedulerName": "muster", "terminationGracePeriodSeconds": int64(0),
			"containers": []any{map[string]any{"name": "mpi", "image": "example.com/mpi", "resources": map[string]any{
				"limits": map[string]any{string(testcluster.GPU): gpus},
			}}},
		}}}
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": mpiJobs.Group + "/" + version, "kind": mpiJobs.Kind,
		"metadata": map[string]any{"namespace": e.namespace, "name": "train", "labels": map[string]any{"kueue.x-k8s.io/queue-name": "q"}},
		"spec": map[string]any{
			"runPolicy":       map[string]any{"suspend": true},
			"mpiReplicaSpecs": map[string]any{"Launcher": replicas(1, "0"), "Worker": replicas(2, "3")},
		},
	}}
	// The API server may not serve a definition yet that it has established.
	testcluster.Eventually(t, "an MPIJob to be created", func(ctx context.Context) error { return e.Client.Create(ctx, u) })
	return u
}

// launcherOf creates the suspended Job of an MPIJob's launcher, as the MPI
// Operator would.
func (e *env) launcherOf(t *testing.T, job *unstructured.Unstructured) *batchv1.Job {
	t.Helper()
	launcher := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "train-launcher", OwnerReferences: mpiOwner(job)},
		Spec: batchv1.JobSpec{
			Suspend: new(true),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: mpiLabels("launcher")},
				Spec: corev1.PodSpec{
					SchedulerName: "muster", RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(0)),
					Containers: []corev1.Container{{Name: "mpi", Image: "example.com/mpi"}},
				},
			},
		},
	}
	e.Create(t, launcher)
	return launcher
}

func mpiOwner(job *unstructured.Unstructured) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: job.GetAPIVersion(), Kind: mpiJobs.Kind, Name: job.GetName(), UID: job.GetUID(), Controller: new(true)}}
}

func mpiLabels(role string) map[string]string {
	return map[string]string{
		"training.kubeflow.org/operator-name": "mpi-operator", "training.kubeflow.org/job-name": "train", "training.kubeflow.org/job-role": role,
	}
}

func (e *env) mpiWorker(job *unstructured.Unstructured, index int) *corev1.Pod {
	labels := mpiLabels("worker")
	labels["training.kubeflow.org/replica-index"] = strconv.Itoa(index)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: e.namespace, Name: "train-worker-" + strconv.Itoa(index), Labels: labels, OwnerReferences: mpiOwner(job),
		},
		Spec: corev1.PodSpec{
			SchedulerName: "muster", TerminationGracePeriodSeconds: new(int64(0)),
			Containers: []corev1.Container{{
				Name: "mpi", Image: "example.com/mpi",
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{testcluster.GPU: *resource.NewQuantity(3, resource.DecimalSI)}},
			}},
		},
	}
}

// mpiStarts waits until an MPIJob is admitted and resumed.
func (e *env) mpiStarts(t *testing.T, job *unstructured.Unstructured) {
	t.Helper()
	testcluster.Eventually(t, "the MPIJob to be resumed", func(ctx context.Context) error {
		if err := e.Client.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
			return err
		}
		if suspend, _, _ := unstructured.NestedBool(job.Object, "spec", "runPolicy", "suspend"); suspend {
			return errors.New("it is suspended")
		}
		return nil
	})
	e.condition(t, job, "Admitted", metav1.ConditionTrue, "Admitted", "admitted: 6 GPUs")
}

// mpiRuns waits until n pods of the MPIJob are on nodes.
func (e *env) mpiRuns(t *testing.T, n int) {
	t.Helper()
	testcluster.Eventually(t, fmt.Sprintf("%d pods of the MPIJob to be on nodes", n), func(ctx context.Context) error {
		var pods corev1.PodList
		if err := e.Client.List(ctx, &pods, client.InNamespace(e.namespace), client.MatchingLabels{"training.kubeflow.org/job-name": "train"}); err != nil {
			return err
		}
		on := 0
		for i := range pods.Items {
			if pods.Items[i].Spec.NodeName != "" {
				on++
			}
		}
		if on != n {
			return fmt.Errorf("%d of %d are", on, len(pods.Items))
		}
		return nil
	})
}
