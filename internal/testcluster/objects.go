package testcluster

import (
	"context"
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// GPU is the resource that test jobs ask for.
const GPU corev1.ResourceName = "nvidia.com/gpu"

// Node creates a ready node with gpus GPUs, and removes it when the test ends.
func (c *Cluster) Node(t testing.TB, name string, gpus int64) *corev1.Node {
	t.Helper()
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("64"),
		corev1.ResourceMemory:           resource.MustParse("512Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             resource.MustParse("110"),
		GPU:                             *resource.NewQuantity(gpus, resource.DecimalSI),
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	c.Create(t, node)
	node.Status = corev1.NodeStatus{
		Capacity: capacity, Allocatable: capacity,
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}
	if err := c.Client.Status().Update(t.Context(), node); err != nil {
		t.Fatalf("making node %s ready: %v", name, err)
	}
	return node
}

// Namespace creates a namespace.
func (c *Cluster) Namespace(t testing.TB, name string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.Client.Create(t.Context(), ns); err != nil {
		t.Fatalf("creating namespace %s: %v", name, err)
	}
}

// Queue creates a LocalQueue of that name in the namespace, with a
// ClusterQueue and a flavor of its own, and gpus GPUs of quota.
func (c *Cluster) Queue(t testing.TB, namespace, name string, gpus int64) {
	t.Helper()
	full := namespace + "-" + name
	c.Create(t, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: full}})
	c.Create(t, &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: full},
		Spec: kueue.ClusterQueueSpec{
			NamespaceSelector: &metav1.LabelSelector{},
			ResourceGroups: []kueue.ResourceGroup{{
				CoveredResources: []corev1.ResourceName{GPU},
				Flavors: []kueue.FlavorQuotas{{Name: kueue.ResourceFlavorReference(full), Resources: []kueue.ResourceQuota{
					{Name: GPU, NominalQuota: *resource.NewQuantity(gpus, resource.DecimalSI)},
				}}},
			}},
		},
	})
	c.Create(t, &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(full)},
	})
}

// Job returns a suspended JobSet of one replicated job "node" with pods pods
// of gpus GPUs each.
func Job(namespace, name, queue string, pods int32, gpus int64) *jobset.JobSet {
	return &jobset.JobSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"kueue.x-k8s.io/queue-name": queue}},
		Spec: jobset.JobSetSpec{
			Suspend:        new(true),
			ReplicatedJobs: []jobset.ReplicatedJob{Replicated("node", pods, gpus)},
		},
	}
}

// Replicated returns one replicated job of one Job with pods pods.
func Replicated(name string, pods int32, gpus int64) jobset.ReplicatedJob {
	resources := corev1.ResourceRequirements{}
	if gpus > 0 {
		resources.Limits = corev1.ResourceList{GPU: *resource.NewQuantity(gpus, resource.DecimalSI)}
	}
	return jobset.ReplicatedJob{
		Name: name, Replicas: 1,
		Template: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
			Parallelism: &pods, Completions: &pods, CompletionMode: new(batchv1.IndexedCompletion),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				SchedulerName: "muster", RestartPolicy: corev1.RestartPolicyNever,
				Containers: []corev1.Container{{Name: "node", Image: "example.com/train", Resources: resources}},
			}},
		}},
	}
}

// Create creates an object, and deletes it when the test ends.
func (c *Cluster) Create(t testing.TB, obj client.Object) {
	t.Helper()
	if err := c.Client.Create(t.Context(), obj); err != nil {
		t.Fatalf("creating %T %s: %v", obj, obj.GetName(), err)
	}
	t.Cleanup(func() {
		// The default for a batch Job is to wait for the garbage collector.
		background := client.PropagationPolicy(metav1.DeletePropagationBackground)
		if err := c.Client.Delete(context.Background(), obj, client.GracePeriodSeconds(0), background); client.IgnoreNotFound(err) != nil {
			t.Logf("deleting %T %s: %v", obj, obj.GetName(), err)
		}
	})
}

// Pods are the pods of a JobSet.
func (c *Cluster) Pods(ctx context.Context, js *jobset.JobSet) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := c.Client.List(ctx, &pods, client.InNamespace(js.Namespace), client.MatchingLabels{jobset.JobSetNameKey: js.Name})
	return pods.Items, err
}

// Bound is the number of a JobSet's pods that are on a node, and an error
// unless it is want.
func (c *Cluster) Bound(ctx context.Context, js *jobset.JobSet, want int) error {
	pods, err := c.Pods(ctx, js)
	if err != nil {
		return err
	}
	bound := 0
	for i := range pods {
		if pods[i].Spec.NodeName != "" {
			bound++
		}
	}
	if bound != want {
		return fmt.Errorf("%d pods of %s are on nodes, want %d", bound, js.Name, want)
	}
	return nil
}
