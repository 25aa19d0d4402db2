package certificate

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// Conversions are definitions whose objects the webhook converts. Those that
// somebody else converts, as Kueue does where it runs, are left alone.
type Conversions struct {
	Client dynamic.Interface
	// Names are those of the CustomResourceDefinitions.
	Names []string
	// Service is the webhook's own, "namespace/name"; Addresses are the host:port
	// under which a definition may name it by URL.
	Service   string
	Addresses []string
}

// trust sets the caBundle of the definitions. One that does not exist is none of
// ours, and a conflict is looked at again in time.
func (c *Conversions) trust(ctx context.Context, bundle []byte) error {
	var errs []error
	for _, name := range c.Names {
		if err := c.trustOne(ctx, name, bundle); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("CustomResourceDefinition %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func (c *Conversions) trustOne(ctx context.Context, name string, bundle []byte) error {
	definition, err := c.Client.Resource(definitions).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	config, found, err := unstructured.NestedMap(definition.Object, "spec", "conversion", "webhook", "clientConfig")
	if err != nil || !found || !c.ours(config) {
		return err
	}
	encoded, _ := config["caBundle"].(string)
	if have, err := base64.StdEncoding.DecodeString(encoded); err == nil && bytes.Equal(have, bundle) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": definition.GetResourceVersion()},
		"spec":     map[string]any{"conversion": map[string]any{"webhook": map[string]any{"clientConfig": map[string]any{"caBundle": bundle}}}},
	})
	if err != nil {
		return fmt.Errorf("encoding the caBundle's patch: %w", err)
	}
	if _, err := c.Client.Resource(definitions).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Set the caBundle", "definition", name)
	return nil
}

// ours says that a conversion's client configuration leads to this webhook.
func (c *Conversions) ours(config map[string]any) bool {
	if address, ok := config["url"].(string); ok {
		u, err := url.Parse(address)
		return err == nil && slices.Contains(c.Addresses, u.Host)
	}
	namespace, _, _ := unstructured.NestedString(config, "service", "namespace")
	name, _, _ := unstructured.NestedString(config, "service", "name")
	return namespace+"/"+name == c.Service
}
