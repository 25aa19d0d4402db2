package facts

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/workload"
)

var (
	podKind      = schema.GroupKind{Kind: "Pod"}
	trainJobKind = schema.GroupKind{Group: "trainer.kubeflow.org", Kind: "TrainJob"}
	runtimeKinds = []schema.GroupKind{{Group: trainJobKind.Group, Kind: trainingRuntime}, {Group: trainJobKind.Group, Kind: clusterRuntime}}
	cronJobKind  = schema.GroupKind{Group: "batch", Kind: "CronJob"}
	workerSet    = schema.GroupKind{Group: "leaderworkerset.x-k8s.io", Kind: "LeaderWorkerSet"}
)

// templated are kinds with one pod template at spec.template, of which there are
// spec.replicas pods, or one where there is no such field.
var templated = []schema.GroupKind{
	{Group: "apps", Kind: "Deployment"}, {Group: "apps", Kind: "StatefulSet"}, {Group: "apps", Kind: "ReplicaSet"},
	{Group: "kubeflow.org", Kind: "Notebook"},
}

// job is the pods of an object, as a job with nothing else in it.
func (r *Reader) job(ctx context.Context, w *Workload, u *unstructured.Unstructured) *workload.Job {
	gk := u.GroupVersionKind().GroupKind()
	switch {
	case gk == podKind:
		return r.single(w, u, "pod", 1, "spec")
	case gk == trainJobKind:
		return r.trainJob(ctx, w, u)
	case slices.Contains(runtimeKinds, gk):
		return r.runtimePods(ctx, w, u)
	case gk == workload.ExperimentGVK.GroupKind():
		return r.experiment(ctx, w, u)
	case gk == cronJobKind:
		spec, _, _ := unstructured.NestedMap(u.Object, "spec", "jobTemplate", "spec")
		return r.managed(ctx, w, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "batch/v1", "kind": "Job", "spec": spec}})
	case gk == workerSet:
		return r.workers(w, u)
	case slices.Contains(templated, gk):
		count := int64(1)
		if n, found, _ := unstructured.NestedInt64(u.Object, "spec", "replicas"); found {
			count = n
		}
		return r.single(w, u, "main", count, "spec", "template", "spec")
	case r.kinds[gk] != nil:
		return r.managed(ctx, w, u)
	}
	return r.anything(w, u)
}

// single is the pods of one template whose spec is at the path.
func (r *Reader) single(w *Workload, u *unstructured.Unstructured, name string, count int64, path ...string) *workload.Job {
	fields, _, _ := unstructured.NestedFieldNoCopy(u.Object, path...)
	spec, _ := fields.(map[string]any)
	set := workload.PodSet{Name: name, Count: int32(min(max(count, 0), math.MaxInt32))}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &set.Template.Spec); err != nil {
		return r.wrong(w, u, err)
	}
	within := &unstructured.Unstructured{Object: u.Object}
	if len(path) > 1 {
		above, _, _ := unstructured.NestedFieldNoCopy(u.Object, path[:len(path)-1]...)
		within.Object, _ = above.(map[string]any)
	}
	set.Template.Labels, set.Template.Annotations = within.GetLabels(), within.GetAnnotations()
	return &workload.Job{PodSets: []workload.PodSet{set}}
}

// workers are the pods of a LeaderWorkerSet: in each of its replicas a leader, and
// workers, whose template is the leader's where it has none.
func (r *Reader) workers(w *Workload, u *unstructured.Unstructured) *workload.Job {
	number := func(fallback int64, path ...string) int64 {
		if n, found, _ := unstructured.NestedInt64(u.Object, path...); found {
			return n
		}
		return fallback
	}
	replicas, size := number(1, "spec", "replicas"), number(1, "spec", "leaderWorkerTemplate", "size")
	leader, workerSpec := "leaderTemplate", "workerTemplate"
	if _, found, _ := unstructured.NestedMap(u.Object, "spec", "leaderWorkerTemplate", leader); !found {
		leader = workerSpec
	}
	job := r.single(w, u, "leader", replicas, "spec", "leaderWorkerTemplate", leader, "spec")
	if size > 1 {
		more := r.single(w, u, "worker", replicas*(size-1), "spec", "leaderWorkerTemplate", workerSpec, "spec")
		job.PodSets = append(job.PodSets, more.PodSets...)
	}
	return job
}

