package v1alpha1

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestIslandsThatAreWrong(t *testing.T) {
	bridged := ProductIslands{"NVIDIA-A100-80GB-PCIe", ArrangedBridges}
	for name, test := range map[string]struct {
		islands Islands
		want    string
	}{
		"nobody chooses":       {Islands{}, `islands.enforcement: Unsupported value: "": supported values: "annotation", "dra", "predict"`},
		"a product twice":      {Islands{Enforcement: IslandsPredict, Products: []ProductIslands{bridged, bridged}}, `islands.products[1].product: Duplicate value: "NVIDIA-A100-80GB-PCIe"`},
		"no product":           {Islands{Enforcement: IslandsPredict, Products: []ProductIslands{{"", ArrangedAlike}}}, "islands.products[0].product: Required value: a value of the node label nvidia.com/gpu.product"},
		"what no label can be": {Islands{Enforcement: IslandsPredict, Products: []ProductIslands{{"A 100", ArrangedAlike}}}, `islands.products[0].product: Invalid value: "A 100": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`},
		"nobody arranges so":   {Islands{Enforcement: IslandsPredict, Products: []ProductIslands{{"A100", "ring"}}}, `islands.products[0].arrangement: Unsupported value: "ring": supported values: "alike", "cube-mesh", "nvlink-pairs", "nvswitch", "pcie-pairs"`},
		"all is well":          {Islands{Enforcement: IslandsAnnotation, Products: []ProductIslands{bridged}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if errs := test.islands.validate(field.NewPath("islands")); len(errs) > 0 {
				got = errs.ToAggregate().Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
