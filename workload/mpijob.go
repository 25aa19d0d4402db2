package workload

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload/identity"
)

const (
	// mpiManager is the controller of the kind's version v2beta1, and the Training
	// Operator that of v1.
	mpiManager         = identity.TrainingGroup + "/" + identity.MPIOperator
	waitForWorkerReady = "WaitForWorkersReady"
)

var mpiVersion = schema.GroupVersion{Group: identity.TrainingGroup, Version: "v2beta1"}

// mpiJobKind is an MPIJob, of whichever of its two operators a cluster has: the
// two share one definition, so they cannot be there together.
type mpiJobKind struct{ trainingKind }

var (
	_ Kind      = mpiJobKind{}
	_ Versioned = mpiJobKind{}
	_ Parent    = mpiJobKind{}
)

func newMPIJobKind(o Options) mpiJobKind {
	return mpiJobKind{trainingKind{o, identity.MPIJob, "mpiReplicaSpecs", []string{identity.MPILauncher, "Worker"}}}
}

// Versions implements Versioned. Kueue knows the first of them only.
func (mpiJobKind) Versions() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{mpiVersion.WithKind(identity.MPIJob), trainingVersion.WithKind(identity.MPIJob)}
}

// Read implements Kind. r must know batch Jobs.
func (k mpiJobKind) Read(ctx context.Context, r client.Reader, obj client.Object) (*Job, bool, *reason.Reason, error) {
	if obj.GetObjectKind().GroupVersionKind().Version != mpiVersion.Version {
		return k.trainingKind.Read(ctx, r, obj)
	}
	t, err := k.open(obj)
	if err != nil {
		return nil, false, nil, err
	}
	if t.GetLabels()[QueueLabel] == "" || foreignManager(t.managedBy(), mpiManager) {
		return nil, false, nil, nil
	}
	job, no := k.read(t)
	launcherWorks, _, _ := unstructured.NestedBool(t.Object, "spec", "runLauncherAsWorker")
	launcherWaits := t.str("spec", "launcherCreationPolicy") == waitForWorkerReady
	for i := range job.PodSets {
		set := &job.PodSets[i]
		for n := range t.replicas {
			if t.replicas[n].podSet() == set.Name {
				set.Stamp = mpiStamp(t.GetName(), &t.replicas[n], launcherWorks)
				if t.replicas[n].kind == identity.MPILauncher && launcherWaits && len(job.PodSets) > 1 {
					set.Phase = 1
				}
			}
		}
	}
	job.OtherPodOwners, err = k.Children(ctx, r, t)
	if err != nil {
		return job, true, nil, err
	}
	return job, true, no, nil
}

// Children implements Parent: the launcher's Job. In version v1 the launcher is
// a pod of the MPIJob itself.
func (k mpiJobKind) Children(ctx context.Context, r client.Reader, obj client.Object) ([]types.UID, error) {
	if obj.GetObjectKind().GroupVersionKind().Version != mpiVersion.Version {
		return nil, nil
	}
	b := &batchv1.Job{}
	err := r.Get(ctx, client.ObjectKey{Namespace: obj.GetNamespace(), Name: identity.LauncherJob(obj.GetName())}, b)
	switch {
	case apierrors.IsNotFound(err), apimeta.IsNoMatchError(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the launcher's Job of MPIJob %s/%s: %w", obj.GetNamespace(), obj.GetName(), err)
	}
	if !metav1.IsControlledBy(b, obj) {
		return nil, nil
	}
	return []types.UID{b.UID}, nil
}
