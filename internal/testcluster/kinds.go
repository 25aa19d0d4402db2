package testcluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AddKind defines a kind of which nothing is checked, in place of a controller's
// own definition. Its objects keep whatever fields they are given.
func (c *Cluster) AddKind(t testing.TB, gvk schema.GroupVersionKind) {
	t.Helper()
	plural := strings.ToLower(gvk.Kind) + "s"
	c.applyCRD(t, &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + gvk.Group, Annotations: map[string]string{
			"api-approved.kubernetes.io": "unapproved, for tests",
		}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: gvk.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: plural, Singular: strings.ToLower(gvk.Kind), Kind: gvk.Kind, ListKind: gvk.Kind + "List",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: gvk.Version, Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: new(true),
				}},
			}},
		},
	})
}

// RemoveKind takes a definition away, and all objects of its kind, and waits
// until they are gone.
func (c *Cluster) RemoveKind(t testing.TB, gk schema.GroupKind) {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: strings.ToLower(gk.Kind) + "s." + gk.Group}}
	if err := c.Client.Delete(t.Context(), crd); err != nil {
		t.Fatalf("deleting CRD %s: %v", crd.Name, err)
	}
	Eventually(t, "CRD "+crd.Name+" to be gone", func(ctx context.Context) error {
		err := c.Client.Get(ctx, client.ObjectKeyFromObject(crd), crd)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there (%w)", err)
	})
}
