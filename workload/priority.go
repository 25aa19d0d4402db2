package workload

import (
	"context"
	"fmt"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
)

// Priority is the priority with which a job waits, by Kueue's rule: that of the
// WorkloadPriorityClass it names, else of the PriorityClass its pods name, else
// of the cluster's default PriorityClass, else 0. ref names the class, nil if
// none applied. A class that is named but does not exist is a reason; err means
// that reading failed and is worth another try.
func Priority(ctx context.Context, r client.Reader, job *Job) (value int32, ref *kueue.PriorityClassRef, no *reason.Reason, err error) {
	switch {
	case job.PriorityClass != "":
		var class kueue.WorkloadPriorityClass
		no, err := getClass(ctx, r, "WorkloadPriorityClass", job.PriorityClass, &class)
		if no != nil || err != nil {
			return 0, nil, no, err
		}
		return class.Value, kueue.NewWorkloadPriorityClassRef(class.Name), nil, nil
	case job.PodPriorityClass != "":
		var class schedulingv1.PriorityClass
		no, err := getClass(ctx, r, "PriorityClass", job.PodPriorityClass, &class)
		if no != nil || err != nil {
			return 0, nil, no, err
		}
		return class.Value, kueue.NewPodPriorityClassRef(class.Name), nil, nil
	}
	class, err := DefaultPriorityClass(ctx, r)
	if err != nil || class == nil {
		return 0, nil, nil, err
	}
	return class.Value, kueue.NewPodPriorityClassRef(class.Name), nil, nil
}

func getClass(ctx context.Context, r client.Reader, kind, name string, into client.Object) (*reason.Reason, error) {
	err := r.Get(ctx, client.ObjectKey{Name: name}, into)
	if apierrors.IsNotFound(err) {
		return reason.New(reason.Misconfigured, "%s %s does not exist", kind, name), nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", kind, name, err)
	}
	return nil, nil
}

// DefaultPriorityClass is the global default PriorityClass, or nil. Where a
// race made several, the API server gives pods the lowest, and so does this.
func DefaultPriorityClass(ctx context.Context, r client.Reader) (*schedulingv1.PriorityClass, error) {
	var classes schedulingv1.PriorityClassList
	if err := r.List(ctx, &classes); err != nil {
		return nil, fmt.Errorf("listing PriorityClasses: %w", err)
	}
	var lowest *schedulingv1.PriorityClass
	for i := range classes.Items {
		class := &classes.Items[i]
		if class.GlobalDefault && (lowest == nil || class.Value < lowest.Value) {
			lowest = class
		}
	}
	return lowest, nil
}
