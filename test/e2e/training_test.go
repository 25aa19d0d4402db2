package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/internal/sandbox"
	"github.com/muster-gpu/muster/internal/testobject"
)

// TestTrainingJobs tells stories of the real Training Operator's jobs on one
// sandbox; each in a namespace of its own that is empty again afterwards.
func TestTrainingJobs(t *testing.T) {
	c := up(t, "training", func(o *sandbox.Options) {
		o.With = []string{sandbox.WithTrainer, sandbox.WithJobSet, sandbox.WithScheduler, sandbox.WithWebhook, sandbox.WithTrainingOperator}
	})
	tellAll(t, c, "training", trainingJobs, []story[trainingTeam]{
		{"a PyTorchJob runs whole, succeeds, and frees its quota", func(t *testing.T, tm trainingTeam) { tm.story(t, pyTorch("train", 3, 4)) }},
		{"a TFJob runs whole, succeeds, and frees its quota", func(t *testing.T, tm trainingTeam) { tm.story(t, tensorFlow("train")) }},
		{"an MPIJob runs whole, succeeds, and frees its quota", func(t *testing.T, tm trainingTeam) { tm.story(t, mpiJob("train")) }},
		{"jobs that do not fit wait suspended, and run when another is deleted", trainingWaits},
		{"a deactivated Workload stops its job, and an activated one runs it again", trainingDeactivated},
		{"a pod that fails comes back to its slot", trainingPodFails},
		{"pods that a finished job leaves running are charged, and nothing else of it", trainingLeavesPods},
		{"a killed scheduler charges a job once, and goes on with it", trainingSchedulerKilled},
		{"an elastic PyTorchJob grows and shrinks while it runs", trainingElastic},
		{"a job of no queue runs on what nobody holds", trainingUnqueued},
	})
}

// trainingTeam is a namespace with what a team does in it with training jobs.
type trainingTeam struct{ team }

func trainingJobs(_ *testing.T, tm team) trainingTeam { return trainingTeam{tm} }

// trainingJob is one of the Training Operator's jobs. The first type of its
// replicas decides when it has succeeded.
type trainingJob struct {
	kind, name, container, specs string
	replicas                     []trainingReplicas
	// keeps says that its pods go on when it has succeeded.
	keeps bool
}

type trainingReplicas struct {
	kind    string
	n, gpus int
}

func (j trainingJob) pods() int {
	n := 0
	for _, r := range j.replicas {
		n += r.n
	}
	return n
}

func (j trainingJob) gpus() int64 {
	n := 0
	for _, r := range j.replicas {
		n += r.n * r.gpus
	}
	return int64(n)
}

func pyTorch(name string, workers, gpus int) trainingJob {
	return trainingJob{"PyTorchJob", name, "pytorch", "pytorchReplicaSpecs", []trainingReplicas{{"Master", 1, gpus}, {"Worker", workers, gpus}}, false}
}

func tensorFlow(name string) trainingJob {
	return trainingJob{"TFJob", name, "tensorflow", "tfReplicaSpecs", []trainingReplicas{{"Chief", 1, 4}, {"PS", 2, 0}, {"Worker", 2, 4}}, false}
}

func mpiJob(name string) trainingJob {
	return trainingJob{"MPIJob", name, "mpi", "mpiReplicaSpecs", []trainingReplicas{{"Launcher", 1, 0}, {"Worker", 2, 8}}, false}
}

// object is the job as its user would create it: running, and without a
// scheduler's name.
func (tm trainingTeam) object(j trainingJob, queue string) *unstructured.Unstructured {
	specs := map[string]any{}
	for _, r := range j.replicas {
		container := map[string]any{"name": j.container, "image": "example.com/train"}
		if r.gpus > 0 {
			container["resources"] = map[string]any{"limits": map[string]any{string(gpu): strconv.Itoa(r.gpus)}}
		}
		specs[r.kind] = map[string]any{
			"replicas": int64(r.n), "restartPolicy": "OnFailure",
			"template": map[string]any{"spec": map[string]any{"terminationGracePeriodSeconds": int64(1), "containers": []any{container}}},
		}
	}
	clean := "Running"
	if j.keeps {
		clean = "None"
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kubeflow.org/v1", "kind": j.kind,
		"metadata": map[string]any{"namespace": tm.namespace, "name": j.name},
		"spec":     map[string]any{j.specs: specs, "runPolicy": map[string]any{"cleanPodPolicy": clean}},
	}}
	if queue != "" {
		u.SetLabels(map[string]string{"kueue.x-k8s.io/queue-name": queue})
	}
	return u
}

func (tm trainingTeam) create(t *testing.T, j trainingJob, queue string) *unstructured.Unstructured {
	t.Helper()
	u := tm.object(j, queue)
	if err := tm.client.Create(t.Context(), u); err != nil {
		t.Fatalf("creating %s %s: %v", j.kind, j.name, err)
	}
	return u
}

