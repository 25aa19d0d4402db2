package workload

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-gpu/muster/api/reason"
)

// trainJobKind is a Kubeflow TrainJob. What pods it makes is known from its
// child, the JobSet that the Trainer renders from the job's runtime.
type trainJobKind struct{ Options }

var (
	_ Kind   = trainJobKind{}
	_ Parent = trainJobKind{}
)

func (trainJobKind) GroupVersionKind() schema.GroupVersionKind {
	return trainerVersion.WithKind("TrainJob")
}

func (k trainJobKind) New() client.Object {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(k.GroupVersionKind())
	return u
}

// Read implements Kind. r must know JobSets, and the metadata of
// TrainingRuntimes and ClusterTrainingRuntimes.
func (k trainJobKind) Read(ctx context.Context, r client.Reader, obj client.Object) (*Job, bool, *reason.Reason, error) {
	t, err := asTrainJob(obj)
	if err != nil {
		return nil, false, nil, err
	}
	if t.GetLabels()[QueueLabel] == "" || foreignManager(t.managedBy(), trainJobController) {
		return nil, false, nil, nil
	}
	job := newJob(k.GroupVersionKind(), t)
	job.Suspended = t.suspended()
	job.TimeLimit = t.timeLimit()
	var unsupported *reason.Reason
	job.Finish, unsupported = trainJobFinish(t)

	js, no, err := childJobSet(ctx, r, t)
	if err != nil {
		return job, true, nil, err
	}
	if js != nil {
		no = readJobSet(job, js, k.Options, "delete the suspended JobSet to have the Trainer make it anew")
	}
	if job.over() {
		return job, true, nil, nil
	}
	if unsupported != nil {
		return job, true, unsupported, nil
	}
	// The Trainer reads its runtime from a snapshot once there is a JobSet, but
	// its webhook refuses every update of a job whose runtime is gone, so that
	// a suspended job cannot start. A running one is left alone.
	if js == nil || job.Suspended {
		missing, err := missingRuntime(ctx, r, t)
		if missing != nil || err != nil {
			return job, true, missing, err
		}
	}
	return job, true, no, nil
}

