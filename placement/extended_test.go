package placement

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Nodes that start with d have four devices behind nvidia.com/gpu and advertise none;
// p advertises four; n has neither.
func TestDevicesBehindAnExtendedResource(t *testing.T) {
	gpus := makeDeviceClass()
	name := string(gpuResource)
	gpus.Spec.ExtendedResourceName = &name
	hold := func(name, node string, n int) *v1.Pod { return makePod(name, n, on(node)) }
	tests := []struct {
		name    string
		nodes   []*v1.Node
		running []*v1.Pod
		gang    Gang
		want    string
	}{
		{"pods get devices, as many as there are", []*v1.Node{makeNode("d0", 0), makeNode("n", 0), makeNode("d1", 0)}, nil, gangOf(class(makePod("p", 2), 4)), "d0 x2, d1 x2"},
		{"and no more", []*v1.Node{makeNode("d0", 0), makeNode("n", 0), makeNode("d1", 0)}, nil, gangOf(class(makePod("p", 2), 5)), "none"},
		{"beside GPUs that nodes advertise", []*v1.Node{makeNode("d0", 0), makeNode("p", 4)}, nil, gangOf(class(makePod("p", 2), 4)), "d0 x2, p x2"},
		{"what holds will get is taken", []*v1.Node{makeNode("d0", 0), makeNode("d1", 0)}, []*v1.Pod{hold("a", "d0", 3)}, gangOf(class(makePod("p", 2), 2)), "d1 x2"},
		{"on nodes that advertise them holds take no devices", []*v1.Node{makeNode("d0", 0), makeNode("p", 4)}, []*v1.Pod{hold("a", "p", 3)}, gangOf(class(makePod("p", 2), 2)), "d0 x2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newClaimCluster(t, []runtime.Object{gpus, makeSlice("d0", 4), makeSlice("d1", 4)}, tt.nodes, tt.running...)
			c.await(t, func() bool { return c.planner.claims.isDevice(gpuResource) })
			before := c.dump(t)
			assignment, why, err := c.planner.Plan(c.ctx, c.fw, c.snap, tt.gang)
			if err != nil {
				t.Fatal(err)
			}
			got := "none"
			if why == nil {
				got = use(assignment[0])
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("nodes (-want +got):\n%s, why: %v", diff, why)
			}
			if diff := cmp.Diff(before, c.dump(t)); diff != "" {
				t.Errorf("the plan has left something (-before +after):\n%s", diff)
			}
			if hopeless, err := c.planner.Hopeless(c.snap, tt.gang, 0); err != nil || hopeless {
				t.Errorf("counted GPUs say that there is no hope: %v, %v", hopeless, err)
			}
		})
	}
}
