package placement

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

func avoiding(c Class, nodes ...string) Class {
	c.Avoid = nodes
	return c
}

// TestTopologyBesideOtherConstraints: the domains of a group and what else its
// classes say of nodes go together.
func TestTopologyBesideOtherConstraints(t *testing.T) {
	rack, block := requiring("rack"), requiring("block")
	offCPUs := func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
			NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "kind", Operator: v1.NodeSelectorOpDoesNotExist}}}},
		}}}
	}
	twoBlocks := func() []*v1.Node {
		return ofBlock(racks(2, 2, 1, 2, 3), func(n *v1.Node) string {
			if n.Labels["rack"] <= "c" {
				return "x"
			}
			return "y"
		})
	}
	loud := func(p *v1.Pod) { p.Labels = map[string]string{"app": "loud"} }
	crowded := make([]*v1.Pod, 0, 190)
	for i := range 190 {
		crowded = append(crowded, makePod(fmt.Sprintf("loud-%d", i), 0, loud, on(fmt.Sprintf("a%d", i))))
	}
	for _, test := range []struct {
		name    string
		nodes   []*v1.Node
		running []*v1.Pod
		gang    Gang
		want    []string
	}{
		{
			name: "a leader is kept off the nodes that it avoids", nodes: oneBlock(2),
			gang: gangOf(avoiding(leader(class(makePod("launcher", 0), 1), rack), "a0"), close(class(makePod("worker", 8), 2), rack)),
			want: []string{"a1", "a1 a0"},
		},
		{
			name: "each class of a group is kept off those that it avoids itself", nodes: oneBlock(3),
			gang: gangOf(close(class(makePod("worker", 8), 1), rack), avoiding(close(class(makePod("worker", 8), 1), rack), "a1")),
			want: []string{"a0", "a2"},
		},
		{
			name: "classes whose pods must share a rack stay in one block", nodes: twoBlocks(),
			gang: gangOf(close(class(makePod("first", 8, near("first", "rack")), 2), block), close(class(makePod("second", 8, near("second", "rack")), 3), block)),
			want: []string{"d0 d1", "e0 e1 e2"},
		},
		{
			name: "pods that are spread come back to their slices", nodes: oneBlock(3, 3, 2), running: busy("a0", "b0"),
			gang: gangOf(returning(class(makePod("worker", 8, spread("worker", v1.LabelHostname, 1)), 0),
				inRacks(Topology{Level: "block", Required: true, Slices: []Slice{{"rack", 2}}}), "a0", "", "", "b0")),
			want: []string{"a1 b1"},
		},
		{
			name: "a slice of which a pod is over and none stays is one slice still", nodes: oneBlock(2, 2),
			gang: gangOf(returning(class(makePod("worker", 8), 0), inRacks(Topology{Slices: []Slice{{"rack", 2}}}), "", Over, "", "")),
			want: []string{"a0 b0 b1"},
		},
		{
			name: "what comes back beside others is close to the first of them though none of these comes", nodes: oneBlock(2, 2), running: busy("b0", "b1"),
			gang: gangOf(beside(class(makePod("launcher", 0), 1), rack), returning(class(makePod("worker", 8), 0), rack, "b1", "b0")),
			want: []string{"b1", ""},
		},
		{
			name:  "a leader that is kept off the nodes of the others is in their rack",
			nodes: append(oneBlock(2, 2), makeNode("b-cpu", 0, nodeLabel("rack", "b"), nodeLabel("block", "x"), nodeLabel("kind", "cpu"))),
			gang: gangOf(leader(class(makePod("launcher", 0, selecting("kind", "cpu")), 1), rack),
				close(class(makePod("worker", 8, offCPUs), 2), rack)),
			want: []string{"b-cpu", "b0 b1"},
		},
		{
			name: "many nodes are refused the leader for their pods", nodes: oneBlock(200), running: crowded,
			gang: gangOf(leader(class(makePod("launcher", 0, apart("loud", v1.LabelHostname)), 1), rack), close(class(makePod("worker", 8), 2), rack)),
			want: []string{"a190", "a190 a0"},
		},
		{
			name: "many nodes are refused for their pods", nodes: oneBlock(200), running: crowded,
			gang: gangOf(close(class(makePod("worker", 8, apart("loud", v1.LabelHostname)), 2), rack)),
			want: []string{"a190 a191"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t, test.nodes, test.running...)
			before := c.dump(t)
			plan, why, err := c.planner.Plan(c.ctx, c.fw, c.snap, test.gang)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, nodes := range plan {
				got = append(got, strings.Join(nodes, " "))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("plan (-want +got), %v:\n%s", why, diff)
			}
			if diff := cmp.Diff(before, c.dump(t)); diff != "" {
				t.Errorf("the snapshot changed:\n%s", diff)
			}
		})
	}
}
