package workload

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Controller is what a group is told of a controller that makes pods of it.
type Controller struct {
	// Name is its kind and name.
	Name string
	// Replicas is how many pods it is to have.
	Replicas int64
	// InTurn says that it makes a pod only when the one before is ready.
	InTurn bool
}

// readControllers reads how many pods the controllers of the group's pods are
// to have. One that is gone or going, that is of another kind, or that may not
// be read is left out: its pods are counted as they are.
func (g *PodGroup) readControllers(ctx context.Context, r client.Reader) error {
	seen := map[types.UID]bool{}
	for _, pod := range g.Pods {
		ref := metav1.GetControllerOfNoCopy(pod)
		if ref == nil || seen[ref.UID] || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		seen[ref.UID] = true
		c, err := controllerOf(ctx, r, g.Namespace, ref)
		switch {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apimeta.IsNoMatchError(err):
			continue
		case err != nil:
			return fmt.Errorf("reading %s %s/%s, which makes pods of group %s: %w", ref.Kind, g.Namespace, ref.Name, g.Name, err)
		case c == nil:
			continue
		}
		if g.Controllers == nil {
			g.Controllers = map[types.UID]Controller{}
		}
		g.Controllers[ref.UID] = *c
	}
	return nil
}

// controllerOf reads a ReplicaSet, a StatefulSet or a job of the v1 Training
// Operator; nil if it is none, or not the one that made the pod.
func controllerOf(ctx context.Context, r client.Reader, namespace string, ref *metav1.OwnerReference) (*Controller, error) {
	c := &Controller{Name: ref.Kind + " " + ref.Name}
	var obj client.Object
	var read func()
	switch gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind); {
	case gvk == appsv1.SchemeGroupVersion.WithKind("ReplicaSet"):
		rs := &appsv1.ReplicaSet{}
		obj, read = rs, func() { c.Replicas = int64(ptr.Deref(rs.Spec.Replicas, 1)) }
	case gvk == appsv1.SchemeGroupVersion.WithKind("StatefulSet"):
		ss := &appsv1.StatefulSet{}
		obj, read = ss, func() {
			c.Replicas = int64(ptr.Deref(ss.Spec.Replicas, 1))
			c.InTurn = ss.Spec.PodManagementPolicy != appsv1.ParallelPodManagement
		}
	case gvk.GroupVersion() == trainingVersion && strings.HasSuffix(gvk.Kind, "Job"):
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(gvk)
		obj, read = u, func() { c.Replicas = trainingReplicas(u) }
	default:
		return nil, nil
	}
	if err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, obj); err != nil {
		return nil, err
	}
	if obj.GetUID() != ref.UID || obj.GetDeletionTimestamp() != nil {
		return nil, nil
	}
	read()
	return c, nil
}

// trainingReplicas is the number of pods of a PyTorchJob, TFJob, MPIJob or
// another of their family: each has one field of replica specs by role.
func trainingReplicas(u *unstructured.Unstructured) int64 {
	spec, _, _ := unstructured.NestedMap(u.Object, "spec")
	sum := int64(0)
	for field, value := range spec {
		roles, ok := value.(map[string]any)
		if !ok || !strings.HasSuffix(field, "ReplicaSpecs") {
			continue
		}
		for _, role := range roles {
			n := int64(1)
			if role, ok := role.(map[string]any); ok {
				if said, found, err := unstructured.NestedInt64(role, "replicas"); found && err == nil {
					n = said
				}
			}
			sum += n
		}
	}
	return sum
}

// expected is how many pods the group is to have: as many as the controllers
// of its pods say, whatever minMember is. Pods of which no controller says how
// many there are count one each, and with them minMember is the least.
func (g *PodGroup) expected() int64 {
	sum, uncounted := int64(0), false
	for _, c := range g.Controllers {
		sum += c.Replicas
	}
	for _, pod := range g.Pods {
		if _, known := g.controller(pod); !known && pod.Status.Phase != corev1.PodFailed && pod.DeletionTimestamp == nil {
			sum, uncounted = sum+1, true
		}
	}
	if uncounted || len(g.Controllers) == 0 {
		return max(sum, g.MinMember)
	}
	return sum
}

// asked are those of the members that their controllers ask for: of more, while
// replicas are replaced or taken away, those on nodes and the oldest.
func (g *PodGroup) asked(members []*corev1.Pod) []*corev1.Pod {
	of := map[types.UID][]*corev1.Pod{}
	var out []*corev1.Pod
	for _, pod := range members {
		if uid, known := g.controller(pod); known {
			of[uid] = append(of[uid], pod)
		} else {
			out = append(out, pod)
		}
	}
	for uid, pods := range of {
		out = append(out, firstOf(pods, g.Controllers[uid].Replicas)...)
	}
	slices.SortFunc(out, olderFirst)
	return out
}

// controller is the controller that says how many pods like this one there are.
func (g *PodGroup) controller(pod *corev1.Pod) (types.UID, bool) {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		return "", false
	}
	_, known := g.Controllers[ref.UID]
	return ref.UID, known
}

// inTurn names a controller of more pods than one that makes them in turn;
// empty if there is none.
func (g *PodGroup) inTurn() string {
	var names []string
	for _, c := range g.Controllers {
		if c.InTurn && c.Replicas > 1 {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return slices.Min(names)
}
