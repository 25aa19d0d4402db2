package workload

import (
	"context"
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// ErrStillActive is returned (wrapped) by Restore while objects cannot be
// restored because their own controllers have not stopped them yet.
var ErrStillActive = errors.New("its controllers have not stopped it yet")

// Restorer is a Kind of which more than the owner itself remembers what the
// last Resume injected: what its controllers have made is not made anew, and a
// later Resume only adds to it.
type Restorer interface {
	// Restore takes out what was injected. It is called when the owner has been
	// suspended and its pods have gone, and before it is admitted again.
	Restore(ctx context.Context, c client.Client, obj client.Object) error
}

var (
	_ Restorer = jobSetKind{}
	_ Restorer = trainJobKind{}
)

// Restore implements Restorer.
func (jobSetKind) Restore(ctx context.Context, c client.Client, obj client.Object) error {
	js, err := asJobSet(obj)
	if err != nil {
		return err
	}
	if err := restoreChildJobs(ctx, c, js); err != nil {
		return fmt.Errorf("restoring JobSet %s/%s: %w", js.Namespace, js.Name, err)
	}
	return nil
}

// Restore implements Restorer.
func (trainJobKind) Restore(ctx context.Context, c client.Client, obj client.Object) error {
	t, err := asTrainJob(obj)
	if err != nil {
		return err
	}
	js, no, err := childJobSet(ctx, c, t)
	if err != nil || no != nil {
		// There is nothing to restore.
		return client.IgnoreNotFound(err)
	}
	if err := restoreChildJobs(ctx, c, js); err != nil {
		return fmt.Errorf("restoring TrainJob %s/%s: %w", t.GetNamespace(), t.GetName(), err)
	}
	return nil
}

// restoreChildJobs turns the templates of a JobSet's Jobs back into what they
// were without an injection. JobSet keeps the Jobs while it is suspended, and
// merges its own template into theirs when it is resumed: node selectors and
// tolerations of an earlier flavor would stay.
func restoreChildJobs(ctx context.Context, c client.Client, js *jobset.JobSet) error {
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
		taken, err := restore(template)
		if err != nil {
			return fmt.Errorf("Job %s: %w", b.Name, err)
		}
		if taken.empty() {
			continue
		}
		if !ptr.Deref(b.Spec.Suspend, false) || b.Status.Active > 0 {
			return fmt.Errorf("Job %s: %w", b.Name, ErrStillActive)
		}
		if err := changeTemplate(ctx, c, b, template, true); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("Job %s: %w", b.Name, err)
		}
	}
	return nil
}