// field reads the job's field as the API has it now.
func (tm trainingTeam) get(ctx context.Context, j trainingJob) (*unstructured.Unstructured, error) {
	u := tm.object(j, "")
	return u, tm.client.Get(ctx, client.ObjectKeyFromObject(u), u)
}

func isSuspended(u *unstructured.Unstructured) bool {
	suspend, _, _ := unstructured.NestedBool(u.Object, "spec", "runPolicy", "suspend")
	return suspend
}

// pods are the pods of a job that have not ended.
func (tm trainingTeam) pods(ctx context.Context, name string) ([]corev1.Pod, error) {
	return tm.living(ctx, "training.kubeflow.org/job-name", name)
}

// runs waits until all pods of a job run, and no other is there.
func (tm trainingTeam) runs(t *testing.T, j trainingJob) []corev1.Pod {
	t.Helper()
	return tm.running(t, j.name, j.pods(), true, tm.pods)
}

// end lets the pods of the first type of replicas succeed, and waits until the
// job has succeeded and its Workload is finished.
func (tm trainingTeam) end(t *testing.T, j trainingJob) {
	t.Helper()
	tm.endFirst(t, j)
	eventually(t, j.kind+" "+j.name+" to have succeeded", func(ctx context.Context) error {
		u, err := tm.get(ctx, j)
		if err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		wl, err := tm.workload(ctx, j.name)
		if err != nil || wl == nil || !apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished) {
			return fmt.Errorf("its conditions are %v, %s (%v)", conditions, tm.describe(ctx, j.name), err)
		}
		return nil
	})
}

// endFirst lets the pods of the first type of replicas succeed.
func (tm trainingTeam) endFirst(t *testing.T, j trainingJob) {
	t.Helper()
	pods, err := tm.pods(t.Context(), j.name)
	if err != nil {
		t.Fatal(err)
	}
	tm.succeed(t, slices.DeleteFunc(pods, func(pod corev1.Pod) bool {
		return pod.Labels["training.kubeflow.org/replica-type"] != strings.ToLower(j.replicas[0].kind)
	}))
}

// waits waits until a job is suspended without pods, and its Workload says why.
func (tm trainingTeam) waits(t *testing.T, j trainingJob, class, part string) {
	t.Helper()
	tm.waiting(t, j.name, class, part, func(ctx context.Context, _ string) (bool, error) {
		u, err := tm.get(ctx, j)
		return isSuspended(u), err
	}, tm.pods)
}

func (tm trainingTeam) remove(t *testing.T, j trainingJob) {
	t.Helper()
	if err := tm.client.Delete(t.Context(), tm.object(j, "")); client.IgnoreNotFound(err) != nil {
		t.Fatalf("deleting %s %s: %v", j.kind, j.name, err)
	}
	eventually(t, j.kind+" "+j.name+" and all that is its own to be gone", func(ctx context.Context) error {
		if _, err := tm.get(ctx, j); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there (%v)", err)
		}
		if pods, err := tm.pods(ctx, j.name); err != nil || len(pods) > 0 {
			return fmt.Errorf("%d pods are there (%v)", len(pods), err)
		}
		if wl, err := tm.workload(ctx, j.name); err != nil || wl != nil {
			return fmt.Errorf("its Workload is there (%v)", err)
		}
		return nil
	})
}

// story is a job's life from creation to its end, with a second one that waits
// for it and is deleted.
func (tm trainingTeam) story(t *testing.T, j trainingJob) {
	tm.queueUp(t, "q", j.gpus())
	u := tm.create(t, j, "q")
	if !isSuspended(u) {
		t.Error("it was not suspended when it was created")
	}
	for _, r := range j.replicas {
		if name, _, _ := unstructured.NestedString(u.Object, "spec", j.specs, r.kind, "template", "spec", "schedulerName"); name != "muster" {
			t.Errorf("its %s is for scheduler %q", r.kind, name)
		}
	}
	tm.runs(t, j)
	tm.usage(t, "q", j.gpus(), 1, 0)
	second := j
	second.name = "second"
	tm.create(t, second, "q")
	tm.waits(t, second, "WaitingForQuota", "")
	tm.remove(t, second)
	tm.end(t, j)
	tm.usage(t, "q", 0, 0, 0)
	tm.remove(t, j)
}

func trainingWaits(t *testing.T, tm trainingTeam) {
	tm.queueUp(t, "q", 16)
	first := pyTorch("first", 3, 4)
	tm.create(t, first, "q")
	tm.runs(t, first)
	before := first
	for _, j := range []trainingJob{mpiJob("second"), tensorFlow("third")} {
		tm.create(t, j, "q")
		tm.waits(t, j, "WaitingForQuota", fmt.Sprintf("needs %d GPUs in queue q, 0 of 16 free", j.gpus()))
		tm.remove(t, before)
		tm.runs(t, j)
		tm.usage(t, "q", j.gpus(), 1, 0)
		before = j
	}
}