// managed is the pods of a kind of job that Muster manages, as it would be read had
// it a queue, an own controller and no owner.
func (r *Reader) managed(ctx context.Context, w *Workload, u *unstructured.Unstructured) *workload.Job {
	kind := r.kinds[u.GroupVersionKind().GroupKind()]
	own := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(),
		"metadata": map[string]any{"name": u.GetName(), "namespace": u.GetNamespace(), "labels": map[string]any{workload.QueueLabel: "any"}},
	}}
	// The spec is read and not changed, so that it need not be copied as a whole.
	fields, _ := u.Object["spec"].(map[string]any)
	spec := maps.Clone(fields)
	delete(spec, "managedBy")
	if policy, ok := spec["runPolicy"].(map[string]any); ok {
		policy = maps.Clone(policy)
		delete(policy, "managedBy")
		spec["runPolicy"] = policy
	}
	own.Object["spec"] = spec
	obj := client.Object(own)
	if typed := kind.New(); !isUnstructured(typed) {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(own.Object, typed); err != nil {
			return r.wrong(w, u, err)
		}
		obj = typed
	}
	job, managed, no, err := kind.Read(ctx, noObjects{}, obj)
	switch {
	case err != nil:
		return r.wrong(w, u, err)
	case !managed:
		return r.anything(w, u)
	case len(job.PodSets) == 0 && no != nil:
		return r.wrong(w, u, no)
	}
	return job
}

func isUnstructured(obj client.Object) bool {
	_, ok := obj.(*unstructured.Unstructured)
	return ok
}

// experiment is the pods of one trial.
func (r *Reader) experiment(ctx context.Context, w *Workload, u *unstructured.Unstructured) *workload.Job {
	w.Trials = &Trials{Parallel: workload.ParallelTrials(u)}
	if n, found, _ := unstructured.NestedInt64(u.Object, "spec", "maxFailedTrialCount"); found {
		w.Trials.MaxFailed = &n
	}
	spec, found, _ := unstructured.NestedMap(u.Object, "spec", "trialTemplate", "trialSpec")
	if !found {
		w.unsure("the template of its trials is not in it")
		return &workload.Job{}
	}
	trial := &unstructured.Unstructured{Object: spec}
	trial.SetNamespace(u.GetNamespace())
	w.Trials.Kind = trial.GetKind()
	if queue := trial.GetLabels()[workload.QueueLabel]; queue != "" {
		w.Queue = queue
	}
	if trial.GroupVersionKind().GroupKind() == workload.ExperimentGVK.GroupKind() {
		w.unsure("its trials are Experiments")
		return &workload.Job{}
	}
	return r.job(ctx, w, trial)
}

// wrong is what can be said of an object that its own kind cannot be read from:
// numbers may be parameters that are filled in later.
func (r *Reader) wrong(w *Workload, u *unstructured.Unstructured, err error) *workload.Job {
	w.unsure("%s cannot be read: %v", u.GetKind(), err)
	return r.anything(w, u)
}

// anything is the pods of whatever looks like a pod's spec in an object of which
// nothing else is known. How many there will be is not known.
func (r *Reader) anything(w *Workload, u *unstructured.Unstructured) *workload.Job {
	job := &workload.Job{}
	search(u.Object, "", func(path string, spec map[string]any) {
		set := workload.PodSet{Name: path, Count: 1}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &set.Template.Spec); err != nil {
			set.Template.Spec = corev1.PodSpec{}
			images(spec, &set.Template.Spec)
		}
		job.PodSets = append(job.PodSets, set)
	})
	if len(job.PodSets) > 0 && w.Unknown == "" {
		w.unsure("how many pods a %s has is not known", u.GetKind())
	}
	return job
}

// search finds maps with a list of containers, which are pods' specs.
func search(at any, path string, found func(string, map[string]any)) {
	switch v := at.(type) {
	case map[string]any:
		if _, ok := v["containers"].([]any); ok {
			found(path, v)
			return
		}
		for _, key := range sortedKeys(v) {
			search(v[key], path+"."+key, found)
		}
	case []any:
		for i := range v {
			search(v[i], fmt.Sprintf("%s[%d]", path, i), found)
		}
	}
}

// images are those of a spec that is no pod's spec otherwise.
func images(spec map[string]any, into *corev1.PodSpec) {
	for _, field := range []string{"containers", "initContainers", "ephemeralContainers"} {
		list, _ := spec[field].([]any)
		for _, item := range list {
			fields, _ := item.(map[string]any)
			name, _ := fields["name"].(string)
			image, _ := fields["image"].(string)
			into.Containers = append(into.Containers, corev1.Container{Name: name, Image: image})
		}
	}
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// noObjects is a cluster without any object: a job is described by what it says
// itself, before anything is made for it.
type noObjects struct{}

// Get implements client.Reader.
func (noObjects) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// List implements client.Reader.
func (noObjects) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }
