package workload

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// The labels and annotations by which pods form a group: those of Kueue, and
// those of the coscheduling plugin.
const (
	// KueueGroupLabel names the group; every pod of it carries the number of
	// them in KueueGroupCountAnnotation.
	KueueGroupLabel           = "kueue.x-k8s.io/pod-group-name"
	KueueGroupCountAnnotation = "kueue.x-k8s.io/pod-group-total-count"
	// PodGroupLabel names a PodGroup of scheduling.x-k8s.io.
	PodGroupLabel = "scheduling.x-k8s.io/pod-group"
)

// PodGroupGVK is the PodGroup of the coscheduling plugin.
var PodGroupGVK = schema.GroupVersionKind{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Kind: "PodGroup"}

// kueueGroupGVK stands for a group that only its pods' labels make.
var kueueGroupGVK = kueue.SchemeGroupVersion.WithKind("PodGroup")

// PodGroup is the pods of one group, read together. It takes the place of an
// owner object for pods that have none: its name is the group's, its UID is
// made from it, its labels are those that its pods share.
type PodGroup struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	// Pods are all pods of the group, also those that have ended, the oldest
	// first.
	Pods []*corev1.Pod
	// Found says that the object of a scheduling.x-k8s.io group exists;
	// MinMember is its spec.minMember. Missing says that it does not, although
	// the API has its kind.
	Found, Missing bool
	MinMember      int64
	// Controllers are those that make pods of a scheduling.x-k8s.io group and
	// say how many.
	Controllers map[types.UID]Controller
}

var _ client.Object = &PodGroup{}

// DeepCopyObject implements runtime.Object.
func (g *PodGroup) DeepCopyObject() runtime.Object {
	out := *g
	out.ObjectMeta = *g.ObjectMeta.DeepCopy()
	out.Pods = slices.Clone(g.Pods)
	out.Controllers = maps.Clone(g.Controllers)
	return &out
}

// groupUID identifies a group by its kind and name.
func groupUID(gvk schema.GroupVersionKind, key types.NamespacedName) types.UID {
	return types.UID(gvk.Group + "/" + key.Namespace + "/" + key.Name)
}

// Assemble implements Assembler: the group as r has it now. r must know pods,
// ReplicaSets and StatefulSets, and PodGroups and the v1 Training Operator's
// jobs as unstructured.
func (k podGroupKind) Assemble(ctx context.Context, r client.Reader, key types.NamespacedName) (client.Object, error) {
	var list corev1.PodList
	if err := r.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingLabels{k.label: key.Name}); err != nil {
		return nil, fmt.Errorf("listing the pods of group %s: %w", key, err)
	}
	g := &PodGroup{}
	g.Namespace, g.Name, g.UID = key.Namespace, key.Name, groupUID(k.gvk, key)
	for i := range list.Items {
		pod := &list.Items[i]
		if owner, ok := PodJob(pod); ok && owner.UID == g.UID {
			g.Pods = append(g.Pods, pod)
		}
	}
	if len(g.Pods) == 0 {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: k.gvk.Group, Resource: "podgroups"}, key.Name)
	}
	slices.SortFunc(g.Pods, olderFirst)
	g.CreationTimestamp = g.Pods[0].CreationTimestamp
	g.Labels = shared(g.Pods)
	if k.gvk == PodGroupGVK {
		if err := g.readObject(ctx, r); err != nil {
			return nil, err
		}
		if err := g.readControllers(ctx, r); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// readObject reads the PodGroup object, whose queue label counts for pods that
// have none.
func (g *PodGroup) readObject(ctx context.Context, r client.Reader) error {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(PodGroupGVK)
	err := r.Get(ctx, client.ObjectKeyFromObject(g), object)
	if apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) {
		// Of a kind that is not served the API does not say an object's name.
		g.Missing = apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading PodGroup %s/%s: %w", g.Namespace, g.Name, err)
	}
	g.Found = true
	g.MinMember, _, _ = unstructured.NestedInt64(object.Object, "spec", "minMember")
	for _, label := range []string{QueueLabel, PriorityClassLabel} {
		if value := object.GetLabels()[label]; value != "" && g.Labels[label] == "" {
			g.Labels[label] = value
		}
	}
	return nil
}

// shared are the labels that all pods have alike.
func shared(pods []*corev1.Pod) map[string]string {
	out := map[string]string{}
	for key, value := range pods[0].Labels {
		if !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.Labels[key] != value }) {
			out[key] = value
		}
	}
	return out
}

// olderFirst orders pods by creation, those of one second by name.
func olderFirst(a, b *corev1.Pod) int {
	if d := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); d != 0 {
		return d
	}
	return strings.Compare(a.Name, b.Name)
}

// GroupOwner is the group of that PodGroup object.
func GroupOwner(key types.NamespacedName) Owner {
	return Owner{GroupVersionKind: PodGroupGVK, NamespacedName: key, UID: groupUID(PodGroupGVK, key)}
}