func trainingDeactivated(t *testing.T, tm trainingTeam) {
	for i, j := range []trainingJob{pyTorch("a", 2, 4), tensorFlow("b"), mpiJob("c")} {
		queue := fmt.Sprintf("q%d", i)
		tm.queueUp(t, queue, j.gpus())
		// Nodes with and without the flavor's label: all have it.
		testobject.Change(t, tm.client, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: tm.namespace + "-" + queue}}, func(flavor *kueue.ResourceFlavor) {
			flavor.Spec.NodeLabels = map[string]string{"sim.muster.dev/node": "true"}
		})
		selector := func(u *unstructured.Unstructured, kind string) map[string]string {
			m, _, _ := unstructured.NestedStringMap(u.Object, "spec", j.specs, kind, "template", "spec", "nodeSelector")
			return m
		}
		tm.create(t, j, queue)
		before := uids(tm.runs(t, j))
		u, err := tm.get(t.Context(), j)
		if err != nil {
			t.Fatal(err)
		}
		if selector(u, "Worker")["sim.muster.dev/node"] != "true" {
			t.Errorf("%s runs without its flavor's labels: %v", j.kind, selector(u, "Worker"))
		}
		tm.activate(t, j.name, false)
		tm.waits(t, j, "Deactivated", "spec.active is false")
		tm.usage(t, queue, 0, 0, 0)
		if u, err = tm.get(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		if len(selector(u, "Worker")) > 0 {
			t.Errorf("%s is suspended with its flavor's labels: %v", j.kind, selector(u, "Worker"))
		}
		tm.activate(t, j.name, true)
		if after := uids(tm.runs(t, j)); len(after.Intersection(before)) > 0 {
			t.Errorf("pods of before run: %v", after.Intersection(before))
		}
		tm.usage(t, queue, j.gpus(), 1, 0)
		tm.remove(t, j)
	}
}

func trainingPodFails(t *testing.T, tm trainingTeam) {
	tm.queueUp(t, "q", 64)
	// All four nodes are full, so that the only room is the failed pod's.
	j := pyTorch("train", 3, 8)
	tm.create(t, j, "q")
	var old *corev1.Pod
	pods := tm.runs(t, j)
	for i := range pods {
		if pods[i].Name == "train-worker-1" {
			old = &pods[i]
		}
	}
	waiter := pyTorch("waiter", 1, 8)
	tm.create(t, waiter, "q")
	tm.waits(t, waiter, "NoPlacement", "")
	failing := old.DeepCopy()
	failing.Annotations = map[string]string{"sim.muster.dev/run-for": "0s", "sim.muster.dev/exit-code": "1"}
	if err := tm.client.Patch(t.Context(), failing, client.MergeFrom(old)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod's replacement to run on its node", func(ctx context.Context) error {
		now, err := tm.pods(ctx, "train")
		if err != nil {
			return err
		}
		for _, pod := range now {
			if pod.Name == old.Name && pod.UID != old.UID && pod.Spec.NodeName == old.Spec.NodeName && pod.Status.Phase == corev1.PodRunning {
				return nil
			}
		}
		return fmt.Errorf("%d pods are there, none of them", len(now))
	})
	tm.runs(t, j)
	tm.waits(t, waiter, "NoPlacement", "")
}

func trainingLeavesPods(t *testing.T, tm trainingTeam) {
	tm.queueUp(t, "q", 16)
	j := pyTorch("train", 3, 4)
	j.keeps = true
	tm.create(t, j, "q")
	tm.runs(t, j)
	waiter := pyTorch("waiter", 1, 2)
	tm.create(t, waiter, "q")
	tm.waits(t, waiter, "WaitingForQuota", "needs 4 GPUs in queue q, 0 of 16 free")
	tm.endFirst(t, j)
	tm.runs(t, waiter)
	tm.usage(t, "q", 16, 2, 0)
	tm.kill(t, "muster-scheduler")
	tm.restart(t, "muster-scheduler")
	tm.usage(t, "q", 16, 2, 0)
	tm.remove(t, j)
	tm.usage(t, "q", 4, 1, 0)
}

func trainingSchedulerKilled(t *testing.T, tm trainingTeam) {
	tm.queueUp(t, "q", 28)
	first, later, beyond := pyTorch("train", 2, 4), mpiJob("later"), pyTorch("beyond", 1, 4)
	tm.create(t, first, "q")
	before := uids(tm.runs(t, first))
	tm.kill(t, "muster-scheduler")
	tm.create(t, later, "q")
	tm.restart(t, "muster-scheduler")
	tm.runs(t, later)
	tm.create(t, beyond, "q")
	tm.waits(t, beyond, "WaitingForQuota", "needs 8 GPUs in queue q, 0 of 28 free")
	tm.usage(t, "q", 28, 2, 1)
	if after := uids(tm.runs(t, first)); !after.Equal(before) {
		t.Errorf("its pods were %v and are %v", before, after)
	}
}

func trainingUnqueued(t *testing.T, tm trainingTeam) {
	j := pyTorch("plain", 1, 1)
	if u := tm.create(t, j, ""); isSuspended(u) {
		t.Error("a job of no queue was suspended")
	}
	tm.runs(t, j)
}
