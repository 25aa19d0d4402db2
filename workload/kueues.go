package workload

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// What Kueue has added to the pod templates of a job that it started stays there
// when Muster takes over, because a running job's cannot be changed: the labels
// and tolerations of its flavors, and the gate of pods whose domain it chooses.
// The Workload has the templates as they were before.

const (
	// kueuesLabel is on every pod template that Kueue has started.
	kueuesLabel = "kueue.x-k8s.io/podset"
	// kueuesAdmissionGate keeps a pod waiting until Kueue admits it.
	kueuesAdmissionGate = "kueue.x-k8s.io/admission"
	// kueuesPatchOwner keys Kueue's entry in a TrainJob's spec.runtimePatches.
	kueuesPatchOwner = "kueue.x-k8s.io/manager"
)

// IsKueuesGate says that only Kueue lets pods with this gate be scheduled.
func IsKueuesGate(g corev1.PodSchedulingGate) bool {
	return g.Name == kueuesAdmissionGate || g.Name == kueue.TopologySchedulingGate
}

// WaitsForKueue says that a pod has one of Kueue's gates.
func WaitsForKueue(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, IsKueuesGate)
}

// Ungate takes Kueue's gates off a pod.
func Ungate(ctx context.Context, c client.Client, pod *corev1.Pod) error {
	free := pod.DeepCopy()
	free.Spec.SchedulingGates = slices.DeleteFunc(free.Spec.SchedulingGates, IsKueuesGate)
	if err := c.Patch(ctx, free, client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("taking Kueue's gate off pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// kueuesPart is what Kueue has added to a template, of which admitted has the
// original; empty where Kueue has not.
func kueuesPart(template *corev1.PodTemplateSpec, podSet string, admitted []kueue.PodSet) *injection {
	i := slices.IndexFunc(admitted, func(ps kueue.PodSet) bool { return ps.Name == kueue.NewPodSetReference(podSet) })
	if i < 0 || template.Labels[kueuesLabel] == "" || admitted[i].Template.Labels[kueuesLabel] != "" {
		return &injection{}
	}
	own := &admitted[i].Template
	in := &injection{
		NodeSelector: parted(template.Spec.NodeSelector, own.Spec.NodeSelector),
		Tolerations:  without(template.Spec.Tolerations, own.Spec.Tolerations),
		Labels:       parted(template.Labels, own.Labels),
		Annotations:  parted(template.Annotations, own.Annotations),
		gates:        withoutGates(template.Spec.SchedulingGates, own.Spec.SchedulingGates),
	}
	for key := range in.Labels {
		// A Workload has none of these, whoever wrote them.
		if IsJobTracking(key) {
			delete(in.Labels, key)
		}
	}
	return in
}

// withoutGates is the gates of a that b lacks; nil rather than empty.
func withoutGates(a, b []corev1.PodSchedulingGate) []corev1.PodSchedulingGate {
	var rest []corev1.PodSchedulingGate
	for _, g := range a {
		if !slices.Contains(b, g) {
			rest = append(rest, g)
		}
	}
	return rest
}

// Restore implements Restorer.
func (batchJobKind) Restore(ctx context.Context, c client.Client, obj client.Object, admitted []kueue.PodSet) error {
	b, err := asBatchJob(obj)
	if err != nil {
		return err
	}
	if err := takeKueuesOut(ctx, c, b, kueuesPart(&b.Spec.Template, MainPodSet, admitted), kueuesSize(b, admitted)...); err != nil {
		return fmt.Errorf("restoring Job %s/%s: %w", b.Namespace, b.Name, err)
	}
	return nil
}

// takeKueuesOut takes something out of the template of a Job that was suspended.
func takeKueuesOut(ctx context.Context, c client.Client, b *batchv1.Job, in *injection, others ...operation) error {
	if in.empty() {
		return nil
	}
	if !still(b) {
		return ErrStillActive
	}
	template := b.Spec.Template.DeepCopy()
	in.takeOut(template)
	return changeTemplate(ctx, c, b, template, true, others...)
}

// Restore implements Restorer.
func (k trainingKind) Restore(ctx context.Context, c client.Client, obj client.Object, admitted []kueue.PodSet) error {
	t, err := k.open(obj)
	if err != nil {
		return err
	}
	replicas := slices.Clone(t.replicas)
	for i := range replicas {
		template := replicas[i].Template.DeepCopy()
		kueuesPart(template, replicas[i].podSet(), admitted).takeOut(template)
		replicas[i].Template = *template
	}
	if err := t.patch(ctx, c, replicas, t.suspended()); err != nil {
		return fmt.Errorf("restoring %s %s/%s: %w", k.kind, t.GetNamespace(), t.GetName(), err)
	}
	return nil
}

// Restore implements Restorer.
func (rayClusterKind) Restore(ctx context.Context, c client.Client, obj client.Object, admitted []kueue.PodSet) error {
	o, err := asObject(obj, "RayCluster")
	if err != nil {
		return err
	}
	return restoreRay(ctx, c, o, admitted, "spec")
}

// Restore implements Restorer.
func (rayJobKind) Restore(ctx context.Context, c client.Client, obj client.Object, admitted []kueue.PodSet) error {
	o, err := asObject(obj, "RayJob")
	if err != nil {
		return err
	}
	return restoreRay(ctx, c, o, admitted, "spec", "rayClusterSpec")
}

// restoreRay restores the templates of the cluster whose specification is at path,
// and that of a RayJob's submitter if its author wrote one.
func restoreRay(ctx context.Context, c client.Client, o object, admitted []kueue.PodSet, path ...string) error {
	templates, no := raySpecOf(o, path...).templates()
	if no != nil {
		// What cannot be read is not started either.
		return nil
	}
	prefix := ""
	for _, field := range path {
		prefix += "/" + field
	}
	for i := range templates {
		templates[i].path = prefix + templates[i].path
	}
	if o.within("spec", "submitterPodTemplate") != nil {
		if t, no := o.submitter(templates[0].own); no == nil {
			t.path = "/spec" + t.path
			templates = append(templates, t)
		}
	}
	var operations []operation
	for _, t := range templates {
		want := t.as.DeepCopy()
		kueuesPart(want, t.podSet, admitted).takeOut(want)
		operations = append(operations, templateOperations(t.path, t.as, want)...)
	}
	if len(operations) > 0 {
		operations = append(operations, operation{Op: "add", Path: "/metadata/resourceVersion", Value: o.GetResourceVersion()})
	}
	if err := send(ctx, c, o.DeepCopy(), operations); err != nil {
		return fmt.Errorf("restoring %s %s/%s: %w", o.GetKind(), o.GetNamespace(), o.GetName(), err)
	}
	return nil
}

// emptyKueuesPatch takes what Kueue has injected out of a TrainJob. Its entry
// stays, because Kueue does not start a job without one. It goes first and comes
// again, with a time, for the reason of upsert.
func emptyKueuesPatch(ctx context.Context, c client.Client, t trainJob) error {
	entries := t.patches()
	at := slices.IndexFunc(entries, func(entry any) bool { return patchManager(entry) == kueuesPatchOwner })
	if at < 0 {
		return nil
	}
	old, err := readPatch(entries[at])
	if err != nil || len(old.TrainingRuntimeSpec.Template.Spec.ReplicatedJobs) == 0 {
		return err
	}
	gone := t.copy()
	gone.setPatches(slices.Delete(slices.Clone(entries), at, at+1))
	if err := writeTrainJob(ctx, c, gone, t); err != nil {
		return err
	}
	empty, err := (&runtimePatch{Manager: kueuesPatchOwner}).toEntry()
	if err != nil {
		return err
	}
	empty["trainingRuntimeSpec"] = map[string]any{"template": map[string]any{"spec": map[string]any{}}}
	back := gone.copy()
	back.setPatches(slices.Insert(slices.Clone(gone.patches()), at, any(empty)))
	return writeTrainJob(ctx, c, back, gone)
}
