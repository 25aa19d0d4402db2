package workload

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/workload/identity"
)

const (
	// KueueGroupCountAnnotation is how many pods the group of KueueGroupLabel has; every
	// pod of it carries that.
	KueueGroupCountAnnotation = "kueue.x-k8s.io/pod-group-total-count"
	// MemberField stands for the UID of the group that a pod belongs to, as PodJob
	// says, by which the API server selects no pods: who lists pods by this field
	// asks a reader that can. A label by which it can select them is named beside it.
	MemberField = "group"
)

// PodGroup is the pods of one group, read together. It takes the place of an
// owner object for pods that have none: its name is the group's, its UID is
// made from it, its labels are those that its pods share.
type PodGroup struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	// Pods are all pods of the group, also those that have ended, the oldest
	// first.
	Pods []*corev1.Pod
	// Found says that the object of a group exists, Missing that it does not,
	// although the API has its kind. MinMember is how many pods start together at
	// the least, as the object says, or pods do of a group that needs none.
	Found, Missing bool
	MinMember      int64
	// Basic says that the object has its pods start one by one.
	Basic bool
	// PriorityClass is the PriorityClass that the object names, empty if none. It counts
	// before those of the pods.
	PriorityClass string
	// Domain is the node label of which all pods need the same value; empty if
	// none is asked for.
	Domain string
	// Controllers are those that make pods of a group which is of a least size, and
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

// Assemble implements Assembler: the group as r has it now. r must know pods
// by MemberField, ReplicaSets, StatefulSets and Kubernetes' PodGroups, and PodGroups
// of scheduling.x-k8s.io and the v1 Training Operator's jobs as unstructured.
func (k podGroupKind) Assemble(ctx context.Context, r client.Reader, key types.NamespacedName) (client.Object, error) {
	var list corev1.PodList
	if err := r.List(ctx, &list, client.InNamespace(key.Namespace), memberOf(k.gvk, key), k.labelled(key)); err != nil {
		return nil, fmt.Errorf("listing the pods of group %s: %w", key, err)
	}
	g := &PodGroup{}
	g.Namespace, g.Name, g.UID = key.Namespace, key.Name, identity.GroupUID(k.gvk, key)
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
	if k.atLeast() {
		if err := k.readObject(ctx, r, g); err != nil {
			return nil, err
		}
		if err := g.readControllers(ctx, r); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// memberOf selects the pods of a group.
func memberOf(gvk schema.GroupVersionKind, group types.NamespacedName) client.ListOption {
	return client.MatchingFields{MemberField: string(identity.GroupUID(gvk, group))}
}

// labelled selects the pods whose label names the group, where one does.
func (k podGroupKind) labelled(group types.NamespacedName) client.MatchingLabels {
	if k.label == "" {
		return nil
	}
	return client.MatchingLabels{k.label: group.Name}
}

// atLeast says that groups of the kind name the least number of their pods.
func (k podGroupKind) atLeast() bool { return k.gvk != identity.KueueGroupGVK }

// readObject reads the PodGroup object, whose queue label counts for pods that
// have none. Where the pods say all that counts, none is needed.
func (k podGroupKind) readObject(ctx context.Context, r client.Reader, g *PodGroup) error {
	if k.gvk == identity.VolcanoGroupGVK {
		g.Found = true
		for _, pod := range g.Pods {
			_, least := identity.VolcanoGroup(pod)
			g.MinMember = max(g.MinMember, least)
		}
		return nil
	}
	var object client.Object
	var read func()
	if k.gvk == NativePodGroupGVK {
		native := &schedulingv1beta1.PodGroup{}
		object, read = native, func() { g.readNative(&native.Spec) }
	} else {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(k.gvk)
		object, read = u, func() { g.MinMember, _, _ = unstructured.NestedInt64(u.Object, "spec", "minMember") }
	}
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
	read()
	for _, label := range []string{QueueLabel, PriorityClassLabel} {
		if value := object.GetLabels()[label]; value != "" && g.Labels[label] == "" {
			g.Labels[label] = value
		}
	}
	return nil
}

// readNative reads what Kubernetes' own PodGroup says of its pods.
func (g *PodGroup) readNative(spec *schedulingv1beta1.PodGroupSpec) {
	g.Basic = spec.SchedulingPolicy.Basic != nil
	if gang := spec.SchedulingPolicy.Gang; gang != nil {
		g.MinMember = int64(gang.MinCount)
	}
	g.PriorityClass = spec.PriorityClassName
	if c := spec.SchedulingConstraints; c != nil && len(c.Topology) > 0 {
		g.Domain = c.Topology[0].Key
	}
}

// Part has a pod of a group start alone, in the queue that the group names if the
// pod names none.
func (g *PodGroup) Part(ctx context.Context, c client.Client, pod *corev1.Pod) error {
	want := pod.DeepCopy()
	metav1.SetMetaDataAnnotation(&want.ObjectMeta, AloneAnnotation, "true")
	for _, label := range []string{QueueLabel, PriorityClassLabel} {
		if value := g.Labels[label]; value != "" && want.Labels[label] == "" {
			metav1.SetMetaDataLabel(&want.ObjectMeta, label, value)
		}
	}
	if err := c.Patch(ctx, want, client.MergeFrom(pod)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("taking pod %s/%s out of its group: %w", pod.Namespace, pod.Name, err)
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

// GroupOwner is the group of a PodGroup object.
func GroupOwner(gvk schema.GroupVersionKind, key types.NamespacedName) Owner {
	return Owner{GroupVersionKind: gvk, NamespacedName: key, UID: identity.GroupUID(gvk, key)}
}

// NamedGroup is the group of a least size that pods of a template name; false if
// they name none.
func NamedGroup(namespace string, template *corev1.PodTemplateSpec) (Owner, bool) {
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	gvk, group := GroupOf(pod)
	if group == "" || gvk == identity.KueueGroupGVK {
		return Owner{}, false
	}
	return GroupOwner(gvk, types.NamespacedName{Namespace: namespace, Name: group}), true
}
