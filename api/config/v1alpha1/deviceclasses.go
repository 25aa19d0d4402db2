package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/muster-gpu/muster/api/gpu"
)

// DeviceClasses are the resources that mappings name, by the DeviceClasses.
func DeviceClasses(mappings []DeviceClassMapping) map[string]corev1.ResourceName {
	out := map[string]corev1.ResourceName{}
	for _, m := range mappings {
		for _, class := range m.DeviceClassNames {
			out[class] = corev1.ResourceName(m.Name)
		}
	}
	return out
}

// defaultDeviceClasses count NVIDIA's devices of whole GPUs.
func defaultDeviceClasses() []DeviceClassMapping {
	return []DeviceClassMapping{{Name: string(gpu.NVIDIA), DeviceClassNames: []string{gpu.Driver}}}
}

func deviceClassMappings(at *field.Path, mappings []DeviceClassMapping) field.ErrorList {
	var errs field.ErrorList
	names, classes := sets.New[string](), sets.New[string]()
	for i, m := range mappings {
		at := at.Index(i)
		errs = append(errs, invalid(at.Child("name"), m.Name, validation.IsQualifiedName(m.Name))...)
		if names.Has(m.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), m.Name))
		}
		names.Insert(m.Name)
		if len(m.DeviceClassNames) == 0 {
			errs = append(errs, field.Required(at.Child("deviceClassNames"), "DeviceClasses of which the devices are counted"))
		}
		for k, class := range m.DeviceClassNames {
			errs = append(errs, objectName(at.Child("deviceClassNames").Index(k), class)...)
			if classes.Has(class) {
				errs = append(errs, field.Duplicate(at.Child("deviceClassNames").Index(k), class))
			}
			classes.Insert(class)
		}
	}
	return errs
}
