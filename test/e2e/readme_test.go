package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// readme creates the manifests that the README shows, in their own namespace.
func readme(t *testing.T, tm team) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	tm.namespace = "team-nlp"
	t.Cleanup(func() { tm.removeAll(t) })
	apply := func(file string) {
		t.Helper()
		content, err := os.ReadFile(filepath.Join(root, "docs", "examples", file))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(text, content) {
			t.Errorf("the README does not show docs/examples/%s as it is", file)
		}
		for _, object := range decode(t, content) {
			if err := tm.client.Create(t.Context(), object); err != nil {
				t.Fatalf("creating %s %s: %v", object.GetKind(), object.GetName(), err)
			}
		}
	}
	apply("queue.yaml")
	apply("apple.yaml")
	tm.runs(t, "apple", 4)
	apply("banana.yaml")
	const why = "needs 16 GPUs in queue team-nlp, 8 of 24 free"
	tm.waits(t, "banana", "WaitingForQuota", why)
	tm.says(t, "banana", "Pending", "pending: "+why)
	if !strings.Contains(string(text), "pending: "+why) {
		t.Errorf("the README does not show %q", why)
	}
	tm.end(t, "apple")
	tm.finishes(t, "apple")
	tm.runs(t, "banana", 4)
}

func decode(t *testing.T, content []byte) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
}
