package workload

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload/identity"
)

// The labels by which an owner asks for a queue, a priority and an end: Kueue's.
const (
	PriorityClassLabel = "kueue.x-k8s.io/priority-class"
	MaxExecTimeLabel   = "kueue.x-k8s.io/max-exec-time-seconds"
)

// ErrNotSuspended is returned (wrapped) by Resume for an owner that runs
// without the given infos: they can be injected only while it is suspended.
var ErrNotSuspended = errors.New("it is not suspended, and runs without what is to be injected")

// Kind reads and steers one kind of owner object. It never changes the object
// it is given, which may come out of an informer's cache, and keeps no state.
type Kind interface {
	GroupVersionKind() schema.GroupVersionKind
	// New is an empty object to make an informer with.
	New() client.Object
	// Read turns obj into a Job. managed is false where the object is not ours:
	// it has no queue label, names a foreign managedBy, or is the child of
	// another managed owner; everything else is then nil. A non-nil no means
	// that the job is ours but cannot run as it stands: the Job is returned as
	// far as it could be read, with Owner, Queue, Created and Suspended always
	// set. A finished or deleted job never has a no. err means that reading
	// failed and is worth another try. r may be an informer cache.
	Read(ctx context.Context, r client.Reader, obj client.Object) (job *Job, managed bool, no *reason.Reason, err error)
	// Suspend stops the owner's pods, and does nothing if it is suspended.
	Suspend(ctx context.Context, c client.Client, obj client.Object) error
	// Resume lets the owner create its pods, with infos injected, in one
	// request. It does nothing if the owner already runs with them, and
	// returns ErrNotSuspended if it runs without. A *reason.Reason in the error
	// means that the infos contradict the job's own templates. A conflict means
	// that obj is out of date.
	Resume(ctx context.Context, c client.Client, obj client.Object, infos []PodSetInfo) error
}

// Options are what the kinds need to know about the rest of Muster.
type Options struct {
	// SchedulerNames are the profiles of Muster's scheduler. Pods that name
	// another scheduler cannot be placed by Muster.
	SchedulerNames sets.Set[string]
	// Unqueued says what happens to GPU pods without a queue.
	Unqueued Unqueued
	// ClaimsGPU says that a pod may get GPUs by what it claims (dynamic resource
	// allocation). Nil: no pod does. It must not wait for the API server.
	ClaimsGPU func(*corev1.Pod) bool
}

// Kinds are the kinds of owners that Muster manages.
func Kinds(o Options) []Kind {
	kinds := []Kind{
		trainJobKind{o}, jobSetKind{o}, batchJobKind{o}, rayJobKind{o}, rayClusterKind{o}, replicaKind{o}, podKind{o},
		podGroupKind{o, identity.KueueGroupGVK, KueueGroupLabel}, podGroupKind{o, PodGroupGVK, PodGroupLabel},
		podGroupKind{o, NativePodGroupGVK, ""}, podGroupKind{o, identity.VolcanoGroupGVK, ""},
		newMPIJobKind(o),
	}
	return append(kinds, trainingKinds(o)...)
}

// Assembler is a Kind whose owner is no object of the API: it is put together
// from what r has, or is not found. Kind.New is of no use for it.
type Assembler interface {
	Assemble(ctx context.Context, r client.Reader, key types.NamespacedName) (client.Object, error)
}

// Versioned is a Kind whose objects have other fields in each of several API
// versions, of which a cluster serves one. New and Read take each of them.
type Versioned interface {
	// Versions are those that are read, the preferred one first.
	Versions() []schema.GroupVersionKind
}

// Parent is a Kind whose controller makes objects of other kinds that Muster
// manages, such as a JobSet or a Job, and these make pods. The pods are the
// owner's.
type Parent interface {
	// Children are the UIDs of the objects that control the pods of obj, obj
	// itself excepted, as far as they exist. r may be an informer cache.
	Children(ctx context.Context, r client.Reader, obj client.Object) ([]types.UID, error)
}

// ownedByParent says that a Job belongs to an owner of another kind, whose pods
// its pods are.
func ownedByParent(obj client.Object) bool {
	owner := metav1.GetControllerOfNoCopy(obj)
	if owner == nil {
		return false
	}
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return false
	}
	switch (schema.GroupKind{Group: gv.Group, Kind: owner.Kind}) {
	case jobset.SchemeGroupVersion.WithKind("JobSet").GroupKind(), mpiVersion.WithKind(identity.MPIJob).GroupKind(), rayJobGVK.GroupKind():
		return true
	}
	return false
}

// newJob is what can be read from any owner.
func newJob(gvk schema.GroupVersionKind, obj client.Object) *Job {
	return &Job{
		Owner: Owner{
			GroupVersionKind: gvk,
			NamespacedName:   types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()},
			UID:              obj.GetUID(),
		},
		Queue:         obj.GetLabels()[QueueLabel],
		PriorityClass: obj.GetLabels()[PriorityClassLabel],
		MaxExecTime:   maxExecTime(obj),
		Created:       obj.GetCreationTimestamp().Time,
		Deleting:      obj.GetDeletionTimestamp() != nil,
	}
}

// InQueue is a copy of obj that names the queue given.
func InQueue(obj client.Object, queue string) client.Object {
	out := obj.DeepCopyObject().(client.Object)
	labels := out.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[QueueLabel] = queue
	out.SetLabels(labels)
	return out
}

// over says that nothing can be wrong with the job any more.
func (j *Job) over() bool { return j.Finish != nil || j.Deleting }

// finish reads how a job ended from the conditions that say so.
func finish(conditions []metav1.Condition, succeeded, failed string) *Finish {
	for _, c := range conditions {
		if c.Status == metav1.ConditionTrue && (c.Type == succeeded || c.Type == failed) {
			return &Finish{Succeeded: c.Type == succeeded, Message: c.Message}
		}
	}
	return nil
}
