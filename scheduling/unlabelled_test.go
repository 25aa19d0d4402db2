package scheduling

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/quota"
)

func TestFlavorsAreToldOfNodesThatLackLabels(t *testing.T) {
	flavorOf := func(topology string) *kueue.ResourceFlavor {
		f := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"flavor": "gpu"}}}
		if topology != "" {
			f.Spec.TopologyName = new(kueue.TopologyReference(topology))
		}
		return f
	}
	for name, tc := range map[string]struct {
		flavor *kueue.ResourceFlavor
		// racks are the racks of the nodes, "" for no label.
		racks []string
		want  []string
	}{
		"all are labelled": {flavorOf("dc"), []string{"a", "b"}, nil},
		"some are not": {flavorOf("dc"), []string{"a", "", ""}, []string{
			"Warning TopologyIncomplete 2 of its 3 nodes lack the label rack, a level of its topology: they are near no other there"}},
		"none is":                    {flavorOf("dc"), []string{"", ""}, []string{"Warning TopologyIncomplete none of its 2 nodes has the label rack, a level of Topology dc"}},
		"there are no nodes":         {flavorOf("dc"), nil, nil},
		"none is, by configuration":  {flavorOf(""), []string{"", ""}, nil},
		"some are, by configuration": {flavorOf(""), []string{"a", ""}, []string{"Warning TopologyIncomplete 1 of its 2 nodes lack the label rack, a level of its topology: they are near no other there"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 8, 8)
			recorder := record.NewFakeRecorder(10)
			r := &reporter{Jobs: s.jobsOn(t, interceptor.Funcs{}, tc.flavor)}
			r.recorder = recorder
			nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
			r.nodes = corelisters.NewNodeLister(nodes)
			for i, rack := range append(tc.racks, "other") {
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: string(rune('a' + i)), Labels: map[string]string{"flavor": "gpu", "rack": rack}}}
				if rack == "other" {
					// It is of another flavor.
					n.Labels = nil
				}
				if err := nodes.Add(n); err != nil {
					t.Fatal(err)
				}
			}
			s.UpdateQuota(func(tree *quota.Tree) {
				tree.SetFlavor(tc.flavor)
				tree.SetTopology(&kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: "dc"}, Spec: kueue.TopologySpec{Levels: []kueue.TopologyLevel{{NodeLabel: "rack"}}}})
				tree.SetDefaultLevels(func(string) []string { return []string{"rack"} }, func(string) string { return "" })
			})
			told := func() (out []string) {
				t.Helper()
				if err := r.tellTopologies(t.Context()); err != nil {
					t.Fatal(err)
				}
				for len(recorder.Events) > 0 {
					out = append(out, <-recorder.Events)
				}
				return out
			}
			if diff := cmp.Diff(tc.want, told()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			r.lookedAt = time.Time{}
			if again := told(); len(again) > 0 {
				t.Errorf("told once more: %q", again)
			}
		})
	}
}

func TestLevelsTheOtherWayRound(t *testing.T) {
	flavorWith := func(name string, levels ...string) leveled {
		return leveled{&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}}, levels}
	}
	gpu := flavorWith("gpu", "zone", "block", "rack")
	others := []leveled{gpu, flavorWith("same", "block", "rack"), flavorWith("cpu", "zone", "rack", "block"), flavorWith("none", "row")}
	want := []fault{{"not cpu", "its topology has rack inside block, and that of flavor cpu the other way round"}}
	if diff := cmp.Diff(want, gpu.contradicts(others), cmp.AllowUnexported(fault{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
