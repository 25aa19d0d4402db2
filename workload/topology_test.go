package workload

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestEncodeNodes(t *testing.T) {
	individual := func(prefix, suffix *string, roots ...string) []kueue.TopologyAssignmentSliceLevelValues {
		return []kueue.TopologyAssignmentSliceLevelValues{{
			Individual: &kueue.TopologyAssignmentSliceLevelIndividualValues{Prefix: prefix, Suffix: suffix, Roots: roots},
		}}
	}
	universal := []kueue.TopologyAssignmentSliceLevelValues{{Universal: new("n1")}}
	for name, tc := range map[string]struct {
		nodes []string
		want  []kueue.TopologyAssignmentSlice
	}{
		"one node for all": {[]string{"n1", "n1", "n1"}, []kueue.TopologyAssignmentSlice{{
			DomainCount: 1, ValuesPerLevel: universal, PodCounts: kueue.TopologyAssignmentSlicePodCounts{Universal: new(int32(3))},
		}}},
		"as many on every node": {[]string{"n1", "n1", "n2", "n2"}, []kueue.TopologyAssignmentSlice{{
			DomainCount: 2, ValuesPerLevel: individual(new("n"), nil, "1", "2"), PodCounts: kueue.TopologyAssignmentSlicePodCounts{Universal: new(int32(2))},
		}}},
		"different numbers, nothing in common": {[]string{"a", "b", "b"}, []kueue.TopologyAssignmentSlice{{
			DomainCount: 2, ValuesPerLevel: individual(nil, nil, "a", "b"), PodCounts: kueue.TopologyAssignmentSlicePodCounts{Individual: []int32{1, 2}},
		}}},
		"a node that comes back later keeps its place": {[]string{"a", "b", "a"}, []kueue.TopologyAssignmentSlice{{
			DomainCount: 3, ValuesPerLevel: individual(nil, nil, "a", "b", "a"), PodCounts: kueue.TopologyAssignmentSlicePodCounts{Universal: new(int32(1))},
		}}},
		"prefix and suffix do not overlap": {[]string{"aa", "aaa"}, []kueue.TopologyAssignmentSlice{{
			DomainCount: 2, ValuesPerLevel: individual(new("aa"), nil, "", "a"), PodCounts: kueue.TopologyAssignmentSlicePodCounts{Universal: new(int32(1))},
		}}},
		"a common end": {[]string{"ip-1.ec2", "ip-2.ec2"}, []kueue.TopologyAssignmentSlice{{
			DomainCount: 2, ValuesPerLevel: individual(new("ip-"), new(".ec2"), "1", "2"), PodCounts: kueue.TopologyAssignmentSlicePodCounts{Universal: new(int32(1))},
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			want := &kueue.TopologyAssignment{Levels: []string{"kubernetes.io/hostname"}, Slices: tc.want}
			if diff := cmp.Diff(want, EncodeNodes(tc.nodes)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if got := EncodeNodes(nil); got != nil {
		t.Errorf("no nodes are encoded as %v", got)
	}
}

// TestNodesRoundTrip: any list of nodes comes back as it was, in its order, and
// no bound of the API is passed on the way.
func TestNodesRoundTrip(t *testing.T) {
	name := rapid.OneOf(
		rapid.StringMatching(`(ip-)?[ab]{0,3}[a-c](\.internal)?`),
		rapid.Map(rapid.IntRange(0, 300), func(n int) string { return fmt.Sprintf("rack-%d-node-%03d", n%7, n) }),
		// Longer than a label may be: the parts still keep to the bounds.
		rapid.StringMatching(`x{66}[ab]{1,3}y{0,2}`),
	)
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.SliceOfN(name, 0, 40).Draw(t, "nodes")
		most := rapid.IntRange(1, 12).Draw(t, "domains per slice")
		assignment := encodeNodes(nodes, most)
		got, err := DecodeNodes(assignment)
		if err != nil || !slices.Equal(nodes, got) {
			t.Fatalf("%q came back as %q, err %v", nodes, got, err)
		}
		if assignment == nil {
			return
		}
		for _, slice := range assignment.Slices {
			if int(slice.DomainCount) > most {
				t.Fatalf("a slice of %d domains, at most %d are allowed", slice.DomainCount, most)
			}
			if values := slice.ValuesPerLevel[0].Individual; values != nil {
				for _, affix := range []*string{values.Prefix, values.Suffix} {
					if affix != nil && (*affix == "" || len(*affix) > 63) {
						t.Fatalf("an affix %q", *affix)
					}
				}
			}
		}
	})
}

func TestDecodeNodesOfOthers(t *testing.T) {
	host := []string{"kubernetes.io/hostname"}
	universal := func(names ...string) []kueue.TopologyAssignmentSliceLevelValues {
		var values []kueue.TopologyAssignmentSliceLevelValues
		for _, name := range names {
			values = append(values, kueue.TopologyAssignmentSliceLevelValues{Universal: &name})
		}
		return values
	}
	one := kueue.TopologyAssignmentSlicePodCounts{Universal: new(int32(1))}
	for name, tc := range map[string]struct {
		in   *kueue.TopologyAssignment
		want []string
		err  string
	}{
		"none": {nil, nil, ""},
		"higher levels beside the host": {&kueue.TopologyAssignment{Levels: []string{"rack", host[0]}, Slices: []kueue.TopologyAssignmentSlice{
			{DomainCount: 1, ValuesPerLevel: universal("r1", "n1"), PodCounts: one}}}, []string{"n1"}, ""},
		"no host level": {&kueue.TopologyAssignment{Levels: []string{"rack"}}, nil,
			`decoding a topology assignment: its lowest level is not kubernetes.io/hostname but one of ["rack"]`},
		"no levels": {&kueue.TopologyAssignment{}, nil,
			`decoding a topology assignment: its lowest level is not kubernetes.io/hostname but one of []`},
		"values for fewer levels": {&kueue.TopologyAssignment{Levels: host, Slices: []kueue.TopologyAssignmentSlice{{DomainCount: 1, PodCounts: one}}}, nil,
			"decoding a topology assignment: slice 0 has values for 0 levels of 1"},
		"fewer names than domains": {&kueue.TopologyAssignment{Levels: host, Slices: []kueue.TopologyAssignmentSlice{{DomainCount: 2, PodCounts: one,
			ValuesPerLevel: []kueue.TopologyAssignmentSliceLevelValues{{Individual: &kueue.TopologyAssignmentSliceLevelIndividualValues{Roots: []string{"a"}}}}}}}, nil,
			"decoding a topology assignment: slice 0: it has no value for each of its 2 domains"},
		"fewer counts than domains": {&kueue.TopologyAssignment{Levels: host, Slices: []kueue.TopologyAssignmentSlice{{DomainCount: 2, ValuesPerLevel: universal("a"),
			PodCounts: kueue.TopologyAssignmentSlicePodCounts{Individual: []int32{1}}}}}, nil,
			"decoding a topology assignment: slice 0: it has 1 pod counts for 2 domains"},
		"a negative count": {&kueue.TopologyAssignment{Levels: host, Slices: []kueue.TopologyAssignmentSlice{{DomainCount: 1, ValuesPerLevel: universal("a"),
			PodCounts: kueue.TopologyAssignmentSlicePodCounts{Universal: new(int32(-1))}}}}, nil,
			"decoding a topology assignment: slice 0: domain 0 has -1 pods"},
		"more pods than memory": {&kueue.TopologyAssignment{Levels: host, Slices: []kueue.TopologyAssignmentSlice{{DomainCount: 1, ValuesPerLevel: universal("a"),
			PodCounts: kueue.TopologyAssignmentSlicePodCounts{Universal: new(int32(2_000_000_000))}}}}, nil,
			"decoding a topology assignment: slice 0: domain 0 has 2000000000 pods"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeNodes(tc.in)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if (err == nil) != (tc.err == "") || err != nil && err.Error() != tc.err {
				t.Errorf("err %v, want %s", err, tc.err)
			}
		})
	}
}

func BenchmarkEncodeNodes(b *testing.B) {
	nodes := make([]string, 5000)
	for i := range nodes {
		nodes[i] = fmt.Sprintf("rack-%02d-node-%04d", i/400, i/2)
	}
	b.ReportAllocs()
	for b.Loop() {
		EncodeNodes(nodes)
	}
}

func TestDomainsOfSeveralLevelsAreReadPodByPod(t *testing.T) {
	rack := func(name string) *string { return &name }
	a := &kueue.TopologyAssignment{
		Levels: []string{"block", "rack"},
		Slices: []kueue.TopologyAssignmentSlice{{
			DomainCount: 2,
			ValuesPerLevel: []kueue.TopologyAssignmentSliceLevelValues{
				{Universal: rack("b1")},
				{Individual: &kueue.TopologyAssignmentSliceLevelIndividualValues{Prefix: rack("r"), Roots: []string{"1", "2"}}},
			},
			PodCounts: kueue.TopologyAssignmentSlicePodCounts{Individual: []int32{2, 1}},
		}},
	}
	got, err := DecodeDomains(a)
	if err != nil {
		t.Fatal(err)
	}
	want := []map[string]string{{"block": "b1", "rack": "r1"}, {"block": "b1", "rack": "r1"}, {"block": "b1", "rack": "r2"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("domains (-want +got):\n%s", diff)
	}
	a.Slices[0].ValuesPerLevel = a.Slices[0].ValuesPerLevel[:1]
	if _, err := DecodeDomains(a); err == nil {
		t.Error("an assignment without the values of a level is read")
	}
	if got, err := DecodeDomains(nil); got != nil || err != nil {
		t.Errorf("no assignment has the domains %v (%v)", got, err)
	}
}
