package scheduling

import (
	"context"
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/workload"
)

// groupStatusEvery is the shortest time between two looks at the status of one
// PodGroup: its pods mostly change together.
const groupStatusEvery = time.Second

// groupPendingAfter is how long a PodGroup that has no phase yet is without one while
// its pods wait: most gangs have their nodes before, and their first phase says that.
const groupPendingAfter = 10 * time.Second

// watchGroups hears in the scheduler's own informers of the pods of PodGroups, and
// of the controllers of groups: one that waits for a pod which is not wanted any
// more hears it from nobody else.
func (j *Jobs) watchGroups(f informers.SharedInformerFactory) error {
	_, err := f.Core().V1().Pods().Informer().AddEventHandler(handler(j.memberSeen, func(pod *corev1.Pod) { j.memberSeen(nil, pod) }))
	if err != nil {
		return fmt.Errorf("watching the pods of groups: %w", err)
	}
	changed := func(namespace string, template *corev1.PodTemplateSpec) {
		if group, ok := workload.NamedGroup(namespace, template); ok {
			j.sizeChanged(group)
		}
	}
	_, err = f.Apps().V1().ReplicaSets().Informer().AddEventHandler(handler(func(old, o *appsv1.ReplicaSet) {
		if old == nil || !equality.Semantic.DeepEqual(old.Spec.Replicas, o.Spec.Replicas) {
			changed(o.Namespace, &o.Spec.Template)
		}
	}, func(o *appsv1.ReplicaSet) { changed(o.Namespace, &o.Spec.Template) }))
	if err != nil {
		return fmt.Errorf("watching ReplicaSets: %w", err)
	}
	_, err = f.Apps().V1().StatefulSets().Informer().AddEventHandler(handler(func(old, o *appsv1.StatefulSet) {
		if old == nil || !equality.Semantic.DeepEqual(old.Spec.Replicas, o.Spec.Replicas) {
			changed(o.Namespace, &o.Spec.Template)
		}
	}, func(o *appsv1.StatefulSet) { changed(o.Namespace, &o.Spec.Template) }))
	if err != nil {
		return fmt.Errorf("watching StatefulSets: %w", err)
	}
	return nil
}

// groupSources are the PodGroup objects of both APIs. What only their status says has
// no group read again.
func (j *Jobs) groupSources() []source {
	group := &unstructured.Unstructured{}
	group.SetGroupVersionKind(workload.PodGroupGVK)
	seen := func(old, o *unstructured.Unstructured) {
		owner := workload.GroupOwner(workload.PodGroupGVK, client.ObjectKeyFromObject(o))
		if old == nil || marksDiffer(old, o) || !equality.Semantic.DeepEqual(old.Object["spec"], o.Object["spec"]) {
			j.ledger.groupChanged(owner)
		}
		j.groups.AddAfter(owner.NamespacedName, groupStatusEvery)
	}
	native := func(old, o *schedulingv1beta1.PodGroup) {
		if old == nil || marksDiffer(old, o) || !equality.Semantic.DeepEqual(old.Spec, o.Spec) {
			j.ledger.groupChanged(workload.GroupOwner(workload.NativePodGroupGVK, client.ObjectKeyFromObject(o)))
		}
	}
	return []source{
		{workload.PodGroupGVK, group, handler(seen, func(o *unstructured.Unstructured) { seen(nil, o) }), notNeeded},
		{workload.NativePodGroupGVK, &schedulingv1beta1.PodGroup{}, handler(native, func(o *schedulingv1beta1.PodGroup) { native(nil, o) }), notNeeded},
	}
}

// marksDiffer says that two versions of an object differ in what is read of its
// metadata.
func marksDiffer(a, b client.Object) bool {
	return a.GetUID() != b.GetUID() || !maps.Equal(a.GetLabels(), b.GetLabels())
}

// sizeChanged takes in that a controller of a group is to have another number of
// pods.
func (j *Jobs) sizeChanged(group workload.Owner) {
	j.ledger.groupChanged(group)
	if group.GroupVersionKind == workload.PodGroupGVK {
		j.groups.AddAfter(group.NamespacedName, groupStatusEvery)
	}
}

// memberSeen has the status of a PodGroup looked at when a pod of it comes, goes,
// or is in another phase or on a node. old is nil for one that comes or has gone.
func (j *Jobs) memberSeen(old, pod *corev1.Pod) {
	if old != nil && !countsOtherwise(old, pod) {
		return
	}
	for _, p := range []*corev1.Pod{old, pod} {
		if p != nil && p.Labels[workload.PodGroupLabel] != "" {
			j.groups.AddAfter(types.NamespacedName{Namespace: p.Namespace, Name: p.Labels[workload.PodGroupLabel]}, groupStatusEvery)
		}
	}
}

// countsOtherwise says that a pod counts otherwise in its PodGroup than before.
func countsOtherwise(old, pod *corev1.Pod) bool {
	return old.Status.Phase != pod.Status.Phase || old.Spec.NodeName != pod.Spec.NodeName ||
		(old.DeletionTimestamp == nil) != (pod.DeletionTimestamp == nil) ||
		old.Labels[workload.PodGroupLabel] != pod.Labels[workload.PodGroupLabel]
}

// groupSaid is what was written last as the status of a PodGroup.
type groupSaid struct {
	// waits is since when it was seen to have no phase, and pods that wait.
	waits  time.Time
	status map[string]any
	// version is the resource version that the object got by it.
	version string
}

// writeGroupStatus keeps the status of a PodGroup of scheduling.x-k8s.io true to
// its pods. What was written once is not written again before its pods have changed:
// the controller of the API may run too, and say something else.
func (j *Jobs) writeGroupStatus(ctx context.Context, key types.NamespacedName) error {
	have, want, err := workload.PodGroupStatus(ctx, j.groupReader(), workload.Options{SchedulerNames: j.served}, key, j.clock.Now())
	if err != nil {
		return err
	}
	if have == nil {
		delete(j.groupsSaid, key)
	}
	said := j.groupsSaid[key]
	if want == nil || olderVersion(have.GetResourceVersion(), said.version) {
		// What was written last is still to be heard of; then it is looked at again.
		return nil
	}
	if _, found, _ := unstructured.NestedString(have.Object, "status", "phase"); !found && j.startsSoon(key, want) {
		return nil
	}
	status, _, _ := unstructured.NestedMap(want.Object, "status")
	// That is when it was said.
	delete(status, "scheduleStartTime")
	if equality.Semantic.DeepEqual(said.status, status) {
		return nil
	}
	// Where the definition has no status of its own, there is nothing to keep.
	if err := j.client.Status().Patch(ctx, want, client.MergeFrom(have)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of PodGroup %s: %w", key, err)
	}
	put(&j.groupsSaid, key, groupSaid{status: status, version: want.GetResourceVersion()})
	return nil
}

// startsSoon says that a PodGroup without a phase may still start before it is worth a
// write that its pods wait. Then it is looked at again.
func (j *Jobs) startsSoon(key types.NamespacedName, want *unstructured.Unstructured) bool {
	if phase, _, _ := unstructured.NestedString(want.Object, "status", "phase"); phase != workload.GroupPending {
		return false
	}
	now, said := j.clock.Now(), j.groupsSaid[key]
	if said.waits.IsZero() {
		said.waits = now
		put(&j.groupsSaid, key, said)
	}
	left := groupPendingAfter - now.Sub(said.waits)
	if left > 0 {
		j.groups.AddAfter(key, left)
	}
	return left > 0
}
