package policyfiles

import (
	"context"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/rendering"
	"github.com/muster-gpu/muster/workload"
)

// claims counts what pods claim: facts.Claims.
type claims struct{ rendering.Claims }

// claimsAmong counts what is claimed by the claims and templates that are among the
// objects, with the DeviceClasses that the webhook knows by default.
func claimsAmong(objects []*unstructured.Unstructured) *claims {
	return &claims{rendering.Claims{
		Template: func(namespace, name string) (*resourceapi.ResourceClaimTemplate, error) {
			return among[resourceapi.ResourceClaimTemplate](objects, "ResourceClaimTemplate", namespace, name)
		},
		Claim: func(namespace, name string) (*resourceapi.ResourceClaim, error) {
			return among[resourceapi.ResourceClaim](objects, "ResourceClaim", namespace, name)
		},
		Classes: configv1alpha1.DeviceClasses(configv1alpha1.DefaultWebhook().Policies.DeviceClassMappings),
	}}
}

// Count implements facts.Claims.
func (c *claims) Count(_ context.Context, job *workload.Job) error { return c.Claims.Count(job) }

// among is the object of a kind and name; one that names no namespace is in any.
func among[T any](objects []*unstructured.Unstructured, kind, namespace, name string) (*T, error) {
	for _, o := range objects {
		if o.GroupVersionKind() != resourceapi.SchemeGroupVersion.WithKind(kind) || o.GetName() != name || (o.GetNamespace() != "" && o.GetNamespace() != namespace) {
			continue
		}
		out := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, out); err != nil {
			return nil, fmt.Errorf("reading %s %s: %w", kind, name, err)
		}
		return out, nil
	}
	return nil, apierrors.NewNotFound(resourceapi.Resource(kind), name)
}
