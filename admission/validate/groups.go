package validate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// groupFreshness is for how long a group is believed to belong to whom it did. Its pods
// come in bursts; that it has none yet is never believed.
const groupFreshness = 2 * time.Second

type groupKey struct {
	gvk             schema.GroupVersionKind
	namespace, name string
}

// Group implements facts.Around.
func (c *Cluster) Group(ctx context.Context, namespace string, gvk schema.GroupVersionKind, name string) (*metav1.PartialObjectMetadata, error) {
	key := groupKey{gvk, namespace, name}
	if of, found := c.found.Get(key); found {
		return of.(*metav1.PartialObjectMetadata), nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	find := c.oldestPod
	if gvk == workload.PodGroupGVK || gvk == workload.NativePodGroupGVK {
		find = c.podGroup
	}
	of, err := find(ctx, namespace, gvk, name)
	if err != nil {
		return nil, fmt.Errorf("reading group %s/%s: %w", namespace, name, err)
	}
	if of != nil {
		c.found.Set(key, of, groupFreshness)
	}
	return of, nil
}

// podGroup is the object of a group, if a controller has it. One that somebody made
// himself is there for the pods of several owners; one that its controller has left behind
// goes.
func (c *Cluster) podGroup(ctx context.Context, namespace string, gvk schema.GroupVersionKind, name string) (*metav1.PartialObjectMetadata, error) {
	resource, _ := apimeta.UnsafeGuessKindToResource(gvk)
	group, err := c.reader.Resource(resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if owner := metav1.GetControllerOfNoCopy(group); owner == nil || c.leaves(ctx, namespace, owner) {
		return nil, nil
	}
	group.Kind = gvk.Kind
	return group, nil
}

// oldestPod is the oldest pod of a group that its pods make, of those that have not
// ended and are not about to, nor leave with their owner.
func (c *Cluster) oldestPod(ctx context.Context, namespace string, gvk schema.GroupVersionKind, name string) (*metav1.PartialObjectMetadata, error) {
	selector := workload.KueueGroupLabel + "=" + name
	if gvk.Group != kueue.SchemeGroupVersion.Group {
		selector = workload.QueueLabel
	}
	pods, err := c.reader.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: selector, FieldSelector: "status.phase!=Succeeded,status.phase!=Failed",
		// As the API server remembers it: etcd would be asked for each pod.
		ResourceVersion: "0",
	})
	if err != nil {
		return nil, err
	}
	members := slices.DeleteFunc(pods.Items, func(pod metav1.PartialObjectMetadata) bool {
		of, group := workload.GroupOf(&corev1.Pod{ObjectMeta: pod.ObjectMeta})
		return pod.DeletionTimestamp != nil || of != gvk || group != name
	})
	slices.SortFunc(members, func(a, b metav1.PartialObjectMetadata) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	left := map[types.UID]bool{}
	for i := range members {
		owner := metav1.GetControllerOfNoCopy(&members[i])
		if owner != nil {
			if _, known := left[owner.UID]; !known {
				left[owner.UID] = c.leaves(ctx, namespace, owner)
			}
		}
		if owner == nil || !left[owner.UID] {
			oldest := &members[i]
			oldest.Kind, oldest.ManagedFields = "Pod", nil
			return oldest, nil
		}
	}
	return nil, nil
}

// leaves says that an owner has gone, or takes what it owns with it: its pods are still
// there when the one that is made in its place has its first. Who cannot be read stays.
func (c *Cluster) leaves(ctx context.Context, namespace string, ref *metav1.OwnerReference) bool {
	// Not as it is remembered: it has gone just now.
	owner, err := c.readOwner(ctx, namespace, ref)
	switch {
	case apierrors.IsNotFound(err):
		return true
	case err != nil:
		return false
	}
	return owner.UID != ref.UID || (owner.DeletionTimestamp != nil && slices.Contains(owner.Finalizers, metav1.FinalizerDeleteDependents))
}
