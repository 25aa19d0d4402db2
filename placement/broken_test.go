package placement

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// brokenGPUs has the node give out fewer GPUs than it has.
func brokenGPUs(n int64) nodeOption {
	return func(node *v1.Node) {
		gpus := node.Status.Allocatable[gpuResource]
		node.Status.Capacity = v1.ResourceList{gpuResource: gpus}
		node.Status.Allocatable[gpuResource] = *resource.NewQuantity(gpus.Value()-n, resource.DecimalSI)
	}
}

func TestWhyNotTellsOfUnhealthyGPUs(t *testing.T) {
	for name, test := range map[string]struct {
		nodes []*v1.Node
		gpus  int
		pods  int
		want  string
	}{
		"one GPU":               {[]*v1.Node{makeNode("a", 8, brokenGPUs(1)), makeNode("b", 4)}, 8, 1, "; 1 node has a GPU that is unhealthy"},
		"some of one node":      {[]*v1.Node{makeNode("a", 8, brokenGPUs(2)), makeNode("b", 4)}, 8, 1, "; 1 node has 2 GPUs that are unhealthy"},
		"some of several nodes": {[]*v1.Node{makeNode("a", 8, brokenGPUs(2)), makeNode("b", 8, brokenGPUs(1)), makeNode("c", 8)}, 8, 2, "; 2 nodes have GPUs that are unhealthy, 3 in all"},
		"of nodes that may not be used anyway nothing is told": {[]*v1.Node{makeNode("a", 8, brokenGPUs(1), tainted("reserved")), makeNode("b", 4)}, 8, 1, ""},
		"nor to pods without GPUs":                             {[]*v1.Node{makeNode("a", 8, brokenGPUs(1))}, 0, 1000, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, test.nodes)
			_, why, err := c.planner.Plan(t.Context(), c.fw, c.snap, gangOf(class(makePod("worker", test.gpus), test.pods)))
			if err != nil || why == nil {
				t.Fatalf("there is a plan, or an error: %v", err)
			}
			if !strings.HasSuffix(why.Message, test.want) || strings.Contains(why.Message, "unhealthy") != (test.want != "") {
				t.Errorf("it says %q, want %q at its end", why.Message, test.want)
			}
		})
	}
}
