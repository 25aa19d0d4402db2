package facts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-gpu/muster/workload"
)

const (
	trainingRuntime = "TrainingRuntime"
	clusterRuntime  = "ClusterTrainingRuntime"
	// ancestorLabel on a Job's template says which part of a TrainJob it is.
	ancestorLabel = "trainer.kubeflow.org/trainjob-ancestor-step"
	trainerStep   = "trainer"
	// trainerNode is the container, and the replicated job, that train.
	trainerNode = "node"
)

// trainer is what a TrainJob says of its nodes.
type trainer struct {
	Image            string                       `json:"image"`
	NumNodes         *int32                       `json:"numNodes"`
	ResourcesPerNode *corev1.ResourceRequirements `json:"resourcesPerNode"`
	Env              []corev1.EnvVar              `json:"env"`
}

type trainJobSpec struct {
	Trainer        *trainer `json:"trainer"`
	RuntimePatches []struct {
		TrainingRuntimeSpec *struct {
			Template *struct {
				Spec json.RawMessage `json:"spec"`
			} `json:"template"`
		} `json:"trainingRuntimeSpec"`
	} `json:"runtimePatches"`
}

type runtimeSpec struct {
	MLPolicy *struct {
		NumNodes *int32 `json:"numNodes"`
		MPI      *struct {
			RunLauncherAsNode *bool `json:"runLauncherAsNode"`
		} `json:"mpi"`
	} `json:"mlPolicy"`
	Template struct {
		Spec jobset.JobSetSpec `json:"spec"`
	} `json:"template"`
}

// trainJob is the pods of a TrainJob: those of its runtime, with what the job puts
// over them, as the Trainer does it.
func (r *Reader) trainJob(ctx context.Context, w *Workload, u *unstructured.Unstructured) *workload.Job {
	js, err := r.trained(ctx, w, u)
	if err != nil {
		return r.wrong(w, u, err)
	}
	return r.jobSet(ctx, w, u, js)
}

// JobSetOf is the spec of the JobSet that the Trainer would make of a TrainJob, as far as
// the pods and their numbers go. What is not known is an error.
func (r *Reader) JobSetOf(ctx context.Context, u *unstructured.Unstructured) (*jobset.JobSetSpec, error) {
	w := &Workload{}
	js, err := r.trained(ctx, w, u)
	if err == nil && w.Unknown != "" {
		err = errors.New(w.Unknown)
	}
	if err != nil {
		return nil, fmt.Errorf("reading TrainJob %s: %w", u.GetName(), err)
	}
	return js, nil
}

// trained is the runtime's JobSet with what the job puts over it.
func (r *Reader) trained(ctx context.Context, w *Workload, u *unstructured.Unstructured) (*jobset.JobSetSpec, error) {
	var spec trainJobSpec
	fields, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec")
	if err := convert(fields, &spec); err != nil {
		return nil, err
	}
	runtime, err := r.runtime(ctx, w, u)
	if err != nil {
		w.unsure("%v", err)
		// What the job says itself is known.
		runtime = &runtimeSpec{}
		runtime.Template.Spec.ReplicatedJobs = []jobset.ReplicatedJob{bareNode()}
	}
	js := &runtime.Template.Spec
	for _, p := range spec.RuntimePatches {
		if p.TrainingRuntimeSpec == nil || p.TrainingRuntimeSpec.Template == nil || len(p.TrainingRuntimeSpec.Template.Spec) == 0 {
			continue
		}
		if js, err = patched(js, p.TrainingRuntimeSpec.Template.Spec); err != nil {
			w.unsure("its runtime patches: %v", err)
			js = &runtime.Template.Spec
		}
	}
	size(js, runtime, spec.Trainer)
	return js, nil
}

// runtimePods are the pods of a job that says nothing but the runtime's name.
func (r *Reader) runtimePods(ctx context.Context, w *Workload, u *unstructured.Unstructured) *workload.Job {
	runtime, err := runtimeOf(u)
	if err != nil {
		return r.wrong(w, u, err)
	}
	size(&runtime.Template.Spec, runtime, nil)
	return r.jobSet(ctx, w, u, &runtime.Template.Spec)
}

func (r *Reader) jobSet(ctx context.Context, w *Workload, u *unstructured.Unstructured, js *jobset.JobSetSpec) *workload.Job {
	var spec map[string]any
	if err := convert(js, &spec); err != nil {
		return r.wrong(w, u, err)
	}
	return r.managed(ctx, w, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": jobset.SchemeGroupVersion.String(), "kind": "JobSet",
		"metadata": map[string]any{"name": u.GetName(), "namespace": u.GetNamespace()}, "spec": spec,
	}})
}

