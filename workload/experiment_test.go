package workload

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// newExperiment is an Experiment whose trials are as given.
func newExperiment(trial map[string]any, change ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kubeflow.org/v1beta1", "kind": "Experiment",
		"metadata": map[string]any{"namespace": namespace, "name": "search", "uid": "exp-1"},
		"spec":     map[string]any{"trialTemplate": map[string]any{"trialSpec": trial}},
	}}
	for _, f := range change {
		f(u)
	}
	return u
}

func TestTrialsOfAnExperimentAreReadFromItsTemplate(t *testing.T) {
	labels := map[string]any{"labels": map[string]any{QueueLabel: "main"}}
	batch := map[string]any{"apiVersion": "batch/v1", "kind": "Job", "metadata": labels, "spec": map[string]any{"parallelism": int64(2), "template": rayPods("4")}}
	pyTorch := map[string]any{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": labels, "spec": map[string]any{
		"pytorchReplicaSpecs": map[string]any{"Worker": map[string]any{"replicas": int64(3), "template": rayPods("8")}},
	}}
	train := map[string]any{"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": labels, "spec": map[string]any{
		"runtimeRef": map[string]any{"name": "torch"},
		"trainer":    map[string]any{"numNodes": int64(2), "resourcesPerNode": map[string]any{"limits": map[string]any{"nvidia.com/gpu": "8"}}},
	}}
	team := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Annotations: map[string]string{DefaultQueueAnnotation: "own"}}}
	type want struct {
		Parallel int32
		Queue    string
		GPUs     int64
	}
	for _, tc := range []struct {
		name       string
		experiment *unstructured.Unstructured
		want       *want
	}{
		{"a Job, three at a time unless told", newExperiment(batch), &want{3, "main", 8}},
		{"a PyTorchJob, as many as told", newExperiment(pyTorch, with(int64(5), "spec", "parallelTrialCount")), &want{5, "main", 24}},
		{"no more than there are in all", newExperiment(pyTorch, with(int64(5), "spec", "parallelTrialCount"), with(int64(2), "spec", "maxTrialCount")), &want{2, "main", 24}},
		{"a TrainJob that says what its nodes take", newExperiment(train), &want{3, "main", 16}},
		{"a trial without a queue goes to the namespace's default one", newExperiment(map[string]any{"apiVersion": "batch/v1", "kind": "Job", "spec": map[string]any{"template": rayPods("1")}}), &want{3, "own", 1}},
		{"nothing of a TrainJob whose GPUs its runtime knows", newExperiment(map[string]any{"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": labels, "spec": map[string]any{}}), nil},
		{"nothing of a kind that is not managed", newExperiment(map[string]any{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun"}), nil},
		{"nothing where a parameter stands for a number", newExperiment(map[string]any{"apiVersion": "batch/v1", "kind": "Job", "spec": map[string]any{"parallelism": "${trialParameters.n}", "template": rayPods("1")}}), nil},
		{"nothing of one that has ended", newExperiment(batch, with([]any{map[string]any{"type": "Succeeded", "status": "True"}}, "status", "conditions")), nil},
		{"nothing of one with its trials elsewhere", newExperiment(nil), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			kinds := map[schema.GroupKind]Kind{}
			for _, k := range Kinds(testOptions) {
				kinds[k.GroupVersionKind().GroupKind()] = k
			}
			before := tc.experiment.DeepCopy()
			e, err := ReadExperiment(t.Context(), fakeClient(t, team), kinds, tc.experiment)
			if err != nil {
				t.Fatal(err)
			}
			var got *want
			if e != nil {
				got = &want{Parallel: e.Parallel, Queue: e.Trial.Queue}
				for _, ps := range e.Trial.PodSets {
					got.GPUs += int64(ps.Count) * GPUs(ps.PerPod())
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(before.Object, tc.experiment.Object); diff != "" {
				t.Errorf("the Experiment was changed: %s", diff)
			}
		})
	}
}
