package validate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/muster-gpu/muster/rendering"
	"github.com/muster-gpu/muster/workload"
)

// Claims counts the devices that pods claim: facts.Claims.
type Claims struct {
	cluster *Cluster
	classes map[string]corev1.ResourceName
}

// Claims counts what is claimed as the resources by their DeviceClasses, of the claims
// and templates that the API server has or had a moment ago.
func (c *Cluster) Claims(classes map[string]corev1.ResourceName) *Claims {
	return &Claims{c, classes}
}

// Count implements facts.Claims.
func (c *Claims) Count(ctx context.Context, job *workload.Job) error {
	counting := &rendering.Claims{
		Template: func(namespace, name string) (*resourceapi.ResourceClaimTemplate, error) {
			return claimed[resourceapi.ResourceClaimTemplate](ctx, c.cluster, "resourceclaimtemplates", namespace, name)
		},
		Claim: func(namespace, name string) (*resourceapi.ResourceClaim, error) {
			return claimed[resourceapi.ResourceClaim](ctx, c.cluster, "resourceclaims", namespace, name)
		},
		Classes: c.classes,
	}
	return counting.Count(job)
}

type claimKey struct{ resource, namespace, name string }

// claimed is one object of dynamic resource allocation.
func claimed[T any](ctx context.Context, c *Cluster, resource, namespace, name string) (*T, error) {
	key := claimKey{resource, namespace, name}
	if object, found := c.found.Get(key); found {
		return object.(*T), nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	fields, err := c.objects.Resource(resourceapi.SchemeGroupVersion.WithResource(resource)).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	object := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields.Object, object); err != nil {
		return nil, fmt.Errorf("reading %s %s/%s: %w", resource, namespace, name, err)
	}
	c.found.Set(key, object, runtimeFreshness)
	return object, nil
}
