package workload

import (
	"context"
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// ErrStillActive is returned (wrapped) by Restore while objects cannot be
// restored because their own controllers have not stopped them yet.
var ErrStillActive = errors.New("its controllers have not stopped it yet")

// Restorer is a Kind of which the templates, or what its controllers have made of
// them, remember what was injected for the last admission, so that a later Resume
// would only add to it.
type Restorer interface {
	// Restore takes out what was injected, by Muster where that does not go by
	// itself, and by Kueue. It is called when the owner has been suspended and its
	// pods have gone, and before it is admitted again. admitted are the pod sets of
	// its Workload.
	Restore(ctx context.Context, c client.Client, obj client.Object, admitted []kueue.PodSet) error
}

var (
	_ Restorer = jobSetKind{}
	_ Restorer = trainJobKind{}
	_ Restorer = batchJobKind{}
	_ Restorer = trainingKind{}
	_ Restorer = mpiJobKind{}
	_ Restorer = rayClusterKind{}
	_ Restorer = rayJobKind{}
)

// Restore implements Restorer.
func (jobSetKind) Restore(ctx context.Context, c client.Client, obj client.Object, admitted []kueue.PodSet) error {
	js, err := asJobSet(obj)
	if err != nil {
		return err
	}
	if err := restoreChildJobs(ctx, c, js, admitted); err != nil {
		return fmt.Errorf("restoring JobSet %s/%s: %w", js.Namespace, js.Name, err)
	}
	want := js.DeepCopy()
	for i := range want.Spec.ReplicatedJobs {
		template := &want.Spec.ReplicatedJobs[i].Template.Spec.Template
		kueuesPart(template, want.Spec.ReplicatedJobs[i].Name, admitted).takeOut(template)
	}
	if err := patchJobSet(ctx, c, js, want); err != nil {
		return fmt.Errorf("restoring JobSet %s/%s: %w", js.Namespace, js.Name, err)
	}
	return nil
}

// Restore implements Restorer.
func (trainJobKind) Restore(ctx context.Context, c client.Client, obj client.Object, admitted []kueue.PodSet) error {
	t, err := asTrainJob(obj)
	if err != nil {
		return err
	}
	js, no, err := childJobSet(ctx, c, t)
	if err != nil || no != nil {
		// There is nothing to restore.
		return client.IgnoreNotFound(err)
	}
	err = restoreChildJobs(ctx, c, js, admitted)
	if err == nil {
		err = emptyKueuesPatch(ctx, c, t)
	}
	if err != nil {
		return fmt.Errorf("restoring TrainJob %s/%s: %w", t.GetNamespace(), t.GetName(), err)
	}
	return nil
}

// restoreChildJobs turns the templates of a JobSet's Jobs back into what they
// were without an injection. JobSet keeps the Jobs while it is suspended, and
// merges its own template into theirs when it is resumed: node selectors and
// tolerations of an earlier flavor would stay.
func restoreChildJobs(ctx context.Context, c client.Client, js *jobset.JobSet, admitted []kueue.PodSet) error {
	kueues := map[string]*injection{}
	for i := range js.Spec.ReplicatedJobs {
		rj := &js.Spec.ReplicatedJobs[i]
		kueues[rj.Name] = kueuesPart(&rj.Template.Spec.Template, rj.Name, admitted)
	}
	var jobs batchv1.JobList
	err := c.List(ctx, &jobs, client.InNamespace(js.Namespace), client.MatchingLabels{jobset.JobSetNameKey: js.Name})
	if err != nil {
		return fmt.Errorf("listing its Jobs: %w", err)
	}
	for i := range jobs.Items {
		b := &jobs.Items[i]
		if !metav1.IsControlledBy(b, js) || b.DeletionTimestamp != nil || batchJobFinish(b) != nil {
			continue
		}
		template := b.Spec.Template.DeepCopy()
		if _, err := restore(template); err != nil {
			return fmt.Errorf("Job %s: %w", b.Name, err)
		}
		if in := kueues[b.Labels[jobset.ReplicatedJobNameKey]]; in != nil {
			in.takeOut(template)
		}
		if equality.Semantic.DeepEqual(&b.Spec.Template, template) {
			continue
		}
		if !still(b) {
			return fmt.Errorf("Job %s: %w", b.Name, ErrStillActive)
		}
		if err := changeTemplate(ctx, c, b, template, true); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("Job %s: %w", b.Name, err)
		}
	}
	return nil
}

// still says that a Job is suspended and has no pods.
func still(b *batchv1.Job) bool { return ptr.Deref(b.Spec.Suspend, false) && b.Status.Active == 0 }
