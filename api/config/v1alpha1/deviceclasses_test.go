package v1alpha1

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestDeviceClassMappingsThatAreWrong(t *testing.T) {
	gpus := DeviceClassMapping{Name: "nvidia.com/gpu", DeviceClassNames: []string{"gpu.nvidia.com"}}
	for name, test := range map[string]struct {
		mappings []DeviceClassMapping
		want     string
	}{
		"a resource twice":   {[]DeviceClassMapping{gpus, {Name: gpus.Name, DeviceClassNames: []string{"other"}}}, `at[1].name: Duplicate value: "nvidia.com/gpu"`},
		"a class twice":      {[]DeviceClassMapping{gpus, {Name: "other", DeviceClassNames: gpus.DeviceClassNames}}, `at[1].deviceClassNames[0]: Duplicate value: "gpu.nvidia.com"`},
		"no classes":         {[]DeviceClassMapping{{Name: gpus.Name}}, "at[0].deviceClassNames: Required value: DeviceClasses of which the devices are counted"},
		"all is well":        {[]DeviceClassMapping{gpus}, ""},
		"nothing is counted": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if errs := deviceClassMappings(field.NewPath("at"), test.mappings); len(errs) > 0 {
				got = errs.ToAggregate().Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
