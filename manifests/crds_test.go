package manifests_test

import (
	"io/fs"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/muster-gpu/muster/manifests"
)

// definition is the part of a CustomResourceDefinition that Muster relies on.
type definition struct {
	Metadata struct{ Name string }
	Spec     struct {
		Conversion any
		Versions   []struct {
			Name                     string
			Served, Storage          bool
			AdditionalPrinterColumns []struct{ Description string }
			Schema                   struct {
				OpenAPIV3Schema map[string]any
			}
		}
	}
}

func TestTheQueueDefinitionsServeBothVersionsAndStoreTheNewerWithoutDescriptions(t *testing.T) {
	files, err := fs.Glob(manifests.FS, "crds/kueue/kueue.x-k8s.io_*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		content, err := fs.ReadFile(manifests.FS, file)
		if err != nil {
			t.Fatal(err)
		}
		var crd definition
		if err := yaml.Unmarshal(content, &crd); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		names = append(names, crd.Metadata.Name)
		if n := len(crd.Spec.Versions); n != 2 {
			t.Fatalf("%s has %d versions, want v1beta1 and v1beta2", file, n)
		}
		old, v := crd.Spec.Versions[0], crd.Spec.Versions[1]
		if old.Name != "v1beta1" || !old.Served || old.Storage || v.Name != "v1beta2" || !v.Served || !v.Storage || crd.Spec.Conversion != nil {
			t.Errorf("%s: versions %s, served %v, stored %v, and %s, served %v, stored %v, conversion %v; want v1beta1 and v1beta2 served and v1beta2 stored",
				file, old.Name, old.Served, old.Storage, v.Name, v.Served, v.Storage, crd.Spec.Conversion)
		}
		for _, column := range v.AdditionalPrinterColumns {
			if column.Description != "" {
				t.Errorf("%s: a printer column is described: %q", file, column.Description)
			}
		}
		if text, found := description(v.Schema.OpenAPIV3Schema); found {
			t.Errorf("%s: a field is described: %q", file, text)
		}
	}
	want := []string{
		"admissionchecks.kueue.x-k8s.io", "clusterqueues.kueue.x-k8s.io", "cohorts.kueue.x-k8s.io",
		"localqueues.kueue.x-k8s.io", "resourceflavors.kueue.x-k8s.io", "topologies.kueue.x-k8s.io",
		"workloadpriorityclasses.kueue.x-k8s.io", "workloads.kueue.x-k8s.io",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("definitions (-want +got):\n%s", diff)
	}
}

// description finds a description in a schema. A property may itself be called
// description; its value is then a schema and no text.
func description(node any) (string, bool) {
	switch node := node.(type) {
	case map[string]any:
		if text, ok := node["description"].(string); ok {
			return text, true
		}
		for _, child := range node {
			if text, found := description(child); found {
				return text, true
			}
		}
	case []any:
		for _, child := range node {
			if text, found := description(child); found {
				return text, true
			}
		}
	}
	return "", false
}
