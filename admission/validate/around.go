package validate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"
)

const (
	// lookupTimeout bounds one read of another object.
	lookupTimeout = 500 * time.Millisecond
	// ownerFreshness is for how long an owner that was found is believed to exist: the
	// pods of a job come in bursts. That one does not exist is never believed.
	ownerFreshness = 30 * time.Second
	// runtimeFreshness is for how long a runtime, or what is claimed, is believed to be as
	// it was.
	runtimeFreshness = 2 * time.Second
)

// Cluster is what policies may know of an object's surroundings: facts.Around.
type Cluster struct {
	objects dynamic.Interface
	reader  metadata.Interface
	found   *cache.Expiring
}

// NewCluster returns a Cluster that asks the API server, and remembers for a while what
// it has found.
func NewCluster(objects dynamic.Interface, reader metadata.Interface, clock clock.Clock) *Cluster {
	return &Cluster{objects: objects, reader: reader, found: cache.NewExpiringWithClock(clock)}
}

type (
	runtimeKey struct{ kind, namespace, name string }
	ownerKey   struct{ namespace, apiVersion, kind, name, uid string }
)

// Runtime implements facts.Around.
func (c *Cluster) Runtime(ctx context.Context, namespace, kind, name string) (*unstructured.Unstructured, error) {
	var all dynamic.ResourceInterface = c.objects.Resource(trainer.WithResource("clustertrainingruntimes"))
	if kind == "TrainingRuntime" {
		all = c.objects.Resource(trainer.WithResource("trainingruntimes")).Namespace(namespace)
	} else {
		namespace = ""
	}
	key := runtimeKey{kind, namespace, name}
	if runtime, found := c.found.Get(key); found {
		return runtime.(*unstructured.Unstructured), nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	runtime, err := all.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s %s: %w", kind, name, err)
	}
	c.found.Set(key, runtime, runtimeFreshness)
	return runtime, nil
}

var trainer = schema.GroupVersion{Group: "trainer.kubeflow.org", Version: "v1alpha1"}

// passing says that an error may be gone the next time. Others, as that a kind may not be
// read, are brought about by whoever writes the reference.
func passing(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || status.Status().Code >= http.StatusInternalServerError || status.Status().Code == http.StatusTooManyRequests
}

// Owner implements facts.Around.
func (c *Cluster) Owner(ctx context.Context, namespace string, ref metav1.OwnerReference) (*metav1.PartialObjectMetadata, error) {
	// Who makes the object writes the reference: all of it must be right.
	key := ownerKey{namespace, ref.APIVersion, ref.Kind, ref.Name, string(ref.UID)}
	if owner, found := c.found.Get(key); found {
		return owner.(*metav1.PartialObjectMetadata), nil
	}
	owner, err := c.readOwner(ctx, namespace, &ref)
	switch {
	case apierrors.IsNotFound(err), err != nil && !passing(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the owner %s %s/%s: %w", ref.Kind, namespace, ref.Name, err)
	}
	owner.ManagedFields, owner.Annotations = nil, nil
	if owner.UID == ref.UID {
		c.found.Set(key, owner, ownerFreshness)
	}
	return owner, nil
}

// readOwner asks the API server for the object of a reference's kind and name.
func (c *Cluster) readOwner(ctx context.Context, namespace string, ref *metav1.OwnerReference) (*metav1.PartialObjectMetadata, error) {
	group, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		// No object has such a version.
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: ref.Kind}, ref.Name)
	}
	// All kinds that own pods are called so.
	resource, _ := apimeta.UnsafeGuessKindToResource(group.WithKind(ref.Kind))
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	return c.reader.Resource(resource).Namespace(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
}
