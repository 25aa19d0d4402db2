package workload

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The phases of a PodGroup of scheduling.x-k8s.io, with the meanings that its
// API gives them.
const (
	// GroupPending: pods are missing, or none has a node.
	GroupPending = "Pending"
	// groupScheduling: pods are on nodes, and too few of them run.
	groupScheduling = "Scheduling"
	// groupRunning: as many pods as are needed run, or have succeeded.
	groupRunning = "Running"
	// groupFinished: as many have succeeded.
	groupFinished = "Finished"
	// groupFailed: pods have failed, and there are no others in their place.
	groupFailed = "Failed"
)

// PodGroupStatus is a PodGroup of scheduling.x-k8s.io as r has it, and a copy with
// the status that its pods give it at the time given, which is nil where the object
// is up to date. Both are nil where the object is gone, or has neither a queue nor
// a pod that names one of Muster's schedulers. r must know pods, ReplicaSets and
// StatefulSets, and PodGroups and the v1 Training Operator's jobs as unstructured.
func PodGroupStatus(ctx context.Context, r client.Reader, o Options, key types.NamespacedName, now time.Time) (have, want *unstructured.Unstructured, err error) {
	have = &unstructured.Unstructured{}
	have.SetGroupVersionKind(PodGroupGVK)
	switch err := r.Get(ctx, key, have); {
	case apierrors.IsNotFound(err), apimeta.IsNoMatchError(err):
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("reading PodGroup %s: %w", key, err)
	}
	g := &PodGroup{}
	g.Namespace, g.Name = key.Namespace, key.Name
	g.MinMember, _, _ = unstructured.NestedInt64(have.Object, "spec", "minMember")
	var list corev1.PodList
	if err := r.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingLabels{PodGroupLabel: key.Name}); err != nil {
		return nil, nil, fmt.Errorf("listing the pods of PodGroup %s: %w", key, err)
	}
	ours := have.GetLabels()[QueueLabel] != ""
	for i := range list.Items {
		g.Pods = append(g.Pods, &list.Items[i])
		ours = ours || o.SchedulerNames.Has(list.Items[i].Spec.SchedulerName)
	}
	if !ours {
		return nil, nil, nil
	}
	if err := g.readControllers(ctx, r); err != nil {
		return nil, nil, err
	}
	want = have.DeepCopy()
	status, _, _ := unstructured.NestedMap(have.Object, "status")
	if err := unstructured.SetNestedMap(want.Object, g.tally().status(status, now), "status"); err != nil {
		return nil, nil, fmt.Errorf("PodGroup %s: %w", key, err)
	}
	if equality.Semantic.DeepEqual(have.Object["status"], want.Object["status"]) {
		return have, nil, nil
	}
	return have, want, nil
}

// tally is the pods of a group, counted.
type tally struct {
	// needed is how many there must be.
	needed                     int64
	running, succeeded, failed int64
	// there are pods that have not failed and stay, placed those of them that are
	// on nodes and have not ended; live are all that have not ended.
	there, placed, live int64
	// owners are the names of the pods' owners, with their namespace.
	owners []string
}

func (g *PodGroup) tally() tally {
	t := tally{needed: max(g.expected(), 1)}
	owners := map[string]struct{}{}
	for _, pod := range g.Pods {
		for _, ref := range pod.OwnerReferences {
			owners[pod.Namespace+"/"+ref.Name] = struct{}{}
		}
		switch {
		case pod.Status.Phase == corev1.PodSucceeded:
			t.succeeded++
			t.there++
			continue
		case pod.Status.Phase == corev1.PodFailed:
			t.failed++
			continue
		}
		t.live++
		if pod.DeletionTimestamp != nil {
			continue
		}
		t.there++
		if pod.Spec.NodeName != "" {
			t.placed++
		}
		if pod.Status.Phase == corev1.PodRunning {
			t.running++
		}
	}
	t.owners = slices.Sorted(maps.Keys(owners))
	return t
}

// phase is the group's phase, before is what it was. What has ended stays so as
// long as no other pods come: its own may be deleted.
func (t tally) phase(before string) string {
	switch {
	case t.live == 0 && (before == groupFinished || before == groupFailed):
		return before
	case t.succeeded >= t.needed:
		return groupFinished
	case t.succeeded+t.running >= t.needed:
		return groupRunning
	case t.failed > 0 && t.there < t.needed && t.failed+t.there >= t.needed:
		return groupFailed
	case t.placed > 0:
		return groupScheduling
	}
	return GroupPending
}

// status is the status of the group, which was said before. Of a group that has
// ended and has no pods any more it stays.
func (t tally) status(said map[string]any, now time.Time) map[string]any {
	before, _ := said["phase"].(string)
	phase := t.phase(before)
	if ended := phase == groupFinished || phase == groupFailed; ended && t.live+t.succeeded+t.failed == 0 {
		return said
	}
	out := maps.Clone(said)
	if out == nil {
		out = map[string]any{}
	}
	out["phase"] = phase
	for field, n := range map[string]int64{"running": t.running, "succeeded": t.succeeded, "failed": t.failed} {
		if out[field] != nil || n > 0 {
			out[field] = n
		}
	}
	if len(t.owners) > 0 {
		out["occupiedBy"] = strings.Join(t.owners, ",")
	}
	if phase == groupScheduling && before != groupScheduling {
		out["scheduleStartTime"] = now.UTC().Format(time.RFC3339)
	}
	return out
}
