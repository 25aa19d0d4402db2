package workload

import (
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestTopologyAnnotationsThatDoNotGoTogether(t *testing.T) {
	const (
		required      = kueue.PodSetRequiredTopologyAnnotation
		preferred     = kueue.PodSetPreferredTopologyAnnotation
		unconstrained = kueue.PodSetUnconstrainedTopologyAnnotation
		slice         = kueue.PodSetSliceRequiredTopologyAnnotation
		size          = kueue.PodSetSliceSizeAnnotation
		group         = kueue.PodSetGroupName
		layers        = kueue.PodSetSliceRequiredTopologyConstraintsAnnotation
	)
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        string
	}{
		"none":                        {nil, ""},
		"a level and slices":          {map[string]string{required: "block", slice: "rack", size: "2"}, ""},
		"slices alone":                {map[string]string{slice: "rack", size: "2"}, ""},
		"a group":                     {map[string]string{preferred: "rack", group: "g"}, ""},
		"two levels":                  {map[string]string{required: "rack", preferred: "block"}, "pods has more than one of the annotations " + required + ", " + preferred + " and " + unconstrained},
		"a level and none":            {map[string]string{required: "rack", unconstrained: "true"}, "pods has more than one of the annotations " + required + ", " + preferred + " and " + unconstrained},
		"slices without a size":       {map[string]string{slice: "rack"}, "pods has only one of the annotations " + slice + " and " + size},
		"a size without slices":       {map[string]string{size: "2"}, "pods has only one of the annotations " + slice + " and " + size},
		"a group of slices":           {map[string]string{required: "rack", group: "g", slice: "rack", size: "2"}, "pods has the annotations " + group + " and " + slice + ", which do not go together"},
		"a group without a level":     {map[string]string{group: "g"}, "pods has the annotation " + group + " without " + required + " or " + preferred},
		"a group that is a number":    {map[string]string{required: "rack", group: "1"}, `pods has the annotation ` + group + `="1", which is not a name: it must not be empty or a number`},
		"slices within slices":        {map[string]string{layers: `[{"topology":"block","size":4},{"topology":"rack","size":2}]`}, ""},
		"no layers of slices":         {map[string]string{layers: "[]"}, "pods has the annotation " + layers + `="[]", which has 0 layers, not 1 to 3`},
		"layers that are no list":     {map[string]string{layers: "{"}, "pods has the annotation " + layers + `="{", which is not a list of topologies and sizes: unexpected end of JSON input`},
		"a layer without a label":     {map[string]string{layers: `[{"size":4}]`}, "pods has the annotation " + layers + `="[{\"size\":4}]", in which "" is not the name of a node label of at most 63 characters`},
		"a layer without a size":      {map[string]string{layers: `[{"topology":"rack"}]`}, "pods has the annotation " + layers + `="[{\"topology\":\"rack\"}]", in which the slices of rack have 0 pods`},
		"a size with a rest":          {map[string]string{layers: `[{"topology":"block","size":4},{"topology":"rack","size":3}]`}, "pods has the annotation " + layers + `="[{\"topology\":\"block\",\"size\":4},{\"topology\":\"rack\",\"size\":3}]", in which 4 pods are not whole slices of 3`},
		"a layer twice":               {map[string]string{layers: `[{"topology":"rack","size":4},{"topology":"rack","size":2}]`}, "pods has the annotation " + layers + `="[{\"topology\":\"rack\",\"size\":4},{\"topology\":\"rack\",\"size\":2}]", which has rack twice`},
		"layers beside slices":        {map[string]string{layers: "[]", slice: "rack", size: "2"}, "pods has the annotation " + layers + " beside " + slice + " or " + size + ", which do not go together"},
		"a group of layers":           {map[string]string{required: "rack", group: "g", layers: "[]"}, "pods has the annotations " + group + " and " + layers + ", which do not go together"},
		"a level that is no label":    {map[string]string{required: "a rack"}, `pods has the annotation ` + required + `="a rack", which is not the name of a node label`},
		"something that is not a yes": {map[string]string{unconstrained: "perhaps"}, `pods has the annotation ` + unconstrained + `="perhaps", which is not true or false`},
	} {
		t.Run(name, func(t *testing.T) {
			_, no := topologyOf("pods", tc.annotations, kueue.PodSetTopologyRequest{})
			if no.String() != tc.want {
				t.Errorf("got %q, want %q", no, tc.want)
			}
		})
	}
}

func TestCheckTopology(t *testing.T) {
	set := func(name string, count int32, r kueue.PodSetTopologyRequest) PodSet {
		return PodSet{Name: name, Count: count, Topology: &r}
	}
	rack := kueue.PodSetTopologyRequest{Required: new("rack"), PodSetGroupName: new("g")}
	block := kueue.PodSetTopologyRequest{Required: new("block"), PodSetGroupName: new("g")}
	slices := kueue.PodSetTopologyRequest{PodSetSliceRequiredTopology: new("rack"), PodSetSliceSize: new(int32(4))}
	nested := kueue.PodSetTopologyRequest{PodsetSliceRequiredTopologyConstraints: []kueue.PodsetSliceRequiredTopologyConstraint{
		{Topology: "block", Size: 4}, {Topology: "rack", Size: 2},
	}}
	for name, tc := range map[string]struct {
		sets []PodSet
		want string
	}{
		"a leader and its workers":  {[]PodSet{set("leader", 1, rack), set("worker", 4, rack)}, ""},
		"a group of one":            {[]PodSet{set("leader", 1, rack)}, `the pod set group "g" has 1 pod sets; a group has 2`},
		"a group of three":          {[]PodSet{set("a", 1, rack), set("b", 1, rack), set("c", 1, rack)}, `the pod set group "g" has 3 pod sets; a group has 2`},
		"no leader":                 {[]PodSet{set("a", 2, rack), set("b", 3, rack)}, `the pod set group "g" has 2 and 3 pods; one of its pod sets must have 1`},
		"different levels":          {[]PodSet{set("a", 1, rack), set("b", 3, block)}, `the pod sets of the group "g" ask for different topologies`},
		"slices":                    {[]PodSet{set("a", 6, slices)}, ""},
		"slices larger than it all": {[]PodSet{set("a", 3, slices)}, `pod set "a" asks for slices of 4 pods and has 3`},
		"slices within slices":      {[]PodSet{set("a", 8, nested)}, ""},
		"not whole ones":            {[]PodSet{set("a", 6, nested)}, `pod set "a" asks for slices within slices, and its 6 pods are not whole slices of 4`},
		"no request at all":         {[]PodSet{{Name: "a", Count: 1}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if no := CheckTopology(&Job{PodSets: tc.sets}); no.String() != tc.want {
				t.Errorf("got %q, want %q", no, tc.want)
			}
		})
	}
}
