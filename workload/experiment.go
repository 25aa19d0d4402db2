package workload

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ExperimentGVK is Katib's Experiment. Its trials are jobs of other kinds, made
// from its template, and are managed as such.
var ExperimentGVK = schema.GroupVersionKind{Group: "kubeflow.org", Version: "v1beta1", Kind: "Experiment"}

// defaultParallelTrials is how many trials Katib runs at a time unless told.
const defaultParallelTrials = 3

// Experiment is what an Experiment will ask of its queue.
type Experiment struct {
	types.NamespacedName
	UID types.UID
	// Parallel is how many trials run at the same time.
	Parallel int32
	// Trial is one of them, as far as its template says: its queue and its pod
	// sets.
	Trial *Job
}

// ReadExperiment reads an Experiment by the kinds of jobs that its trials may
// be. It returns nil where nothing can be said: it has ended, or its trials are of
// another kind, or what they take is not in the template.
func ReadExperiment(ctx context.Context, r client.Reader, kinds map[schema.GroupKind]Kind, obj *unstructured.Unstructured) (*Experiment, error) {
	o := object{obj}
	spec := o.within("spec", "trialTemplate", "trialSpec")
	if spec == nil || obj.GetDeletionTimestamp() != nil || finish(conditionsOf(obj), "Succeeded", "Failed") != nil {
		return nil, nil
	}
	trial := object{&unstructured.Unstructured{Object: runtime.DeepCopyJSON(spec)}}
	kind := kinds[trial.GroupVersionKind().GroupKind()]
	if kind == nil {
		return nil, nil
	}
	e := &Experiment{NamespacedName: client.ObjectKeyFromObject(obj), UID: obj.GetUID(), Parallel: ParallelTrials(obj)}
	if e.Parallel < 1 {
		return nil, nil
	}
	trial.SetNamespace(obj.GetNamespace())
	// A name that no job has: a TrainJob's JobSet is looked for by it.
	trial.SetName(obj.GetName() + "-trial-of-" + string(obj.GetUID()))
	trial.SetUID(obj.GetUID())
	if trial.GetLabels()[QueueLabel] == "" {
		queue, err := defaultQueueOf(ctx, r, obj.GetNamespace())
		if err != nil {
			return nil, err
		}
		labels := trial.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[QueueLabel] = queue
		trial.SetLabels(labels)
	}
	owner := client.Object(trial.Unstructured)
	if typed := kind.New(); !isUnstructured(typed) {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(trial.Object, typed); err != nil {
			// A number in it is a parameter of the trials.
			return nil, nil
		}
		owner = typed
	}
	job, managed, _, err := kind.Read(ctx, r, owner)
	if err != nil {
		return nil, fmt.Errorf("reading the trials of Experiment %s: %w", e.NamespacedName, err)
	}
	if !managed {
		return nil, nil
	}
	if len(job.PodSets) == 0 && kind.GroupVersionKind().GroupKind() == trainerVersion.WithKind("TrainJob").GroupKind() {
		job.PodSets = trial.trainerSets()
	}
	if len(job.PodSets) == 0 {
		return nil, nil
	}
	e.Trial = job
	return e, nil
}

// ParallelTrials is how many trials of an Experiment run at the same time.
func ParallelTrials(obj *unstructured.Unstructured) int32 {
	parallel := int32(defaultParallelTrials)
	if n, found, _ := unstructured.NestedInt64(obj.Object, "spec", "parallelTrialCount"); found {
		parallel = int32(n)
	}
	if n, found, _ := unstructured.NestedInt64(obj.Object, "spec", "maxTrialCount"); found {
		parallel = min(parallel, int32(n))
	}
	return parallel
}

func isUnstructured(obj client.Object) bool {
	_, ok := obj.(*unstructured.Unstructured)
	return ok
}

// trainerSets are the nodes of a TrainJob that was not created, if it says itself
// what each of them takes.
func (o object) trainerSets() []PodSet {
	fields, found, _ := unstructured.NestedMap(o.Object, "spec", "trainer", "resourcesPerNode")
	resources := corev1.ResourceRequirements{}
	if !found || runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &resources) != nil {
		return nil
	}
	nodes, found, err := unstructured.NestedInt64(o.Object, "spec", "trainer", "numNodes")
	if err != nil {
		return nil
	}
	if !found {
		nodes = 1
	}
	return []PodSet{{
		Name: "node", Count: int32(nodes), Completions: int32(nodes), PodsPerReplica: int32(nodes),
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "node", Resources: resources}},
		}},
	}}
}
