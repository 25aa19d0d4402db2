package scheduling

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/quota"
)

// writeClusterQueue writes the counts, the use and the Active condition of a
// ClusterQueue, if they changed.
func (r *reporter) writeClusterQueue(ctx context.Context, name string, n *count) error {
	cq := &kueue.ClusterQueue{}
	if err := r.reader.Get(ctx, client.ObjectKey{Name: name}, cq); err != nil {
		return client.IgnoreNotFound(err)
	}
	want := cq.DeepCopy()
	want.Status.PendingWorkloads, want.Status.ReservingWorkloads, want.Status.AdmittedWorkloads = n.pending, n.reserving, n.admitted
	want.Status.FlavorsReservation, want.Status.FlavorsUsage = nil, nil
	for _, group := range cq.Spec.ResourceGroups {
		for _, f := range group.Flavors {
			reserved, used := kueue.FlavorUsage{Name: f.Name}, kueue.FlavorUsage{Name: f.Name}
			for _, res := range f.Resources {
				reserved.Resources = append(reserved.Resources, kueue.ResourceUsage{Name: res.Name, Total: n.total(n.reserved, f.Name, res.Name)})
				used.Resources = append(used.Resources, kueue.ResourceUsage{Name: res.Name, Total: n.total(n.used, f.Name, res.Name)})
			}
			want.Status.FlavorsReservation = append(want.Status.FlavorsReservation, reserved)
			want.Status.FlavorsUsage = append(want.Status.FlavorsUsage, used)
		}
	}
	if n.known {
		n.active.ObservedGeneration = cq.Generation
		apimeta.SetStatusCondition(&want.Status.Conditions, n.active)
	}
	if equality.Semantic.DeepEqual(want.Status, cq.Status) {
		return nil
	}
	if err := r.client.Status().Patch(ctx, want, client.MergeFrom(cq)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of ClusterQueue %s: %w", name, err)
	}
	return nil
}

// writeLocalQueue does the same for a LocalQueue.
func (r *reporter) writeLocalQueue(ctx context.Context, name types.NamespacedName, n *count) error {
	lq := &kueue.LocalQueue{}
	if err := r.reader.Get(ctx, name, lq); err != nil {
		return client.IgnoreNotFound(err)
	}
	want := lq.DeepCopy()
	want.Status.PendingWorkloads, want.Status.ReservingWorkloads, want.Status.AdmittedWorkloads = n.pending, n.reserving, n.admitted
	want.Status.FlavorsReservation, want.Status.FlavorsUsage = nil, nil
	cq := &kueue.ClusterQueue{}
	if err := r.reader.Get(ctx, client.ObjectKey{Name: string(lq.Spec.ClusterQueue)}, cq); client.IgnoreNotFound(err) != nil {
		return err
	}
	for _, group := range cq.Spec.ResourceGroups {
		for _, f := range group.Flavors {
			reserved, used := kueue.LocalQueueFlavorUsage{Name: f.Name}, kueue.LocalQueueFlavorUsage{Name: f.Name}
			for _, res := range f.Resources {
				reserved.Resources = append(reserved.Resources, kueue.LocalQueueResourceUsage{Name: res.Name, Total: n.total(n.reserved, f.Name, res.Name)})
				used.Resources = append(used.Resources, kueue.LocalQueueResourceUsage{Name: res.Name, Total: n.total(n.used, f.Name, res.Name)})
			}
			want.Status.FlavorsReservation = append(want.Status.FlavorsReservation, reserved)
			want.Status.FlavorsUsage = append(want.Status.FlavorsUsage, used)
		}
	}
	if n.known {
		n.active.ObservedGeneration = lq.Generation
		apimeta.SetStatusCondition(&want.Status.Conditions, n.active)
	}
	if equality.Semantic.DeepEqual(want.Status, lq.Status) {
		return nil
	}
	if err := r.client.Status().Patch(ctx, want, client.MergeFrom(lq)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of LocalQueue %s: %w", name, err)
	}
	return nil
}

func (n *count) total(of map[string]map[corev1.ResourceName]int64, flavor kueue.ResourceFlavorReference, name corev1.ResourceName) resource.Quantity {
	return quota.Quantity(name, of[string(flavor)][name])
}
