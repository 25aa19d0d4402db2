package sandbox

import (
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const webhookManifest = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: m}
webhooks:
- name: a.example.com
  failurePolicy: Fail
  clientConfig: {service: {name: s, namespace: n, path: /mutate}}
- name: b.example.com
  clientConfig: {service: {name: s, namespace: n}}
`

func decodeOne(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	objects, err := decodeObjects(strings.NewReader(manifest))
	if err != nil || len(objects) != 1 {
		t.Fatalf("decoded %d objects, %v", len(objects), err)
	}
	return objects[0]
}

func TestPointWebhooks(t *testing.T) {
	configOf := func(object *unstructured.Unstructured) []any {
		webhooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
		if err != nil {
			t.Fatal(err)
		}
		var all []any
		for _, w := range webhooks {
			all = append(all, w.(map[string]any)["clientConfig"])
		}
		return all
	}
	cases := []struct {
		name string
		ca   []byte
		want []any
	}{
		{name: "with the sandbox's authority", ca: []byte("ca"), want: []any{
			map[string]any{"url": "https://127.0.0.1:9443/mutate", "caBundle": "Y2E="},
			map[string]any{"url": "https://127.0.0.1:9443/", "caBundle": "Y2E="},
		}},
		{name: "the bundle is left to the webhook's program", want: []any{
			map[string]any{"url": "https://127.0.0.1:9443/mutate"},
			map[string]any{"url": "https://127.0.0.1:9443/"},
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			object := decodeOne(t, webhookManifest)
			if err := pointWebhooks(object, 9443, c.ca); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, configOf(object)); diff != "" {
				t.Errorf("clientConfig (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPointWebhooksNamesAWebhookWithoutAService(t *testing.T) {
	object := decodeOne(t, strings.ReplaceAll(webhookManifest, "clientConfig: {service: {name: s, namespace: n}}", "clientConfig: {url: x}"))
	if err := pointWebhooks(object, 1, nil); err == nil || !strings.Contains(err.Error(), "b.example.com of m") {
		t.Errorf("error = %v, want one that names b.example.com", err)
	}
}

func names(objects []*unstructured.Unstructured) []string {
	var all []string
	for _, object := range objects {
		all = append(all, object.GetKind()+" "+object.GetName())
	}
	return all
}

func TestABaseIsBuiltFromMemoryAndSortedIntoStages(t *testing.T) {
	tree := fstest.MapFS{
		"base/kustomization.yaml": {Data: []byte("namespace: muster-system\nresources: [../crds, objects.yaml]\n")},
		"base/objects.yaml": {Data: []byte(`
apiVersion: v1
kind: Namespace
metadata: {name: muster-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: muster-scheduler}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: muster-scheduler}
---
apiVersion: v1
kind: Service
metadata: {name: muster-webhook}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: torch}
---` + webhookManifest)},
		"crds/kustomization.yaml": {Data: []byte("resources: [crd.yaml]\n")},
		"crds/crd.yaml": {Data: []byte(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: workloads.kueue.x-k8s.io}
spec: {conversion: {strategy: Webhook}, group: kueue.x-k8s.io}
`)},
	}
	objects, err := buildKustomization("base", map[string]fs.FS{"": tree}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := stage(keepKinds(objects))
	for _, c := range []struct {
		name string
		got  []*unstructured.Unstructured
		want []string
	}{
		{"definitions", s.definitions, []string{"CustomResourceDefinition workloads.kueue.x-k8s.io", "Namespace muster-system"}},
		{"rest", s.rest, []string{"ServiceAccount muster-scheduler"}},
		{"webhooks", s.webhooks, []string{"MutatingWebhookConfiguration m"}},
		{"runtimes", s.runtimes, []string{"ClusterTrainingRuntime torch"}},
	} {
		if diff := cmp.Diff(c.want, names(c.got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	dropConversion(s.definitions[0])
	if _, found, _ := unstructured.NestedMap(s.definitions[0].Object, "spec", "conversion"); found {
		t.Error("the definition still has a conversion webhook")
	}
}

// TestMustersManifestsHaveWhatTheSandboxNeeds: the names by which the sandbox finds the
// service accounts are those of the embedded manifests.
func TestMustersManifestsHaveWhatTheSandboxNeeds(t *testing.T) {
	const account, webhook = "ServiceAccount " + musterNamespace + "/", "MutatingWebhookConfiguration /muster-mutating"
	const queues = "CustomResourceDefinition /clusterqueues." + kueueGroup
	always := []string{
		"Namespace /" + musterNamespace, account + componentMusterScheduler, account + componentGPUAgent,
		"CustomResourceDefinition /gpunodes.muster.dev", "RuntimeDefaults /gpu",
	}
	for name, c := range map[string]struct {
		with      []string
		has, lack []string
	}{
		"the default": {DefaultParts, []string{account + componentMusterWebhook, webhook, queues}, nil},
		"where Kueue runs the definitions of its API are its own": {
			append(slices.Clone(DefaultParts), WithKueue), []string{account + componentMusterWebhook, webhook}, []string{queues}},
		"without the webhook": {[]string{WithScheduler}, []string{queues}, []string{account + componentMusterWebhook, webhook}},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := loadMuster(Options{With: c.with})
			if err != nil {
				t.Fatal(err)
			}
			found := map[string]bool{}
			for _, object := range objects {
				found[object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName()] = true
			}
			for _, want := range slices.Concat(always, c.has) {
				if !found[want] {
					t.Errorf("there is no %s", want)
				}
			}
			for _, name := range c.lack {
				if found[name] {
					t.Errorf("there is %s", name)
				}
			}
			for _, webhook := range stage(objects).webhooks {
				if err := pointWebhooks(webhook, 1, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestConversionsCallTheLocalPort(t *testing.T) {
	definition := decodeOne(t, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: workloads.kueue.x-k8s.io}
spec:
  conversion:
    strategy: Webhook
    webhook: {clientConfig: {service: {name: s, namespace: n, path: /convert}}, conversionReviewVersions: [v1]}
`)
	if !pointConversion(definition, 9443, []byte("ca")) {
		t.Error("the definition is said to have no conversion")
	}
	got, _, err := unstructured.NestedMap(definition.Object, "spec", "conversion", "webhook", "clientConfig")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"url": "https://127.0.0.1:9443/convert", "caBundle": "Y2E="}, got); diff != "" {
		t.Errorf("clientConfig (-want +got):\n%s", diff)
	}
	if pointConversion(decodeOne(t, "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: topologies.kueue.x-k8s.io}}"), 1, nil) {
		t.Error("a definition of one version is said to have a conversion")
	}
}

func TestMergeFieldsKeepsTheUsersFieldsAndForcesTheSandboxes(t *testing.T) {
	user := map[string]any{"admission": map[string]any{"startTimeout": "10s"}, "clientConnection": map[string]any{"kubeconfig": "/mine", "contentType": "x"}}
	got := mergeFields(user, map[string]any{"clientConnection": map[string]any{"kubeconfig": "/sandbox"}, "leaderElection": map[string]any{"leaderElect": false}})
	want := map[string]any{
		"admission":        map[string]any{"startTimeout": "10s"},
		"clientConnection": map[string]any{"kubeconfig": "/sandbox", "contentType": "x"},
		"leaderElection":   map[string]any{"leaderElect": false},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("merged (-want +got):\n%s", diff)
	}
	if user["clientConnection"].(map[string]any)["kubeconfig"] != "/mine" {
		t.Error("merging changed the user's fields")
	}
}
