package quota

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func inTopology(flavor, topology string) *kueue.ResourceFlavor {
	return &kueue.ResourceFlavor{
		ObjectMeta: metav1.ObjectMeta{Name: flavor},
		Spec:       kueue.ResourceFlavorSpec{TopologyName: new(kueue.TopologyReference(topology))},
	}
}

func levels(name string, labels ...string) *kueue.Topology {
	t := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, l := range labels {
		t.Spec.Levels = append(t.Spec.Levels, kueue.TopologyLevel{NodeLabel: l})
	}
	return t
}

func TestAFlavorWithTheLevelIsChosen(t *testing.T) {
	plain := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}
	for name, tc := range map[string]struct {
		levels []string
		want   string
		why    string
	}{
		"no level": {nil, "plain", ""},
		"a level":  {[]string{"rack"}, "racked", ""},
		"two":      {[]string{"block", "rack"}, "racked", ""},
		"one that no flavor has": {[]string{"row"}, "",
			"pod set main: flavor plain has no topology, and so no level row; the topology of flavor racked has no level row, but block, rack"},
	} {
		t.Run(name, func(t *testing.T) {
			tree := cluster(clusterQ("cq", group(of("plain", nvidiaGPU.String(), "8"), of("racked", nvidiaGPU.String(), "8"))), plain, inTopology("racked", "dc"))
			tree.SetTopology(levels("dc", "block", "rack"))
			r := Request{Queue: teamNLP, PodSets: []PodSet{{Name: "main", Count: 1, PerPod: Requests{nvidiaGPU: 1}, Levels: tc.levels}}}
			a, no := tree.Assign(r)
			got := ""
			if a != nil {
				got = a.Flavors[0][nvidiaGPU]
			}
			if got != tc.want || no.String() != tc.why {
				t.Errorf("flavor %q (%s), want %q (%s)", got, no, tc.want, tc.why)
			}
			if _, class, _ := tree.Look(r); (class == "") != (no == nil) {
				t.Errorf("a look says %q, an answer %v", class, no)
			}
		})
	}
}

func TestLevelsOfAFlavor(t *testing.T) {
	tree := New()
	tree.SetFlavor(inTopology("racked", "dc"))
	tree.SetFlavor(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "plain"}})
	tree.SetDefaultLevels(func(string) []string { return []string{"zone"} }, func(string) string { return "rack" })
	check := func(when, flavor, preferred string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, tree.Levels(flavor)); diff != "" {
			t.Errorf("%s: levels of %s (-want +got):\n%s", when, flavor, diff)
		}
		if got := tree.PreferredLevel(flavor); got != preferred {
			t.Errorf("%s: pods in %s prefer %q, want %q", when, flavor, got, preferred)
		}
	}
	check("before the Topology is there", "racked", "")
	tree.SetTopology(levels("dc", "block", "rack"))
	check("with its Topology", "racked", "rack", "block", "rack")
	check("without one", "plain", "", "zone")
	check("that does not exist", "gone", "")
	tree.DeleteTopology("dc")
	check("after the Topology has gone", "racked", "")
}
