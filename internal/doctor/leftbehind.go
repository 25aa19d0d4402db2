package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// podFinalizer is on the pods that Kueue manages itself.
const podFinalizer = "kueue.x-k8s.io/managed"

// podsLeftBehind are pods that nobody lets go: they cannot be scheduled, or not
// be deleted.
func (p *patient) podsLeftBehind(ctx context.Context) ([]finding, error) {
	var out []finding
	pods := &corev1.PodList{}
	if err := p.client.List(ctx, pods); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		gated := workload.WaitsForKueue(pod)
		held := slices.Contains(pod.Finalizers, podFinalizer)
		if !gated && !held {
			continue
		}
		var what, remedy []string
		if gated {
			what = append(what, "it waits for Kueue to let it be scheduled")
			remedy = append(remedy, fmt.Sprintf("take Kueue's gates off, so that its scheduler %s decides", pod.Spec.SchedulerName))
		}
		if held {
			what = append(what, "it cannot be deleted before Kueue agrees")
			remedy = append(remedy, "take Kueue's finalizer off")
		}
		out = append(out, finding{
			object: namedPod(pod), what: strings.Join(what, ", and "), remedy: strings.Join(remedy, ", and "),
			mend: func(ctx context.Context) error { return p.letPodGo(ctx, pod) },
		})
	}
	return out, nil
}

func (p *patient) letPodGo(ctx context.Context, pod *corev1.Pod) error {
	free := pod.DeepCopy()
	free.Finalizers = slices.DeleteFunc(free.Finalizers, func(f string) bool { return f == podFinalizer })
	free.Spec.SchedulingGates = slices.DeleteFunc(free.Spec.SchedulingGates, workload.IsKueuesGate)
	err := p.client.Patch(ctx, free, client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return fmt.Errorf("it has changed meanwhile, try again: %w", err)
	}
	return client.IgnoreNotFound(err)
}

// finalizersLeftBehind are objects that Kueue's finalizer keeps, and nobody looks
// after. Muster does so for ClusterQueues, ResourceFlavors and Workloads, once they
// are deleted.
func (p *patient) finalizersLeftBehind(ctx context.Context) ([]finding, error) {
	var out []finding
	for _, k := range []struct {
		kind   string
		muster bool
	}{{"ClusterQueue", true}, {"ResourceFlavor", true}, {"Workload", true}, {"LocalQueue", false}, {"Cohort", false}, {"Topology", false}, {"AdmissionCheck", false}} {
		if k.muster && p.musterLeads {
			continue
		}
		kind := schema.GroupVersionKind{Group: kueueGroup, Version: kueue.SchemeGroupVersion.Version, Kind: k.kind}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(k.kind + "List"))
		err := p.client.List(ctx, list)
		if apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return out, fmt.Errorf("listing %s objects: %w", k.kind, err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			o.SetGroupVersionKind(kind)
			if !slices.Contains(o.Finalizers, kueue.ResourceInUseFinalizerName) || (k.muster && o.DeletionTimestamp == nil) {
				continue
			}
			out = append(out, finding{
				object: k.kind + " " + strings.TrimPrefix(client.ObjectKeyFromObject(o).String(), "/"), what: "its finalizer is Kueue's, and nobody takes it off",
				remedy: "take it off",
				mend: func(ctx context.Context) error {
					free := o.DeepCopy()
					free.Finalizers = slices.DeleteFunc(free.Finalizers, func(f string) bool { return f == kueue.ResourceInUseFinalizerName })
					return client.IgnoreNotFound(p.client.Patch(ctx, free, client.MergeFromWithOptions(o, client.MergeFromWithOptimisticLock{})))
				},
			})
		}
	}
	return out, nil
}
