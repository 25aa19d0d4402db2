package policyfiles

import (
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/policy/library"
	"github.com/muster-gpu/muster/policy/static"
)

// Static writes the ValidatingAdmissionPolicies of the library as the file with the
// webhook's configuration has it, or as it is by itself without one.
func Static(out io.Writer, config string) error {
	c := configv1alpha1.DefaultWebhook()
	if config != "" {
		var err error
		if c, err = configv1alpha1.LoadWebhook(config); err != nil {
			return err
		}
	}
	policies, err := library.Configured(c.Policies.Library)
	if err != nil {
		return err
	}
	objects, err := static.Generate(policies)
	if err != nil {
		return err
	}
	for _, object := range objects {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return fmt.Errorf("writing %s: %w", object.GetName(), err)
		}
		// Nothing has become of it yet.
		unstructured.RemoveNestedField(fields, "status")
		body, err := yaml.Marshal(fields)
		if err != nil {
			return fmt.Errorf("writing %s: %w", object.GetName(), err)
		}
		if _, err := fmt.Fprintf(out, "---\n%s", body); err != nil {
			return err
		}
	}
	return nil
}
