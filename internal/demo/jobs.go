package demo

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/internal/simulator"
)

const (
	namespace = "team-nlp"
	queue     = "team-nlp"
	gpu       = corev1.ResourceName("nvidia.com/gpu")
	// gate holds the pods of the plain cluster back, so that they are let go
	// in the same order every time.
	gate = "demo.muster.dev/turn"
)

var trainJobKind = schema.GroupVersionKind{Group: "trainer.kubeflow.org", Version: "v1alpha1", Kind: "TrainJob"}

// training is one TrainJob as a user writes it.
type training struct {
	name  string
	nodes int
	// gpus is the number of GPUs of each node.
	gpus int
	// runFor is how long the training works; zero is for ever.
	runFor time.Duration
	// queued jobs name the queue; gated ones have gated pods.
	queued, gated bool
}

func (t training) object() *unstructured.Unstructured {
	gpus := map[string]any{string(gpu): strconv.Itoa(t.gpus)}
	annotations := map[string]any{}
	if t.runFor > 0 {
		annotations[simulator.RunForAnnotation] = t.runFor.String()
	}
	pod := map[string]any{"metadata": map[string]any{"annotations": annotations}}
	if t.gated {
		pod["spec"] = map[string]any{"schedulingGates": []any{map[string]any{"name": gate}}}
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{
			"runtimeRef": map[string]any{"name": "torch-distributed"},
			"trainer": map[string]any{
				"numNodes":         int64(t.nodes),
				"resourcesPerNode": map[string]any{"limits": gpus, "requests": gpus},
			},
			"runtimePatches": []any{map[string]any{
				"manager": "demo.muster.dev/simulation",
				"trainingRuntimeSpec": map[string]any{"template": map[string]any{"spec": map[string]any{
					"replicatedJobs": []any{map[string]any{
						"name":     "node",
						"template": map[string]any{"spec": map[string]any{"template": pod}},
					}},
				}}},
			}},
		},
	}}
	u.SetGroupVersionKind(trainJobKind)
	u.SetNamespace(namespace)
	u.SetName(t.name)
	if t.queued {
		u.SetLabels(map[string]string{"kueue.x-k8s.io/queue-name": queue})
	}
	return u
}

// jobOf is the name of the job that a pod belongs to.
func jobOf(pod *corev1.Pod) string { return pod.Labels[jobset.JobSetNameKey] }

func gpusOf(list corev1.ResourceList) int {
	q := list[gpu]
	return int(q.Value())
}

// queueObjects are a queue of 32 GPUs, as an administrator writes it.
func queueObjects() []any {
	return []any{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "h100"}},
		&kueue.ClusterQueue{
			ObjectMeta: metav1.ObjectMeta{Name: "research"},
			Spec: kueue.ClusterQueueSpec{
				NamespaceSelector: &metav1.LabelSelector{},
				ResourceGroups: []kueue.ResourceGroup{{
					CoveredResources: []corev1.ResourceName{gpu},
					Flavors: []kueue.FlavorQuotas{{Name: "h100", Resources: []kueue.ResourceQuota{
						{Name: gpu, NominalQuota: resource.MustParse("32")},
					}}},
				}},
			},
		},
		&kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: queue},
			Spec:       kueue.LocalQueueSpec{ClusterQueue: "research"},
		},
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return fmt.Sprintf("1 %s", what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}
