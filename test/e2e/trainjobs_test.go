package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/internal/testobject"
)

// TestTrainJobs tells, on one sandbox, one story after the other; each in a
// namespace of its own that is empty again afterwards.
func TestTrainJobs(t *testing.T) {
	c := up(t, "trainjobs")
	tellAll(t, c, "team", anyJobs, []story[team]{
		{"a runtime that does not exist is named to the user at once", runtimeMissing},
		{"a job that is queued before its queue exists starts when the queue comes", queueComesLater},
		{"a killed scheduler loses no job, and goes on where it was", schedulerKilled},
		{"a killed webhook stops nobody, and no job slips past its queue", webhookKilled},
		{"a deleted job frees all that it held, whether it waits or runs", deleted},
		{"jobs that are deleted and created again at once run once the old pods are gone", recreated},
		{"an initializer runs before its nodes, and their GPUs are held meanwhile", initializer},
		{"the launcher and the workers of an MPI job are one gang", mpi},
		{"a deactivated Workload stops its job, and an activated one starts it", deactivated},
		{"a job whose quantities are numbers gets what its flavor injects, and later something else", numbers},
		{"the example of the README does what the README says", readme},
	})
}

func runtimeMissing(t *testing.T, tm team) {
	tm.queueUp(t, "q", 32)
	err := tm.client.Create(t.Context(), tm.object(job{name: "lost", queue: "q", runtime: "nope", nodes: 1, gpus: 1}))
	if err == nil || !strings.Contains(err.Error(), "nope") {
		t.Errorf("the answer is %v", err)
	}
	tm.usage(t, "q", 0, 0, 0)
}

func queueComesLater(t *testing.T, tm team) {
	tm.create(t, job{name: "early", queue: "late", nodes: 2, gpus: 8})
	tm.waits(t, "early", "QueueNotFound", "LocalQueue "+tm.namespace+"/late does not exist")
	tm.queueUp(t, "late", 32)
	tm.runs(t, "early", 2)
}

func schedulerKilled(t *testing.T, tm team) {
	tm.queueUp(t, "q", 32)
	tm.create(t, job{name: "running", queue: "q", nodes: 4, gpus: 4})
	before := tm.runs(t, "running", 4)
	tm.create(t, job{name: "pending", queue: "q", nodes: 4, gpus: 8})
	tm.waits(t, "pending", "WaitingForQuota", "needs 32 GPUs in queue q, 16 of 32 free")

	tm.kill(t, "muster-scheduler")
	tm.create(t, job{name: "meanwhile", queue: "q", nodes: 1, gpus: 8})
	tm.restart(t, "muster-scheduler")

	// The new one fits beside the running job, the pending one does not.
	tm.runs(t, "meanwhile", 1)
	tm.usage(t, "q", 24, 2, 1)
	if got, want := uids(tm.runs(t, "running", 4)), uids(before); !got.Equal(want) {
		t.Errorf("the running job's pods were replaced: %v, before %v", got, want)
	}
	tm.waits(t, "pending", "WaitingForQuota", "8 of 32 free")

	tm.end(t, "running")
	tm.finishes(t, "running")
	tm.end(t, "meanwhile")
	tm.finishes(t, "meanwhile")
	tm.runs(t, "pending", 4)
	tm.usage(t, "q", 32, 1, 0)
}

func uids(pods []corev1.Pod) sets.Set[types.UID] {
	out := sets.New[types.UID]()
	for i := range pods {
		out.Insert(pods[i].UID)
	}
	return out
}

func webhookKilled(t *testing.T, tm team) {
	tm.queueUp(t, "q", 16)
	tm.kill(t, "muster-webhook")
	defer tm.restart(t, "muster-webhook")
	tm.forgoPolicies(t)

	plain := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: tm.namespace, Name: "plain"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/x"}}},
	}
	if err := tm.client.Create(t.Context(), plain); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a plain pod to run", func(ctx context.Context) error {
		if err := tm.client.Get(ctx, client.ObjectKeyFromObject(plain), plain); err != nil || plain.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("it is %s (%v)", plain.Status.Phase, err)
		}
		return nil
	})
	tm.create(t, job{name: "unqueued", nodes: 1, gpus: 4})
	tm.runs(t, "unqueued", 1)

	// Nobody suspends them at their creation; the scheduler does afterwards.
	tm.create(t, job{name: "large", queue: "q", nodes: 4, gpus: 8})
	tm.waits(t, "large", "ExceedsMaxQuota", "needs 32 GPUs in queue q")
	tm.create(t, job{name: "fits", queue: "q", nodes: 2, gpus: 8})
	tm.runs(t, "fits", 2)
	tm.usage(t, "q", 16, 1, 1)
}

