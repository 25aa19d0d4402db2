package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/internal/simulator"
)

const gpu corev1.ResourceName = "nvidia.com/gpu"

// team is a namespace of a cluster, with what a team does in it.
type team struct {
	*cluster
	namespace string
}

// job is a TrainJob of nodes pods of gpus GPUs each. The pods run until end is
// called.
type job struct {
	name        string
	queue       string
	runtime     string
	nodes, gpus int
}

func (tm team) object(j job) *unstructured.Unstructured {
	runtime := j.runtime
	if runtime == "" {
		runtime = "torch-distributed"
	}
	gpus := map[string]any{string(gpu): strconv.Itoa(j.gpus)}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
		"metadata": map[string]any{"namespace": tm.namespace, "name": j.name},
		"spec": map[string]any{
			"runtimeRef": map[string]any{"name": runtime},
			"trainer": map[string]any{
				"numNodes":         int64(j.nodes),
				"resourcesPerNode": map[string]any{"limits": gpus, "requests": gpus},
			},
		},
	}}
	if j.queue != "" {
		u.SetLabels(map[string]string{"kueue.x-k8s.io/queue-name": j.queue})
	}
	return u
}

// create creates a TrainJob, as its user would.
func (tm team) create(t *testing.T, j job) {
	t.Helper()
	if err := tm.client.Create(t.Context(), tm.object(j)); err != nil {
		t.Fatalf("creating TrainJob %s: %v", j.name, err)
	}
}

// remove deletes a TrainJob and waits until it, its pods and its Workload are
// gone.
func (tm team) remove(t *testing.T, name string) {
	t.Helper()
	if err := tm.client.Delete(t.Context(), tm.object(job{name: name})); client.IgnoreNotFound(err) != nil {
		t.Fatalf("deleting TrainJob %s: %v", name, err)
	}
	eventually(t, "TrainJob "+name+" and all that is its own to be gone", func(ctx context.Context) error {
		u := tm.object(job{name: name})
		if err := tm.client.Get(ctx, client.ObjectKeyFromObject(u), u); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there (%v)", err)
		}
		if pods, err := tm.pods(ctx, name); err != nil || len(pods) > 0 {
			return fmt.Errorf("%d pods are there (%v)", len(pods), err)
		}
		if wl, err := tm.workload(ctx, name); err != nil || wl != nil {
			return fmt.Errorf("its Workload is there (%v)", err)
		}
		return nil
	})
}

// queueUp creates the LocalQueue name on a ClusterQueue of gpus GPUs.
func (tm team) queueUp(t *testing.T, name string, gpus int64) {
	t.Helper()
	full := tm.namespace + "-" + name
	for _, obj := range []client.Object{
		&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: full}},
		&kueue.ClusterQueue{
			ObjectMeta: metav1.ObjectMeta{Name: full},
			Spec: kueue.ClusterQueueSpec{
				NamespaceSelector: &metav1.LabelSelector{},
				ResourceGroups: []kueue.ResourceGroup{{
					CoveredResources: []corev1.ResourceName{gpu},
					Flavors: []kueue.FlavorQuotas{{Name: kueue.ResourceFlavorReference(full), Resources: []kueue.ResourceQuota{
						{Name: gpu, NominalQuota: *resource.NewQuantity(gpus, resource.DecimalSI)},
					}}},
				}},
			},
		},
		&kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: tm.namespace, Name: name},
			Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(full)},
		},
	} {
		if err := tm.client.Create(t.Context(), obj); err != nil {
			t.Fatalf("creating %T: %v", obj, err)
		}
	}
}

// pods are the pods of a TrainJob that have not ended.
func (tm team) pods(ctx context.Context, name string) ([]corev1.Pod, error) {
	return tm.living(ctx, jobset.JobSetNameKey, name)
}

// living are the pods with a label that have not ended.
func (tm team) living(ctx context.Context, label, value string) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := tm.client.List(ctx, &list, client.InNamespace(tm.namespace), client.MatchingLabels{label: value}); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	}), nil
}

