package v1alpha1

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestTopologyOfFlavors(t *testing.T) {
	topology := Topology{
		Preset: "nvlink", PreferredLevel: "nvidia.com/gpu.clique",
		Flavors: []FlavorTopology{
			{Name: "a100", Levels: []string{"block", "rack"}, PreferredLevel: "rack"},
			{Name: "h100", PreferredLevel: "kubernetes.io/hostname"},
		},
	}
	for _, test := range []struct {
		flavor    string
		levels    []string
		preferred string
	}{
		{"gb200", []string{"nvidia.com/gpu.clique", "kubernetes.io/hostname"}, "nvidia.com/gpu.clique"},
		{"a100", []string{"block", "rack"}, "rack"},
		{"h100", []string{"nvidia.com/gpu.clique", "kubernetes.io/hostname"}, "kubernetes.io/hostname"},
	} {
		if diff := cmp.Diff(test.levels, topology.LevelsOf(test.flavor)); diff != "" {
			t.Errorf("levels of %s (-want +got):\n%s", test.flavor, diff)
		}
		if got := topology.PreferredLevelOf(test.flavor); got != test.preferred {
			t.Errorf("the pods in %s prefer %q, want %q", test.flavor, got, test.preferred)
		}
	}
	if got := (&Topology{}).LevelsOf("a100"); got != nil {
		t.Errorf("without configuration there are the levels %v", got)
	}
}

func TestPresetsAreLevels(t *testing.T) {
	for name, levels := range Presets {
		if errs := (&Topology{Levels: levels}).validate(field.NewPath("topology")); len(errs) > 0 {
			t.Errorf("preset %s: %v", name, errs)
		}
	}
}

func TestTopologyThatIsWrong(t *testing.T) {
	for name, test := range map[string]struct {
		topology Topology
		want     string
	}{
		"an unknown preset":            {Topology{Preset: "azure"}, `topology.preset: Unsupported value: "azure": supported values: "aws", "gke", "nvlink", "rack", "topograph", "topograph-0", "topograph-0-block", "zone"`},
		"a preset and levels":          {Topology{Preset: "aws", Levels: []string{"rack"}}, "topology.levels: Forbidden: a preset has its own levels"},
		"a level twice":                {Topology{Levels: []string{"rack", "rack"}}, `topology.levels[1]: Duplicate value: "rack"`},
		"the node before the last":     {Topology{Levels: []string{"kubernetes.io/hostname", "rack"}}, `topology.levels[0]: Invalid value: "kubernetes.io/hostname": must be the last level, not number 1 of 2`},
		"more levels than an object":   {Topology{Levels: []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q"}}, "topology.levels: Too many: 17: must have at most 16 items"},
		"a flavor twice":               {Topology{Flavors: []FlavorTopology{{Name: "a"}, {Name: "a"}}}, `topology.flavors[1].name: Duplicate value: "a"`},
		"a flavor's unknown preset":    {Topology{Flavors: []FlavorTopology{{Name: "a", Preset: "x"}}}, `topology.flavors[0].preset: Unsupported value: "x": supported values: "aws", "gke", "nvlink", "rack", "topograph", "topograph-0", "topograph-0-block", "zone"`},
		"all of it is as it should be": {Topology{Levels: []string{"block", "rack"}, PreferredLevel: "rack", Flavors: []FlavorTopology{{Name: "a", Preset: "aws"}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if errs := test.topology.validate(field.NewPath("topology")); len(errs) > 0 {
				got = errs.ToAggregate().Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
