package owners

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload/identity"
)

// maxOwners is longer than any chain of owners: a worker of a LeaderWorkerSet has its
// StatefulSet, its leader, the leaders' StatefulSet and the set.
const maxOwners = 8

// chain reads what owns pods.
type chain struct {
	reader  metadata.Interface
	objects dynamic.Interface
}

// job is what a pod is part of.
type job struct {
	// kind and name are those of the topmost owner, and of the pod itself if it has
	// none.
	kind, name string
	// uid is that of what is admitted as one.
	uid types.UID
	// queue is the ClusterQueue that has admitted it, "" if none.
	queue string
	// annotations are those of the pod, under those of its owners.
	annotations map[string]string
}

// link is one owner in a chain.
type link struct {
	gvk    schema.GroupVersionKind
	object metav1.Object
}

// of reads what a pod is part of. What may not be read, or is gone, ends the chain;
// the error is of what may come right.
func (c chain) of(ctx context.Context, pod *corev1.Pod) (job, error) {
	links := []link{{corev1.SchemeGroupVersion.WithKind("Pod"), pod}}
	for len(links) <= maxOwners {
		ref := metav1.GetControllerOfNoCopy(links[len(links)-1].object)
		if ref == nil || ref.Kind == "Node" {
			break
		}
		owner, more, err := c.owner(ctx, pod.Namespace, *ref)
		if err != nil {
			return job{}, err
		}
		links = append(links, owner)
		if !more {
			break
		}
	}
	top := links[len(links)-1]
	j := job{kind: top.gvk.Kind, name: top.object.GetName(), annotations: map[string]string{}}
	for _, l := range links {
		maps.Copy(j.annotations, l.object.GetAnnotations())
	}
	admitted := admittedAs(pod, links)
	j.uid = admitted.UID
	var err error
	j.queue, err = c.queue(ctx, admitted)
	return j, err
}

// owner reads the object that a reference names. Without more, what is above it is not
// known, and of itself no more than the reference says.
func (c chain) owner(ctx context.Context, namespace string, ref metav1.OwnerReference) (l link, more bool, err error) {
	l.gvk = schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	named := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ref.Name, UID: ref.UID}}
	l.object = named
	// All kinds that own pods are called so.
	resource, _ := apimeta.UnsafeGuessKindToResource(l.gvk)
	object, err := c.reader.Resource(resource).Namespace(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return l, false, nil
	case err != nil:
		return l, false, fmt.Errorf("reading %s %s/%s: %w", ref.Kind, namespace, ref.Name, err)
	case object.UID != ref.UID:
		return l, false, nil
	}
	l.object = object
	return l, true, nil
}

// admittedAs is what is admitted as one, of which a pod with these owners is: the
// pod or its group, or else the topmost owner that names a queue, or just the topmost.
func admittedAs(pod *corev1.Pod, links []link) identity.Owner {
	top := links[len(links)-1]
	if owner, ok := identity.PodJob(pod); ok {
		if owner.GroupVersionKind == identity.ReplicaGVK {
			// Its Workload has the name of the set.
			owner.UID = top.object.GetUID()
		}
		return owner
	}
	for i := len(links) - 1; i > 0; i-- {
		if links[i].object.GetLabels()[identity.QueueLabel] != "" {
			top = links[i]
			break
		}
	}
	return identity.Owner{
		GroupVersionKind: top.gvk,
		NamespacedName:   types.NamespacedName{Namespace: pod.Namespace, Name: top.object.GetName()},
		UID:              top.object.GetUID(),
	}
}

var workloads = kueue.SchemeGroupVersion.WithResource("workloads")

// queue is the ClusterQueue that has admitted it.
func (c chain) queue(ctx context.Context, owner identity.Owner) (string, error) {
	name := identity.WorkloadName(owner)
	wl, err := c.objects.Resource(workloads).Namespace(owner.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading Workload %s/%s: %w", owner.Namespace, name, err)
	}
	queue, _, err := unstructured.NestedString(wl.Object, "status", "admission", "clusterQueue")
	if err != nil {
		return "", fmt.Errorf("reading the admission of Workload %s/%s: %w", owner.Namespace, name, err)
	}
	return queue, nil
}