// runtime finds the runtime that the job names, with the API's defaults.
func (r *Reader) runtime(ctx context.Context, w *Workload, u *unstructured.Unstructured) (*runtimeSpec, error) {
	kind, _, _ := unstructured.NestedString(u.Object, "spec", "runtimeRef", "kind")
	if kind == "" {
		kind = clusterRuntime
	}
	name, _, _ := unstructured.NestedString(u.Object, "spec", "runtimeRef", "name")
	w.Runtime = &Runtime{Kind: kind, Name: name, Labels: map[string]string{}}
	if r.Around == nil {
		return nil, fmt.Errorf("%s %s is not read here", kind, name)
	}
	found, err := r.Around.Runtime(ctx, u.GetNamespace(), kind, name)
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", kind, name, err)
	}
	if found == nil {
		return nil, fmt.Errorf("%s %s does not exist", kind, name)
	}
	out, err := runtimeOf(found)
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", kind, name, err)
	}
	w.Runtime.Resolved, w.Runtime.Labels = true, nonNilMap(found.GetLabels())
	return out, nil
}

func runtimeOf(u *unstructured.Unstructured) (*runtimeSpec, error) {
	out := &runtimeSpec{}
	fields, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec")
	return out, convert(fields, out)
}

func bareNode() jobset.ReplicatedJob {
	node := jobset.ReplicatedJob{Name: trainerNode, Replicas: 1}
	node.Template.Labels = map[string]string{ancestorLabel: trainerStep}
	node.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: trainerNode}}
	return node
}

// patched is the spec with a runtime patch, which is a strategic merge patch.
func patched(js *jobset.JobSetSpec, patch json.RawMessage) (*jobset.JobSetSpec, error) {
	source, err := json.Marshal(js)
	if err != nil {
		return nil, err
	}
	merged, err := strategicpatch.StrategicMergePatch(source, patch, jobset.JobSetSpec{})
	if err != nil {
		return nil, err
	}
	out := &jobset.JobSetSpec{}
	return out, json.Unmarshal(merged, out)
}

// size gives the replicated jobs the numbers, the image and the resources that the
// TrainJob asks for, as the Trainer does. In an MPI runtime the launcher is the
// trainer; where it is a node too, the job "node" has the others.
func size(js *jobset.JobSetSpec, runtime *runtimeSpec, t *trainer) {
	mpi := runtime.MLPolicy != nil && runtime.MLPolicy.MPI != nil
	launcherIsNode := mpi && ptr.Deref(runtime.MLPolicy.MPI.RunLauncherAsNode, false)
	for i := range js.ReplicatedJobs {
		rj := &js.ReplicatedJobs[i]
		if rj.Replicas == 0 {
			// The API server's default.
			rj.Replicas = 1
		}
		trains := rj.Template.Labels[ancestorLabel] == trainerStep
		mpiNode := mpi && rj.Name == trainerNode
		if !trains && !mpiNode {
			continue
		}
		var nodes *int32
		if t != nil {
			nodes = t.NumNodes
		}
		if nodes == nil && runtime.MLPolicy != nil && trains {
			nodes = runtime.MLPolicy.NumNodes
		}
		switch {
		case nodes == nil:
		case mpiNode && launcherIsNode:
			setPods(rj, max(*nodes-1, 1))
		case mpiNode || !mpi:
			setPods(rj, *nodes)
		case t == nil || t.NumNodes == nil:
			// The runtime's own number goes to the launcher.
			setPods(rj, *nodes)
		}
		if t == nil {
			continue
		}
		for c := range rj.Template.Spec.Template.Spec.Containers {
			container := &rj.Template.Spec.Template.Spec.Containers[c]
			if container.Name != trainerNode {
				continue
			}
			if t.Image != "" {
				container.Image = t.Image
			}
			container.Env = append(container.Env, t.Env...)
			if t.ResourcesPerNode != nil && (trains || launcherIsNode) {
				container.Resources.Limits = over(container.Resources.Limits, t.ResourcesPerNode.Limits)
				container.Resources.Requests = over(container.Resources.Requests, t.ResourcesPerNode.Requests)
			}
		}
	}
}

func setPods(rj *jobset.ReplicatedJob, n int32) {
	rj.Template.Spec.Parallelism, rj.Template.Spec.Completions = &n, &n
}

// over is a list with another one put over it.
func over(list, with corev1.ResourceList) corev1.ResourceList {
	if len(with) == 0 {
		return list
	}
	out := corev1.ResourceList{}
	maps.Copy(out, list)
	maps.Copy(out, with)
	return out
}
