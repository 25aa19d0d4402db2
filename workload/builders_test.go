package workload

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload/identity"
)

const namespace = "team-nlp"

var testOptions = Options{SchedulerNames: sets.New("muster")}

func kindNamed(t *testing.T, name string) Kind {
	t.Helper()
	for _, k := range Kinds(testOptions) {
		if k.GroupVersionKind().Kind == name {
			return k
		}
	}
	t.Fatalf("no kind %s", name)
	return nil
}

func fakeClient(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, jobset.AddToScheme, kueue.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{"TrainJob", clusterRuntimeKind, runtimeKind} {
		scheme.AddKnownTypeWithName(trainerVersion.WithKind(kind), &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(trainerVersion.WithKind(kind+"List"), &unstructured.UnstructuredList{})
	}
	for _, k := range Kinds(testOptions) {
		if gvk := k.GroupVersionKind(); gvk.Group == identity.TrainingGroup || gvk.Group == identity.RayGroup {
			scheme.AddKnownTypeWithName(gvk, &unstructured.Unstructured{})
			scheme.AddKnownTypeWithName(gvk.GroupVersion().WithKind(gvk.Kind+"List"), &unstructured.UnstructuredList{})
		}
	}
	scheme.AddKnownTypeWithName(ReplicaGVK, &unstructured.Unstructured{})
	group := func(o client.Object) []string {
		owner, _ := PodJob(o.(*corev1.Pod))
		return []string{string(owner.UID)}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithIndex(&corev1.Pod{}, MemberField, group).Build()
}

// replicated is a replicated job of replicas times parallelism pods that ask
// for four GPUs each, with Muster's scheduler.
func replicated(name string, replicas, parallelism int32, change ...func(*jobset.ReplicatedJob)) jobset.ReplicatedJob {
	rj := jobset.ReplicatedJob{Name: name, Replicas: replicas}
	rj.Template.Spec = batchv1.JobSpec{Parallelism: &parallelism, Completions: &parallelism}
	rj.Template.Spec.Template.Spec = corev1.PodSpec{
		SchedulerName: "muster",
		Containers: []corev1.Container{{
			Name:      "node",
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("4")}},
		}},
	}
	for _, f := range change {
		f(&rj)
	}
	return rj
}

func dependsOn(name string, status jobset.DependsOnStatus) func(*jobset.ReplicatedJob) {
	return func(rj *jobset.ReplicatedJob) {
		rj.DependsOn = append(rj.DependsOn, jobset.DependsOn{Name: name, Status: status})
	}
}

func scheduler(name string) func(*jobset.ReplicatedJob) {
	return func(rj *jobset.ReplicatedJob) { rj.Template.Spec.Template.Spec.SchedulerName = name }
}

func podAnnotation(key, value string) func(*jobset.ReplicatedJob) {
	return func(rj *jobset.ReplicatedJob) {
		template := &rj.Template.Spec.Template
		template.Annotations = joined(template.Annotations, map[string]string{key: value})
	}
}

func tolerates(keys ...string) func(*jobset.ReplicatedJob) {
	return func(rj *jobset.ReplicatedJob) {
		rj.Template.Spec.Template.Spec.Tolerations = tolerations(keys...)
	}
}

func tolerations(keys ...string) []corev1.Toleration {
	var list []corev1.Toleration
	for _, key := range keys {
		list = append(list, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
	return list
}

// newJobSet is a suspended JobSet in queue main.
func newJobSet(change func(*jobset.JobSet), jobs ...jobset.ReplicatedJob) *jobset.JobSet {
	js := &jobset.JobSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "train", UID: "js-1",
			Labels:            map[string]string{QueueLabel: "main"},
			CreationTimestamp: metav1.Unix(1_700_000_000, 0),
		},
		Spec: jobset.JobSetSpec{Suspend: new(true), ReplicatedJobs: jobs},
	}
	if change != nil {
		change(js)
	}
	return js
}

func controlledBy(apiVersion, kind string, uid types.UID) func(*jobset.JobSet) {
	return func(js *jobset.JobSet) {
		js.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: apiVersion, Kind: kind, Name: js.Name, UID: uid, Controller: new(true),
		}}
	}
}

// newTrainJob is a suspended TrainJob in queue main on ClusterTrainingRuntime
// torch, with a field that no version of this program knows.
func newTrainJob(change func(trainJob)) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": trainerVersion.String(),
		"kind":       "TrainJob",
		"metadata": map[string]any{
			"namespace": namespace, "name": "train", "uid": "tj-1",
			"labels":            map[string]any{QueueLabel: "main"},
			"creationTimestamp": "2023-11-14T22:13:20Z",
		},
		"spec": map[string]any{
			"suspend":    true,
			"managedBy":  trainJobController,
			"runtimeRef": map[string]any{"apiGroup": trainerGroup, "kind": clusterRuntimeKind, "name": "torch"},
			"trainer":    map[string]any{"numNodes": int64(4), "unheardOf": "kept"},
		},
	}}
	if change != nil {
		change(trainJob{u})
	}
	return u
}

// trainingRuntime is a runtime of one of the two kinds.
func trainingRuntime(kind, ns, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(trainerVersion.WithKind(kind))
	u.SetNamespace(ns)
	u.SetName(name)
	return u
}

func get[T client.Object](t *testing.T, c client.Client, obj T) T {
	t.Helper()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
		t.Fatal(err)
	}
	return obj
}