func deleted(t *testing.T, tm team) {
	tm.queueUp(t, "q", 32)
	tm.create(t, job{name: "running", queue: "q", nodes: 4, gpus: 8})
	tm.runs(t, "running", 4)
	tm.create(t, job{name: "pending", queue: "q", nodes: 4, gpus: 8})
	tm.waits(t, "pending", "WaitingForQuota", "needs 32 GPUs in queue q, 0 of 32 free")

	tm.remove(t, "pending")
	tm.usage(t, "q", 32, 1, 0)
	tm.remove(t, "running")
	tm.usage(t, "q", 0, 0, 0)

	// Everything is free again, and so are the names.
	tm.create(t, job{name: "running", queue: "q", nodes: 4, gpus: 8})
	tm.runs(t, "running", 4)
}

// recreated is what "kubectl delete -f" and "kubectl apply -f" do in one line.
func recreated(t *testing.T, tm team) {
	tm.queueUp(t, "q", 24)
	jobs := []job{{name: "first", queue: "q", nodes: 4, gpus: 4}, {name: "second", queue: "q", nodes: 4, gpus: 4}}
	for _, j := range jobs {
		tm.create(t, j)
	}
	tm.usage(t, "q", 16, 1, 1)
	var running string
	eventually(t, "one of the two to run", func(ctx context.Context) error {
		for _, j := range jobs {
			if pods, err := tm.pods(ctx, j.name); err != nil || len(pods) == j.nodes {
				running = j.name
				return err
			}
		}
		return errors.New("none does")
	})
	before := uids(tm.runs(t, running, 4))
	for _, j := range jobs {
		if err := tm.client.Delete(t.Context(), tm.object(j)); err != nil {
			t.Fatal(err)
		}
	}
	for _, j := range jobs {
		tm.create(t, j)
	}
	eventually(t, "one of the new jobs to run whole", func(ctx context.Context) error {
		var all []corev1.Pod
		for _, j := range jobs {
			pods, err := tm.pods(ctx, j.name)
			if err != nil {
				return err
			}
			all = append(all, pods...)
		}
		for i := range all {
			if before.Has(all[i].UID) || all[i].Status.Phase != corev1.PodRunning {
				return fmt.Errorf("pod %s is an old one or %s", all[i].Name, all[i].Status.Phase)
			}
		}
		if len(all) != 4 {
			return fmt.Errorf("%d pods are there", len(all))
		}
		return nil
	})
	tm.usage(t, "q", 16, 1, 1)
}

func initializer(t *testing.T, tm team) {
	pods := func(container, step string) map[string]any {
		return map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"trainer.kubeflow.org/trainjob-ancestor-step": step}},
			"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
				"containers": []any{map[string]any{"name": container, "image": "example.com/" + container}},
			}}},
		}
	}
	runtime := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime",
		"metadata": map[string]any{"name": tm.namespace + "-initialized", "labels": map[string]any{"trainer.kubeflow.org/framework": "torch"}},
		"spec": map[string]any{
			"mlPolicy": map[string]any{"numNodes": int64(1), "torch": map[string]any{}},
			"template": map[string]any{"spec": map[string]any{"replicatedJobs": []any{
				map[string]any{"name": "dataset-initializer", "replicas": int64(1), "template": pods("dataset-initializer", "dataset-initializer")},
				map[string]any{"name": "node", "replicas": int64(1), "template": pods("node", "trainer"),
					"dependsOn": []any{map[string]any{"name": "dataset-initializer", "status": "Complete"}}},
			}}},
		},
	}}
	if err := tm.client.Create(t.Context(), runtime); err != nil {
		t.Fatal(err)
	}
	tm.queueUp(t, "q", 64)
	tm.create(t, job{name: "prepared", queue: "q", runtime: runtime.GetName(), nodes: 4, gpus: 8})
	tm.runs(t, "prepared", 1, "dataset-initializer")
	tm.usage(t, "q", 32, 1, 0)

	// Its nodes have no pods yet, and are nobody else's.
	tm.create(t, job{name: "other", queue: "q", nodes: 1, gpus: 8})
	tm.waits(t, "other", "NoPlacement", "0 GPUs are free")

	tm.end(t, "prepared", "dataset-initializer")
	tm.runs(t, "prepared", 4, "node")

	// Stopped and started again, it has no initializer to wait for.
	tm.activate(t, "prepared", false)
	tm.usage(t, "q", 8, 1, 0)
	tm.activate(t, "prepared", true)
	tm.runs(t, "other", 1)
	tm.end(t, "other")
	tm.runs(t, "prepared", 4, "node")
	tm.end(t, "prepared", "node")
	tm.finishes(t, "prepared")
}

func mpi(t *testing.T, tm team) {
	tm.queueUp(t, "q", 32)
	tm.create(t, job{name: "mpi", queue: "q", runtime: "deepspeed-distributed", nodes: 4, gpus: 8})
	tm.runs(t, "mpi", 4)
	tm.usage(t, "q", 32, 1, 0)
	tm.end(t, "mpi", "launcher")
	tm.finishes(t, "mpi")
	tm.usage(t, "q", 0, 0, 0)
}

func deactivated(t *testing.T, tm team) {
	tm.queueUp(t, "q", 32)
	tm.create(t, job{name: "parked", queue: "q", nodes: 2, gpus: 8})
	tm.runs(t, "parked", 2)

	tm.activate(t, "parked", false)
	tm.waits(t, "parked", "Deactivated", "spec.active is false")
	wl, err := tm.workload(t.Context(), "parked")
	if err != nil || wl == nil {
		t.Fatalf("no Workload (%v)", err)
	}
	if c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted); c == nil || c.Status != metav1.ConditionTrue || c.Reason != kueue.WorkloadDeactivated {
		t.Errorf("the condition Evicted is %+v", c)
	}
	tm.usage(t, "q", 0, 0, 0)

	tm.activate(t, "parked", true)
	tm.runs(t, "parked", 2)
	tm.usage(t, "q", 16, 1, 0)
}

func numbers(t *testing.T, tm team) {
	tm.queueUp(t, "q", 32)
	on := func(node string) {
		testobject.Change(t, tm.client, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: tm.namespace + "-q"}}, func(flavor *kueue.ResourceFlavor) {
			flavor.Spec.NodeLabels = map[string]string{corev1.LabelHostname: node}
		})
	}
	runsOn := func(node string) {
		for _, pod := range tm.runs(t, "numbers", 2) {
			if got := pod.Spec.NodeSelector[corev1.LabelHostname]; got != node || pod.Spec.NodeName != node {
				t.Errorf("pod %s is on %s and asks for %q, want %s", pod.Name, pod.Spec.NodeName, got, node)
			}
		}
	}
	on("node-2")
	numbers := tm.object(job{name: "numbers", queue: "q", nodes: 2})
	four := map[string]any{string(gpu): int64(4)}
	if err := unstructured.SetNestedMap(numbers.Object, map[string]any{"requests": four, "limits": four}, "spec", "trainer", "resourcesPerNode"); err != nil {
		t.Fatal(err)
	}
	if err := tm.client.Create(t.Context(), numbers); err != nil {
		t.Fatal(err)
	}
	runsOn("node-2")

	on("node-3")
	tm.activate(t, "numbers", false)
	tm.waits(t, "numbers", "Deactivated", "spec.active is false")
	tm.activate(t, "numbers", true)
	runsOn("node-3")
}

// activate sets spec.active of a TrainJob's Workload.
func (tm team) activate(t *testing.T, name string, active bool) {
	t.Helper()
	wl, err := tm.workload(t.Context(), name)
	if err != nil || wl == nil {
		t.Fatalf("%s has no Workload (%v)", name, err)
	}
	changed := wl.DeepCopy()
	changed.Spec.Active = &active
	if err := tm.client.Patch(t.Context(), changed, client.MergeFrom(wl)); err != nil {
		t.Fatal(err)
	}
}
