package scheduling

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// keepQueueFinalizers keeps ClusterQueues that have charges, and flavors that
// ClusterQueues name, from going at once when they are deleted: as Kueue does, by
// its finalizer. queues are the counts of the Ledger, which knows of a deletion
// before it is told here that nothing is charged any more.
func (r *reporter) keepQueueFinalizers(ctx context.Context, queues map[string]*count) error {
	cqs := &kueue.ClusterQueueList{}
	if err := r.reader.List(ctx, cqs); err != nil {
		return fmt.Errorf("listing ClusterQueues: %w", err)
	}
	named := map[string]bool{}
	var first error
	keep := func(err error) {
		if err != nil && first == nil {
			first = err
		}
	}
	for i := range cqs.Items {
		cq := &cqs.Items[i]
		for _, group := range cq.Spec.ResourceGroups {
			for _, flavor := range group.Flavors {
				named[string(flavor.Name)] = true
			}
		}
		n := queues[cq.Name]
		inUse := n == nil || n.reserving > 0 || n.active.Reason != kueue.ClusterQueueActiveReasonTerminating
		keep(r.keepFinalizer(ctx, cq, "ClusterQueue", inUse))
	}
	flavors := &kueue.ResourceFlavorList{}
	if err := r.reader.List(ctx, flavors); err != nil {
		return fmt.Errorf("listing ResourceFlavors: %w", err)
	}
	for i := range flavors.Items {
		flavor := &flavors.Items[i]
		keep(r.keepFinalizer(ctx, flavor, "ResourceFlavor", named[flavor.Name]))
	}
	return first
}

// keepFinalizer gives an object Kueue's finalizer, and takes it off one that is
// being deleted and is not in use.
func (r *reporter) keepFinalizer(ctx context.Context, obj client.Object, kind string, inUse bool) error {
	has := slices.Contains(obj.GetFinalizers(), kueue.ResourceInUseFinalizerName)
	deleting := obj.GetDeletionTimestamp() != nil
	if deleting && has && !inUse {
		return takeFinalizerOff(ctx, r.client, obj, kind)
	}
	if deleting || has {
		return nil
	}
	want := partial(obj, kind)
	want.Finalizers = append(slices.Clone(want.Finalizers), kueue.ResourceInUseFinalizerName)
	return patchFinalizers(ctx, r.client, partial(obj, kind), want)
}

func takeFinalizerOff(ctx context.Context, c client.Client, obj client.Object, kind string) error {
	want := partial(obj, kind)
	want.Finalizers = slices.DeleteFunc(slices.Clone(want.Finalizers), func(f string) bool { return f == kueue.ResourceInUseFinalizerName })
	return patchFinalizers(ctx, c, partial(obj, kind), want)
}

// patchFinalizers replaces a list, so it is made on the newest object or not at
// all: then a newer one will be told of.
func patchFinalizers(ctx context.Context, c client.Client, had, want *metav1.PartialObjectMetadata) error {
	err := c.Patch(ctx, want, client.MergeFromWithOptions(had, client.MergeFromWithOptimisticLock{}))
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("changing the finalizers of %s %s: %w", want.Kind, client.ObjectKeyFromObject(want), err)
}

// partial is an object without all that its finalizers have nothing to do with.
func partial(obj client.Object, kind string) *metav1.PartialObjectMetadata {
	out := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(),
		ResourceVersion: obj.GetResourceVersion(), Finalizers: obj.GetFinalizers(),
	}}
	out.SetGroupVersionKind(schema.GroupVersionKind{Group: kueue.SchemeGroupVersion.Group, Version: kueue.SchemeGroupVersion.Version, Kind: kind})
	return out
}

// whileKueueLives is when a Workload is looked at again that is Kueue's for now.
const whileKueueLives = 10 * time.Second

// letWorkloadGo takes the finalizer off a deleted Workload, which Kueue has put on
// it. Where Muster decides nothing waits for a Workload: a job whose Workload has
// gone is stopped.
func (j *Jobs) letWorkloadGo(ctx context.Context, key types.NamespacedName) error {
	if j.ledger.followsKueue() {
		j.deletions.AddAfter(key, whileKueueLives)
		return nil
	}
	wl := &kueue.Workload{}
	err := j.client.Get(ctx, key, wl)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading Workload %s: %w", key, err)
	case !goesWithFinalizer(wl):
		return nil
	}
	return takeFinalizerOff(ctx, j.client, wl, "Workload")
}

// goesWithFinalizer says that a Workload is deleted, and has Kueue's finalizer.
func goesWithFinalizer(wl *kueue.Workload) bool {
	return wl.DeletionTimestamp != nil && slices.Contains(wl.Finalizers, kueue.ResourceInUseFinalizerName)
}