// workload is the Workload of a TrainJob; nil if there is none.
func (tm team) workload(ctx context.Context, name string) (*kueue.Workload, error) {
	var list kueue.WorkloadList
	if err := tm.client.List(ctx, &list, client.InNamespace(tm.namespace)); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil && owner.Name == name {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

// podsOf lists the pods of a job that have not ended.
type podsOf func(ctx context.Context, name string) ([]corev1.Pod, error)

// runs waits until n pods of a TrainJob run, of those replicated jobs if any
// are named, and returns them. Others may be there.
func (tm team) runs(t *testing.T, name string, n int, replicated ...string) []corev1.Pod {
	t.Helper()
	return tm.running(t, name, n, false, func(ctx context.Context, name string) ([]corev1.Pod, error) {
		pods, err := tm.pods(ctx, name)
		return slices.DeleteFunc(pods, func(pod corev1.Pod) bool {
			return !isOneOf(pod.Labels[jobset.ReplicatedJobNameKey], replicated)
		}), err
	})
}

// running waits until n pods of a job run, and no other is there if they must be
// all, and returns them.
func (tm team) running(t *testing.T, name string, n int, all bool, pods podsOf) []corev1.Pod {
	t.Helper()
	var running []corev1.Pod
	eventually(t, fmt.Sprintf("%d pods of %s to run", n, name), func(ctx context.Context) error {
		there, err := pods(ctx, name)
		if err != nil {
			return err
		}
		running = slices.DeleteFunc(slices.Clone(there), func(pod corev1.Pod) bool {
			return pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil
		})
		if len(running) != n || all && len(there) != n {
			return fmt.Errorf("%d run, of %d; %s", len(running), len(there), tm.describe(ctx, name))
		}
		return nil
	})
	return running
}

func isOneOf(name string, names []string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return len(names) == 0
}

// describe tells what a TrainJob's Workload says, for a message.
func (tm team) describe(ctx context.Context, name string) string {
	wl, err := tm.workload(ctx, name)
	if err != nil || wl == nil {
		return fmt.Sprintf("no Workload (%v)", err)
	}
	said := []string{"its Workload says"}
	for _, c := range wl.Status.Conditions {
		said = append(said, fmt.Sprintf("%s=%s (%s: %s)", c.Type, c.Status, c.Reason, c.Message))
	}
	return strings.Join(said, " ")
}

// end lets the running pods of a TrainJob succeed, those of the replicated
// jobs if any are named.
func (tm team) end(t *testing.T, name string, replicated ...string) {
	t.Helper()
	pods, err := tm.pods(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	tm.succeed(t, slices.DeleteFunc(pods, func(pod corev1.Pod) bool {
		return !isOneOf(pod.Labels[jobset.ReplicatedJobNameKey], replicated)
	}))
}

// succeed lets pods succeed.
func (tm team) succeed(t *testing.T, pods []corev1.Pod) {
	t.Helper()
	for i := range pods {
		ending := pods[i].DeepCopy()
		metav1.SetMetaDataAnnotation(&ending.ObjectMeta, simulator.RunForAnnotation, "0s")
		if err := tm.client.Patch(t.Context(), ending, client.MergeFrom(&pods[i])); client.IgnoreNotFound(err) != nil {
			t.Fatalf("ending pod %s: %v", pods[i].Name, err)
		}
	}
}

// waits waits until a TrainJob is suspended and its Workload says why, and
// checks that it holds nothing.
func (tm team) waits(t *testing.T, name, class, part string) {
	t.Helper()
	tm.waiting(t, name, class, part, tm.suspended, tm.pods)
}

// waiting waits until a job of any kind is suspended, and holds nothing, and its
// Workload says why.
func (tm team) waiting(t *testing.T, name, class, part string, suspended func(ctx context.Context, name string) (bool, error), pods podsOf) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s to wait because of %s, %q", name, class, part), func(ctx context.Context) error {
		if suspended, err := suspended(ctx, name); err != nil || !suspended {
			return fmt.Errorf("it is not suspended (%v)", err)
		}
		wl, err := tm.workload(ctx, name)
		if err != nil || wl == nil {
			return fmt.Errorf("it has no Workload (%v)", err)
		}
		c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != class || !strings.Contains(c.Message, part) {
			return fmt.Errorf("%s", tm.describe(ctx, name))
		}
		if wl.Status.Admission != nil {
			return fmt.Errorf("it is admitted: %+v", wl.Status.Admission)
		}
		if pods, err := pods(ctx, name); err != nil || len(pods) > 0 {
			return fmt.Errorf("it has %d pods (%v)", len(pods), err)
		}
		return nil
	})
}

