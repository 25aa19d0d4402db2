package placement

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"pgregory.net/rapid"
)

// TestFullNodesAreToldAsFilterWould: of nodes about which the Filter plugins are not
// asked, because they have too little room, the plugins would say the same.
func TestFullNodesAreToldAsFilterWould(t *testing.T) {
	full := 0
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
		defer cancel()
		nodes, running := drawCluster(t)
		gang := drawGang(t)
		c := newClusterIn(ctx, t, nodes, running...)
		infos, err := c.snap.List()
		if err != nil {
			t.Fatal(err)
		}
		trial := c.planner.newTrial(ctx, c.fw, c.snap, infos)
		for i := range gang.Classes {
			s, err := trial.newClassSearch(&gang, i)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.preFilter(ctx); err != nil {
				t.Fatal(err)
			}
			screen := s.screen()
			for _, node := range infos {
				refused, err := s.ask(ctx, node, &screen)
				if err != nil {
					t.Fatal(err)
				}
				if !refused.tooSmall {
					continue
				}
				status := s.filter(ctx, node)
				if !status.IsRejected() {
					t.Fatalf("the plugins let %s onto node %s, which is told to be too small", s.class.Name, node.Node().Name)
				}
				if status.Plugin() == names.NodePorts {
					// It is asked before.
					continue
				}
				full++
				told := refusals{wants: s.demand.wants()}
				told.count(node, refused)
				var got []string
				for i := range told.wants {
					if w := &told.wants[i]; w.nodes > 0 {
						text, _, _ := strings.Cut(w.insufficient(), " (")
						got = append(got, text)
					}
				}
				slices.Sort(got)
				if diff := cmp.Diff(slices.Sorted(slices.Values(status.Reasons())), got); diff != "" {
					t.Fatalf("of node %s (-plugins +told):\n%s", node.Node().Name, diff)
				}
			}
		}
	})
	if full == 0 {
		t.Error("no node was full")
	}
}

// TestReasonsAreTheSameEachTime: what is said of equal clusters is equal, so
// that nothing is written anew because of it.
func TestReasonsAreTheSameEachTime(t *testing.T) {
	said := map[string]int{}
	for range 20 {
		c := newCluster(t, append(oneBlock(3, 3, 3), makeNodes(3, 4, tainted("a"))...), busy("a0", "a1", "b0", "b1", "c0", "c1")...)
		for _, gang := range []Gang{
			gangOf(close(class(makePod("worker", 8), 3), requiring("rack"))),
			gangOf(class(makePod("worker", 8), 7)),
			gangOf(class(makePod("worker", 8), 2), class(makePod("other", 0, cpus("70")), 1)),
		} {
			_, why, err := c.planner.Plan(c.ctx, c.fw, c.snap, gang)
			if err != nil || why == nil {
				t.Fatalf("got reason %v, error %v", why, err)
			}
			said[why.Message]++
		}
	}
	if len(said) != 3 {
		t.Errorf("three gangs are told %q", slices.Sorted(maps.Keys(said)))
	}
}
