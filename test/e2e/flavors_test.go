package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/internal/sandbox"
)

// TestFlavors moves jobs of all kinds between flavors whose nodes are told by
// different labels: one that was preempted from the first runs in the second,
// and nothing of the first holds its pods back.
func TestFlavors(t *testing.T) {
	c := up(t, "flavors", func(o *sandbox.Options) {
		o.With = []string{sandbox.WithTrainer, sandbox.WithJobSet, sandbox.WithScheduler, sandbox.WithWebhook, sandbox.WithTrainingOperator}
	})
	tm := team{cluster: c, namespace: "flavors"}
	for _, obj := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tm.namespace}},
		&kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 100},
	} {
		if err := c.client.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { c.holds(t) })
	t.Cleanup(func() { tm.removeAll(t) })
	tm.label(t, "node-0", "pool-a")
	tm.label(t, "node-1", "pool-b")
	tm.flavors(t, "q", pool{"pool-a", 8}, pool{"pool-b", 7})

	queued := metav1.ObjectMeta{Namespace: tm.namespace, Labels: map[string]string{"kueue.x-k8s.io/queue-name": "q"}}
	named := func(name string) metav1.ObjectMeta {
		meta := *queued.DeepCopy()
		meta.Name = name
		return meta
	}
	v1 := trainingTeam{tm}
	jobs := []client.Object{
		tm.object(job{name: "trainjob", queue: "q", nodes: 1, gpus: 2}),
		&jobset.JobSet{ObjectMeta: named("jobset"), Spec: jobset.JobSetSpec{ReplicatedJobs: []jobset.ReplicatedJob{
			{Name: "node", Replicas: 1, Template: batchv1.JobTemplateSpec{Spec: jobSpec(1, 2)}},
		}}},
		&batchv1.Job{ObjectMeta: named("batch"), Spec: jobSpec(1, 1)},
		v1.object(pyTorch("pytorch", 1, 1), "q"),
	}
	urgent := &batchv1.Job{ObjectMeta: named("urgent"), Spec: jobSpec(1, 8)}
	urgent.Labels["kueue.x-k8s.io/priority-class"] = "urgent"
	t.Cleanup(func() { c.delete(t, append(jobs, urgent)...) })
	for _, obj := range jobs {
		if err := c.client.Create(t.Context(), obj); err != nil {
			t.Fatalf("creating %s: %v", obj.GetName(), err)
		}
	}
	const pods = 5
	tm.runOn(t, "node-0", "pool-a", pods)

	// It takes more than there is of the second flavor, and all of the first.
	if err := c.client.Create(t.Context(), urgent); err != nil {
		t.Fatal(err)
	}
	tm.runOn(t, "node-0", "pool-a", 1)
	tm.runOn(t, "node-1", "pool-b", pods)
}

// pool is the nodes of a flavor of its name, and its quota.
type pool struct {
	name string
	gpus int64
}

// delete deletes objects and what is theirs.
func (c *cluster) delete(t *testing.T, objects ...client.Object) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, obj := range objects {
		if err := c.client.Delete(ctx, obj, client.PropagationPolicy(metav1.DeletePropagationBackground)); client.IgnoreNotFound(err) != nil {
			t.Errorf("deleting %s: %v", obj.GetName(), err)
		}
	}
}

// label marks a node as one of a pool.
func (tm team) label(t *testing.T, name, pool string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"labels":{%q:"true"}}}`, pool))
	if err := tm.client.Patch(t.Context(), node, patch); err != nil {
		t.Fatalf("labelling node %s: %v", name, err)
	}
}

// flavors creates the LocalQueue name on a ClusterQueue of the pools, in that
// order, in which a higher priority stops lower ones.
func (tm team) flavors(t *testing.T, name string, pools ...pool) {
	t.Helper()
	group := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{gpu}}
	for _, p := range pools {
		flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: p.name}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{p.name: "true"}}}
		if err := tm.client.Create(t.Context(), flavor); err != nil {
			t.Fatal(err)
		}
		group.Flavors = append(group.Flavors, kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(p.name), Resources: []kueue.ResourceQuota{
			{Name: gpu, NominalQuota: *resource.NewQuantity(p.gpus, resource.DecimalSI)},
		}})
	}
	full := tm.namespace + "-" + name
	for _, obj := range []client.Object{
		&kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: full}, Spec: kueue.ClusterQueueSpec{
			NamespaceSelector: &metav1.LabelSelector{},
			ResourceGroups:    []kueue.ResourceGroup{group},
			Preemption:        &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority},
		}},
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

// runOn waits until n pods run on a node, and no other does; they must select it
// by the label of its pool alone.
func (tm team) runOn(t *testing.T, node, pool string, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d pods to run on %s", n, node), func(ctx context.Context) error {
		var pods corev1.PodList
		if err := tm.client.List(ctx, &pods, client.InNamespace(tm.namespace)); err != nil {
			return err
		}
		running := 0
		var others []string
		for _, pod := range pods.Items {
			switch {
			case pod.Spec.NodeName == node && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil:
				running++
				if diff := cmp.Diff(map[string]string{pool: "true"}, pod.Spec.NodeSelector); diff != "" {
					return fmt.Errorf("pod %s selects nodes by (-want +got):\n%s", pod.Name, diff)
				}
			default:
				others = append(others, fmt.Sprintf("%s on %q, which selects %v", pod.Name, pod.Spec.NodeName, pod.Spec.NodeSelector))
			}
		}
		if running != n {
			return fmt.Errorf("%d do; others are %q", running, others)
		}
		return nil
	})
}
