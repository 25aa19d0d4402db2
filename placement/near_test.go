package placement

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/api/reason"
)

// alone has the pods of a class in one rack, and no other classes that are
// alone there.
func alone(p *v1.Pod) {
	p.Labels["alone"] = p.Name
	near(p.Name, "rack")(p)
	p.Spec.Affinity.PodAntiAffinity = &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
		TopologyKey: "rack", LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "alone", Operator: metav1.LabelSelectorOpExists},
			{Key: "alone", Operator: metav1.LabelSelectorOpNotIn, Values: []string{p.Name}},
		}},
	}}}
}

// racks are nodes of 8 GPUs, a0, a1, ... b0, ..., as many in each rack as is
// said.
func racks(nodes ...int) []*v1.Node {
	var out []*v1.Node
	for i, n := range nodes {
		rack := string(rune('a' + i))
		for k := range n {
			out = append(out, makeNode(fmt.Sprintf("%s%d", rack, k), 8, nodeLabel("rack", rack)))
		}
	}
	return out
}

func TestClassesThatNeedADomain(t *testing.T) {
	for _, test := range []struct {
		name    string
		nodes   []*v1.Node
		running []*v1.Pod
		gang    Gang
		want    []string
		why     *reason.Reason
	}{
		{
			name:  "the domain that leaves the least over is taken",
			nodes: racks(4, 2, 3),
			gang:  gangOf(class(makePod("worker", 8, near("worker", "rack")), 2)),
			want:  []string{"b0 x1, b1 x1"},
		},
		{
			name:  "each takes a domain for itself",
			nodes: racks(2, 2),
			gang:  gangOf(class(makePod("first", 8, alone), 2), class(makePod("second", 8, alone), 2)),
			want:  []string{"a0 x1, a1 x1", "b0 x1, b1 x1"},
		},
		{
			name:  "a small one before a large one leaves the large domain free",
			nodes: racks(3, 1),
			gang:  gangOf(class(makePod("small", 8, alone), 1), class(makePod("large", 8, alone), 3)),
			want:  []string{"b0 x1", "a0 x1, a1 x1, a2 x1"},
		},
		{
			name:  "what counts is what all its pods ask for, not what one does",
			nodes: racks(1, 2),
			running: []*v1.Pod{
				makePod("busy-0", 0, cpus("60"), on("b0")), makePod("busy-1", 0, cpus("60"), on("b1")),
			},
			gang: gangOf(class(makePod("small", 8, alone), 1), class(makePod("large", 4, alone, cpus("30")), 2)),
			want: []string{"b0 x1", "a0 x2"},
		},
		{
			name:  "pods that may be anywhere leave the domains to them",
			nodes: racks(2, 2),
			gang:  gangOf(class(makePod("driver", 8), 2), class(makePod("large", 4, alone), 4)),
			want:  []string{"b0 x1, b1 x1", "a0 x2, a1 x2"},
		},
		{
			name:  "a domain that turns out too small is left for the next",
			nodes: append(racks(1, 3), makeNode("a1", 8, nodeLabel("rack", "a"), cordoned)),
			gang:  gangOf(class(makePod("worker", 8, near("worker", "rack")), 2)),
			want:  []string{"b0 x1, b1 x1"},
		},
		{
			name:  "more of them than domains",
			nodes: racks(2, 2),
			gang:  gangOf(class(makePod("a", 1, alone), 1), class(makePod("b", 1, alone), 1), class(makePod("c", 1, alone), 1)),
			why:   reason.New(reason.NoPlacement, `pod set "c": no node with a free GPU passes: 4 node(s) didn't match pod anti-affinity rules`),
		},
		{
			name:    "a part that is planned again goes to its siblings",
			nodes:   racks(4, 2),
			running: []*v1.Pod{makePod("worker", 8, near("worker", "rack"), on("a0"))},
			gang:    gangOf(Class{Name: "worker", Pod: makePod("worker", 8, near("worker", "rack")), Count: 1, Fixed: []string{"a0"}}),
			want:    []string{"a1 x1"},
		},
		{
			name:  "nodes without the label are in no domain",
			nodes: append(makeNodes(2, 8), racks(2)...),
			gang:  gangOf(class(makePod("worker", 8, near("worker", "rack")), 2)),
			want:  []string{"a0 x1, a1 x1"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t, test.nodes, test.running...)
			before := c.dump(t)
			plan, why, err := NewPlanner(isGPU).Plan(c.ctx, c.fw, c.snap, test.gang)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, nodes := range plan {
				got = append(got, use(nodes))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.why, why); diff != "" {
				t.Errorf("reason (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, c.dump(t)); diff != "" {
				t.Errorf("the snapshot changed:\n%s", diff)
			}
		})
	}
}

func BenchmarkPlanDomains(b *testing.B) {
	for _, of := range []struct{ racks, jobs, gpus int }{{32, 16, 8}, {128, 64, 8}, {128, 64, 1}} {
		b.Run(fmt.Sprintf("racks=%d/jobs=%d/gpus=%d", of.racks, of.jobs, of.gpus), func(b *testing.B) {
			var nodes []*v1.Node
			for r := range of.racks {
				for n := range 8 {
					nodes = append(nodes, makeNode(fmt.Sprintf("r%d-%d", r, n), 8, nodeLabel("rack", fmt.Sprint(r))))
				}
			}
			c := newCluster(b, nodes)
			var classes []Class
			for i := range of.jobs {
				classes = append(classes, class(makePod(fmt.Sprintf("job-%d", i), of.gpus, alone), 8))
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, why, err := NewPlanner(isGPU).Plan(c.ctx, c.fw, c.snap, gangOf(classes...)); err != nil || why != nil {
					b.Fatal(why, err)
				}
			}
		})
	}
}
