package placement

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
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

// TestDevicesAreNotCountedAsNone: nobody but Filter says how many of them there are.
func TestDevicesAreNotCountedAsNone(t *testing.T) {
	gpus := makeDeviceClass()
	gpus.Spec.ExtendedResourceName = new(string(gpuResource))
	for name, test := range map[string]struct {
		gang Gang
		want string
	}{
		"more GPUs than nodes have devices": {gangOf(class(makePod("p", 8), 1)), "NoPlacement: no node with 8 free GPUs passes: 1 cannot allocate all claims"},
		"more CPUs than any node has":       {gangOf(class(makePod("p", 2, cpus("9999")), 1)), "ExceedsCluster: needs 9999 CPUs on one node with 2 GPUs; the largest has 64"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClaimCluster(t, []runtime.Object{gpus, makeSlice("d0", 4)}, []*v1.Node{makeNode("d0", 0)})
			c.await(t, func() bool { return c.planner.claims.isDevice(gpuResource) })
			_, why, err := c.planner.Plan(c.ctx, c.fw, c.snap, test.gang)
			if err != nil || why == nil {
				t.Fatalf("it is placed: %v", err)
			}
			if diff := cmp.Diff(test.want, string(why.Class)+": "+why.Message); diff != "" {
				t.Errorf("reason (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNodesWhoseDevicesAreTakenAreUsable(t *testing.T) {
	for plugin, want := range map[string]bool{names.DynamicResources: true, GPUDevices: true, names.NodeAffinity: false} {
		status := fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "cannot allocate all claims").WithPlugin(plugin)
		if got := isUsable(status); got != want {
			t.Errorf("a node that %s refuses may be used one day: %v, want %v", plugin, got, want)
		}
	}
}