// says waits for an event of a TrainJob with that note.
func (tm team) says(t *testing.T, name, why, note string) {
	t.Helper()
	tm.event(t, name, why, note, func(n string) bool { return n == note })
}

// told waits for an event of a TrainJob whose note has part in it.
func (tm team) told(t *testing.T, name, why, part string) {
	t.Helper()
	tm.event(t, name, why, part, func(n string) bool { return strings.Contains(n, part) })
}

func (tm team) event(t *testing.T, name, why, what string, is func(note string) bool) {
	t.Helper()
	eventually(t, fmt.Sprintf("event %s with %q of %s", why, what, name), func(ctx context.Context) error {
		var events eventsv1.EventList
		if err := tm.client.List(ctx, &events, client.InNamespace(tm.namespace)); err != nil {
			return err
		}
		var notes []string
		for _, event := range events.Items {
			if event.Regarding.Kind != "TrainJob" || event.Regarding.Name != name {
				continue
			}
			if event.Reason == why && is(event.Note) {
				return nil
			}
			notes = append(notes, event.Reason+": "+event.Note)
		}
		return fmt.Errorf("its events are %q", notes)
	})
}

func (tm team) suspended(ctx context.Context, name string) (bool, error) {
	u := tm.object(job{name: name})
	if err := tm.client.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
		return false, err
	}
	suspended, _, err := unstructured.NestedBool(u.Object, "spec", "suspend")
	return suspended, err
}

// finishes waits until a TrainJob is complete and its Workload is finished.
func (tm team) finishes(t *testing.T, name string) {
	t.Helper()
	eventually(t, name+" to be complete", func(ctx context.Context) error {
		u := tm.object(job{name: name})
		if err := tm.client.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
			return err
		}
		conditions, _, err := unstructured.NestedSlice(u.Object, "status", "conditions")
		if err != nil {
			return err
		}
		for _, c := range conditions {
			m, ok := c.(map[string]any)
			if !ok || m["type"] != "Complete" || m["status"] != "True" {
				continue
			}
			wl, err := tm.workload(ctx, name)
			if err != nil || wl == nil || !apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished) {
				return fmt.Errorf("%s (%v)", tm.describe(ctx, name), err)
			}
			return nil
		}
		return fmt.Errorf("its conditions are %v", conditions)
	})
}

// usage waits until the ClusterQueue of a queue has gpus GPUs reserved, by
// reserving jobs, while pending wait.
func (tm team) usage(t *testing.T, queue string, gpus int64, reserving, pending int32) {
	t.Helper()
	eventually(t, fmt.Sprintf("queue %s at %d GPUs, %d reserving, %d pending", queue, gpus, reserving, pending), func(ctx context.Context) error {
		var cq kueue.ClusterQueue
		if err := tm.client.Get(ctx, client.ObjectKey{Name: tm.namespace + "-" + queue}, &cq); err != nil {
			return err
		}
		if len(cq.Status.FlavorsReservation) != 1 || len(cq.Status.FlavorsReservation[0].Resources) != 1 {
			return fmt.Errorf("its status is %+v", cq.Status)
		}
		got := cq.Status.FlavorsReservation[0].Resources[0].Total
		if got.Value() != gpus || cq.Status.ReservingWorkloads != reserving || cq.Status.PendingWorkloads != pending {
			return fmt.Errorf("it is at %s GPUs, %d reserving, %d pending", got.String(), cq.Status.ReservingWorkloads, cq.Status.PendingWorkloads)
		}
		return nil
	})
}
