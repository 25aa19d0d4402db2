package rendering

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload"
)

// additions reads what is added to the pods of a template in a namespace. The
// error is a *reason.Reason where the template names something that does not
// exist, so that its pods could not be created.
func (r *Renderer) additions(ctx context.Context, namespace string, t *corev1.PodTemplateSpec) (Additions, error) {
	var add Additions
	var ranges corev1.LimitRangeList
	if err := r.reader.List(ctx, &ranges, client.InNamespace(namespace)); err != nil {
		return add, fmt.Errorf("listing the LimitRanges of namespace %s: %w", namespace, err)
	}
	// The API server applies them in no fixed order; the same every time is
	// what two equal jobs need.
	add.LimitRanges = ranges.Items
	slices.SortFunc(add.LimitRanges, func(a, b corev1.LimitRange) int { return cmp.Compare(a.Name, b.Name) })
	if name := t.Spec.RuntimeClassName; name != nil {
		add.RuntimeClass = &nodev1.RuntimeClass{}
		if err := r.named(ctx, "RuntimeClass", *name, add.RuntimeClass); err != nil {
			return add, err
		}
	}
	if name := t.Spec.PriorityClassName; name != "" {
		add.PriorityClass = &schedulingv1.PriorityClass{}
		return add, r.named(ctx, "PriorityClass", name, add.PriorityClass)
	}
	var err error
	add.PriorityClass, err = workload.DefaultPriorityClass(ctx, r.reader)
	return add, err
}

func (r *Renderer) named(ctx context.Context, kind, name string, into client.Object) error {
	err := r.reader.Get(ctx, client.ObjectKey{Name: name}, into)
	if apierrors.IsNotFound(err) {
		return reason.New(reason.Misconfigured, "%s %s, which its pods name, does not exist", kind, name)
	}
	if err != nil {
		return fmt.Errorf("reading %s %s: %w", kind, name, err)
	}
	return nil
}