// Children implements Parent: the JobSet.
func (k trainJobKind) Children(ctx context.Context, r client.Reader, obj client.Object) ([]types.UID, error) {
	t, err := asTrainJob(obj)
	if err != nil {
		return nil, err
	}
	js, no, err := childJobSet(ctx, r, t)
	switch {
	case apimeta.IsNoMatchError(err), err == nil && no != nil:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return []types.UID{js.UID}, nil
}

// trainJobFinish reads how the job ended. The Trainer writes Failed also for a
// kind of runtime that it does not know, and takes it back when it does.
func trainJobFinish(t trainJob) (*Finish, *reason.Reason) {
	conditions := t.conditions()
	for _, c := range conditions {
		if c.Type == trainJobFailed && c.Status == metav1.ConditionTrue && c.Reason == runtimeNotSupported {
			return nil, reason.New(reason.Misconfigured, "the Trainer does not take its runtime: %s", c.Message)
		}
	}
	return finish(conditions, trainJobComplete, trainJobFailed), nil
}

// childJobSet is the JobSet that the Trainer made for the job. Where there is
// none, no says what is waited for.
func childJobSet(ctx context.Context, r client.Reader, t trainJob) (*jobset.JobSet, *reason.Reason, error) {
	js := &jobset.JobSet{}
	err := r.Get(ctx, client.ObjectKey{Namespace: t.GetNamespace(), Name: t.GetName()}, js)
	if apierrors.IsNotFound(err) {
		return nil, reason.New(reason.WaitingForPodTemplates, "waiting for the Trainer to create JobSet %s", t.GetName()), nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading JobSet %s/%s: %w", t.GetNamespace(), t.GetName(), err)
	}
	if owner := metav1.GetControllerOfNoCopy(js); owner == nil || owner.UID != t.GetUID() {
		if owner != nil && isTrainJob(owner) {
			return nil, reason.New(reason.WaitingForPodTemplates,
				"waiting for JobSet %s of an earlier TrainJob of the same name to go", js.Name), nil
		}
		return nil, reason.New(reason.Misconfigured,
			"JobSet %s is not the TrainJob's own, so the Trainer cannot create it", js.Name), nil
	}
	return js, nil, nil
}

// missingRuntime is the reason if the runtime that the job names does not
// exist. The Trainer's webhook refuses the creation of such a job, but a
// runtime may be deleted later, and the webhook may have been off.
func missingRuntime(ctx context.Context, r client.Reader, t trainJob) (*reason.Reason, error) {
	gk, name := t.runtimeRef()
	key, where := client.ObjectKey{Name: name}, ""
	switch gk {
	case schema.GroupKind{Group: trainerGroup, Kind: clusterRuntimeKind}:
	case schema.GroupKind{Group: trainerGroup, Kind: runtimeKind}:
		key.Namespace, where = t.GetNamespace(), " in namespace "+t.GetNamespace()
	default:
		return reason.New(reason.Misconfigured, "its runtimeRef names a %s, which is no kind of training runtime", gk), nil
	}
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(trainerVersion.WithKind(gk.Kind))
	err := r.Get(ctx, key, found)
	if apierrors.IsNotFound(err) {
		return reason.New(reason.RuntimeNotFound, "%s %s does not exist%s", gk.Kind, name, where), nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", gk.Kind, key, err)
	}
	return nil, nil
}

// Suspend implements Kind. What Resume injected stays in the job until the next
// Resume: the Trainer refuses to change it while pods are there, and Read does
// not see it.
func (trainJobKind) Suspend(ctx context.Context, c client.Client, obj client.Object) error {
	t, err := asTrainJob(obj)
	if err != nil {
		return err
	}
	if t.suspended() {
		return nil
	}
	if err := suspend(ctx, c, t.DeepCopy()); err != nil {
		return fmt.Errorf("suspending TrainJob %s/%s: %w", t.GetNamespace(), t.GetName(), err)
	}
	return nil
}

// Resume implements Kind. The infos go into Muster's own entry of
// spec.runtimePatches. The Trainer accepts that in the request that ends the
// suspension, but not while pods of an earlier run are still active; the error
// is then worth another try.
func (trainJobKind) Resume(ctx context.Context, c client.Client, obj client.Object, infos []PodSetInfo) error {
	t, err := asTrainJob(obj)
	if err != nil {
		return err
	}
	if err := resumeTrainJob(ctx, c, t, infos); err != nil {
		return fmt.Errorf("resuming TrainJob %s/%s: %w", t.GetNamespace(), t.GetName(), err)
	}
	return nil
}

func resumeTrainJob(ctx context.Context, c client.Client, t trainJob, infos []PodSetInfo) error {
	js, no, err := childJobSet(ctx, c, t)
	if err != nil {
		return err
	}
	if no != nil {
		return no
	}
	patch, err := patchFor(t, js, infos)
	if err != nil {
		return err
	}
	entries := t.patches()
	at, earlier, err := ownPatch(entries)
	if err != nil {
		return err
	}
	same := equality.Semantic.DeepEqual(earlier, patch)
	if !t.suspended() {
		if !same {
			return ErrNotSuspended
		}
		return nil
	}
	// An entry that need not change is not touched: then no pod that is still
	// active is in the way.
	change := !same || at != len(entries)-1 && patch != nil
	if change && at >= 0 && patch != nil {
		// The Trainer stamps an entry that differs from the one before it, and
		// would refuse its own stamp (see upsert); so the earlier one goes first.
		before := t
		t = t.copy()
		if entries, err = upsert(entries, at, nil); err != nil {
			return err
		}
		t.setPatches(entries)
		if err := writeTrainJob(ctx, c, t, before); err != nil {
			return err
		}
		at = -1
	}
	want := t.copy()
	want.setSuspended(false)
	if change {
		entries, err = upsert(entries, at, patch)
		if err != nil {
			return err
		}
		want.setPatches(entries)
	}
	return writeTrainJob(ctx, c, want, t)
}

// writeTrainJob writes what changed since before, unless somebody else has
// written the job meanwhile.
func writeTrainJob(ctx context.Context, c client.Client, want, before trainJob) error {
	return c.Patch(ctx, want.Unstructured, client.MergeFromWithOptions(before.Unstructured, client.MergeFromWithOptimisticLock{}))
}
