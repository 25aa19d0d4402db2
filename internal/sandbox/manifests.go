package sandbox

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/muster-gpu/muster/internal/kustomization"
)

// The kinds that the sandbox treats specially.
const (
	kindNamespace         = "Namespace"
	kindCRD               = "CustomResourceDefinition"
	kindMutatingWebhook   = "MutatingWebhookConfiguration"
	kindValidatingWebhook = "ValidatingWebhookConfiguration"
	kindRuntime           = "ClusterTrainingRuntime"
)

// buildKustomization renders the kustomization in folder root of file trees, with more
// files.
func buildKustomization(root string, trees map[string]fs.FS, files map[string]string) ([]*unstructured.Unstructured, error) {
	resources, err := kustomization.Build(root, trees, files)
	if err != nil {
		return nil, err
	}
	content, err := resources.AsYaml()
	if err != nil {
		return nil, fmt.Errorf("encoding the kustomization %s: %w", root, err)
	}
	return decodeObjects(bytes.NewReader(content))
}

// decodeObjects reads YAML documents; empty ones are left out.
func decodeObjects(r io.Reader) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(r, 64<<10)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decoding manifest %d: %w", len(objects)+1, err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// readObjects reads the YAML documents of a file.
func readObjects(path string) ([]*unstructured.Unstructured, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading manifests: %w", err)
	}
	objects, err := decodeObjects(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return objects, nil
}

// writeObjects writes YAML documents.
func writeObjects(path string, objects []*unstructured.Unstructured) error {
	var content bytes.Buffer
	for _, object := range objects {
		document, err := sigsyaml.Marshal(object.Object)
		if err != nil {
			return fmt.Errorf("encoding %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		content.WriteString("---\n")
		content.Write(document)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("creating the folder of %s: %w", path, err)
	}
	return writeFile(path, content.Bytes(), 0o644)
}

// keepKinds leaves out everything that is run by processes here and not by
// pods (deployments, their services and certificates), and what other
// operators would define.
func keepKinds(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	var kept []*unstructured.Unstructured
	for _, object := range objects {
		switch object.GroupVersionKind().Group {
		case "apps", "policy", "cert-manager.io", "monitoring.coreos.com", "apiregistration.k8s.io":
			continue
		}
		switch object.GetKind() {
		case "Service", "Secret":
			continue
		}
		kept = append(kept, object)
	}
	return kept
}

// stages sorts objects into those that others need first, and webhooks and
// runtimes, which need a running server.
type stages struct {
	definitions, rest, webhooks, runtimes []*unstructured.Unstructured
}

func stage(objects []*unstructured.Unstructured) stages {
	var s stages
	for _, object := range objects {
		switch object.GetKind() {
		case kindNamespace, kindCRD:
			s.definitions = append(s.definitions, object)
		case kindMutatingWebhook, kindValidatingWebhook:
			s.webhooks = append(s.webhooks, object)
		case kindRuntime:
			s.runtimes = append(s.runtimes, object)
		default:
			s.rest = append(s.rest, object)
		}
	}
	return s
}

// pointWebhooks makes the webhooks of a configuration call a local port
// instead of a service. With ca, it becomes their caBundle; without, the
// bundle is left to the webhook's own program.
func pointWebhooks(configuration *unstructured.Unstructured, port int, ca []byte) error {
	webhooks, found, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	if err != nil || !found {
		return fmt.Errorf("%s %s has no webhooks (%w)", configuration.GetKind(), configuration.GetName(), err)
	}
	for i, entry := range webhooks {
		webhook, ok := entry.(map[string]any)
		if !ok {
			return fmt.Errorf("webhook %d of %s is not an object", i, configuration.GetName())
		}
		service, found, err := unstructured.NestedMap(webhook, "clientConfig", "service")
		if err != nil || !found {
			return fmt.Errorf("webhook %v of %s has no clientConfig.service", webhook["name"], configuration.GetName())
		}
		servicePath, _ := service["path"].(string)
		clientConfig := map[string]any{"url": "https://" + loopback(port) + path.Join("/", servicePath)}
		if ca != nil {
			clientConfig["caBundle"] = base64.StdEncoding.EncodeToString(ca)
		}
		webhook["clientConfig"] = clientConfig
	}
	return unstructured.SetNestedSlice(configuration.Object, webhooks, "webhooks")
}

// dropConversion removes a conversion webhook from a definition. The
// definitions that carry one have a single version, which needs none.
func dropConversion(object *unstructured.Unstructured) {
	if object.GetKind() == kindCRD {
		unstructured.RemoveNestedField(object.Object, "spec", "conversion")
	}
}
