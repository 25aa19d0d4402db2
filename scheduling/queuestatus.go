package scheduling

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	s := &want.Status
	s.PendingWorkloads, s.ReservingWorkloads, s.AdmittedWorkloads = n.pending, n.reserving, n.admitted
	s.FlavorsReservation, s.FlavorsUsage = n.reserved.of(cq), n.used.of(cq)
	s.FairSharing = n.share
	n.setActive(&s.Conditions, cq.Generation)
	if equality.Semantic.DeepEqual(want.Status, cq.Status) {
		return nil
	}
	had := cq.DeepCopy()
	if len(had.Status.Conditions) == 0 {
		unsaid(&had.Status.PendingWorkloads, &had.Status.ReservingWorkloads, &had.Status.AdmittedWorkloads)
	}
	if err := r.client.Status().Patch(ctx, want, client.MergeFrom(had)); client.IgnoreNotFound(err) != nil {
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
	cq := &kueue.ClusterQueue{}
	if err := r.reader.Get(ctx, client.ObjectKey{Name: string(lq.Spec.ClusterQueue)}, cq); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the ClusterQueue of LocalQueue %s: %w", name, err)
	}
	want := lq.DeepCopy()
	s := &want.Status
	s.PendingWorkloads, s.ReservingWorkloads, s.AdmittedWorkloads = n.pending, n.reserving, n.admitted
	s.FlavorsReservation, s.FlavorsUsage = local(n.reserved.of(cq)), local(n.used.of(cq))
	n.setActive(&s.Conditions, lq.Generation)
	if equality.Semantic.DeepEqual(want.Status, lq.Status) {
		return nil
	}
	had := lq.DeepCopy()
	if len(had.Status.Conditions) == 0 {
		unsaid(&had.Status.PendingWorkloads, &had.Status.ReservingWorkloads, &had.Status.AdmittedWorkloads)
	}
	if err := r.client.Status().Patch(ctx, want, client.MergeFrom(had)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of LocalQueue %s: %w", name, err)
	}
	return nil
}

// unsaid marks the counts of a status that was never written, so that a patch
// says them also where they are 0: Kueue always does, and kubectl prints a blank
// otherwise.
func unsaid(counts ...*int32) {
	for _, c := range counts {
		*c = -1
	}
}

func (n *count) setActive(conditions *[]metav1.Condition, generation int64) {
	if n.known {
		n.active.ObservedGeneration = generation
		apimeta.SetStatusCondition(conditions, n.active)
	}
}

// taken is an amount by flavor and resource.
type taken map[string]map[corev1.ResourceName]int64

func (t taken) add(e *entry) {
	if e.assignment == nil {
		return
	}
	for cell, v := range e.assignment.Usage {
		if t[cell.Flavor] == nil {
			t[cell.Flavor] = map[corev1.ResourceName]int64{}
		}
		t[cell.Flavor][cell.Resource] += v
	}
}

// of is what is taken of a ClusterQueue, every cell of its quota listed. Above
// its nominal quota it is borrowed, if there is a cohort to borrow from. A flavor of
// several groups is listed once, and so is a resource: the API refuses a status in which
// one name comes twice.
func (t taken) of(cq *kueue.ClusterQueue) []kueue.FlavorUsage {
	var out []kueue.FlavorUsage
	at := map[kueue.ResourceFlavorReference]int{}
	for _, group := range cq.Spec.ResourceGroups {
		for _, f := range group.Flavors {
			i, listed := at[f.Name]
			if !listed {
				i = len(out)
				at[f.Name], out = i, append(out, kueue.FlavorUsage{Name: f.Name})
			}
			usage := &out[i]
			for _, res := range f.Resources {
				if slices.ContainsFunc(usage.Resources, func(u kueue.ResourceUsage) bool { return u.Name == res.Name }) {
					continue
				}
				used := kueue.ResourceUsage{Name: res.Name, Total: quota.Quantity(res.Name, t[string(f.Name)][res.Name])}
				if cq.Spec.CohortName != "" && used.Total.Cmp(res.NominalQuota) > 0 {
					used.Borrowed = used.Total.DeepCopy()
					used.Borrowed.Sub(res.NominalQuota)
				}
				usage.Resources = append(usage.Resources, used)
			}
		}
	}
	return out
}

// local is usage in the form of a LocalQueue's status.
func local(usage []kueue.FlavorUsage) []kueue.LocalQueueFlavorUsage {
	var out []kueue.LocalQueueFlavorUsage
	for _, u := range usage {
		l := kueue.LocalQueueFlavorUsage{Name: u.Name}
		for _, res := range u.Resources {
			l.Resources = append(l.Resources, kueue.LocalQueueResourceUsage{Name: res.Name, Total: res.Total})
		}
		out = append(out, l)
	}
	return out
}
