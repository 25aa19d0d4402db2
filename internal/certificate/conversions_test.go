package certificate

import (
	"encoding/base64"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
)

// definition converts by the client configuration given; nil for none.
func definition(name string, config map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": name, "resourceVersion": "7"},
		"spec":     map[string]any{"group": "example.com"},
	}}
	if config != nil {
		o.Object["spec"].(map[string]any)["conversion"] = map[string]any{
			"strategy": "Webhook", "webhook": map[string]any{"clientConfig": config},
		}
	}
	return o
}

func serviceConfig(namespace, name string) map[string]any {
	return map[string]any{"service": map[string]any{"namespace": namespace, "name": name, "path": "/convert"}}
}

func TestDefinitionsThatTheWebhookConvertsTrustItsCertificateAndNoOthers(t *testing.T) {
	c := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(),
		definition("service", serviceConfig("muster-system", "muster-webhook")),
		definition("url", map[string]any{"url": "https://127.0.0.1:9443/convert"}),
		definition("kueue", serviceConfig("kueue-system", "kueue-webhook-service")),
		definition("elsewhere", map[string]any{"url": "https://127.0.0.1:9444/convert"}),
		definition("none", nil),
	)
	s := newScene(t, configuration())
	k := s.replica()
	k.options.Conversions = &Conversions{
		Client: c, Names: []string{"service", "url", "kueue", "elsewhere", "none", "absent"},
		Service: "muster-system/muster-webhook", Addresses: []string{"127.0.0.1:9443"},
	}
	s.sync(k)
	want, err := k.serving.Load().bundle()
	if err != nil {
		t.Fatal(err)
	}
	for name, ours := range map[string]bool{"service": true, "url": true, "kueue": false, "elsewhere": false, "none": false} {
		o, err := c.Resource(definitions).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got, found, _ := unstructured.NestedString(o.Object, "spec", "conversion", "webhook", "clientConfig", "caBundle")
		if found != ours || (ours && got != base64.StdEncoding.EncodeToString(want)) {
			t.Errorf("%s has the bundle %q, want that it is ours: %v", name, got, ours)
		}
	}
	c.ClearActions()
	s.sync(k)
	for _, a := range c.Actions() {
		if a.GetVerb() != "get" {
			t.Errorf("it is written again: %v", a)
		}
	}
}
