package placement

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/api/reason"
)

const sliceResource = v1.ResourceName("nvidia.com/mig-1g.10gb")

// TestSlicesBesideWholeGPUs: slices of GPUs and whole ones on one node are counted
// apart, and called by their names.
func TestSlicesBesideWholeGPUs(t *testing.T) {
	sliced := func(name string, gpus int, slices string) *v1.Node {
		n := makeNode(name, gpus)
		n.Status.Allocatable[sliceResource] = resource.MustParse(slices)
		return n
	}
	slice := func(name string, n string, options ...podOption) *v1.Pod {
		return makePod(name, 0, append(options, requesting(sliceResource, n))...)
	}
	for _, test := range []struct {
		name    string
		nodes   []*v1.Node
		running []*v1.Pod
		gang    Gang
		want    []string
		why     *reason.Reason
	}{
		{
			name:  "both find their own on one node",
			nodes: []*v1.Node{sliced("node-0", 4, "14")},
			gang:  gangOf(class(makePod("whole", 2), 2), class(slice("slice", "2"), 7)),
			want:  []string{"node-0 x2", "node-0 x7"},
		},
		{
			name:    "slices do not make room for a whole GPU",
			nodes:   []*v1.Node{sliced("node-0", 4, "14"), makeNode("node-1", 4)},
			running: []*v1.Pod{makePod("busy", 3, on("node-0")), makePod("other", 2, on("node-1"))},
			gang:    gangOf(class(makePod("whole", 4), 1)),
			why:     reason.New(reason.NoPlacement, "needs 4 GPUs; 3 GPUs are free; 2 more GPUs are missing, on one node"),
		},
		{
			name:    "nor whole GPUs for slices",
			nodes:   []*v1.Node{sliced("node-0", 4, "7"), sliced("node-1", 4, "7")},
			running: []*v1.Pod{slice("busy", "6", on("node-0")), slice("other", "6", on("node-1"))},
			gang:    gangOf(class(slice("slice", "1"), 3)),
			why: reason.New(reason.NoPlacement, "needs 3 pods of 1 nvidia.com/mig-1g.10gb; 2 nvidia.com/mig-1g.10gb are free, "+
				"with room for 2 of them; 1 more nvidia.com/mig-1g.10gb is missing, on one node"),
		},
		{
			name:  "the largest node has too few slices",
			nodes: []*v1.Node{sliced("node-0", 8, "7"), sliced("node-1", 8, "7")},
			gang:  gangOf(class(slice("slice", "8"), 1)),
			why:   reason.New(reason.ExceedsCluster, "needs 8 nvidia.com/mig-1g.10gb on one node; the largest node has 7"),
		},
		{
			name:    "a pod that asks for both finds one kind only",
			nodes:   []*v1.Node{sliced("node-0", 4, "7")},
			running: []*v1.Pod{slice("busy", "7", on("node-0"))},
			gang:    gangOf(class(slice("both", "1", func(p *v1.Pod) { requesting(gpuResource, "1")(p) }), 1)),
			why:     reason.New(reason.NoPlacement, "no node passes: 1 Insufficient nvidia.com/mig-1g.10gb (1 needed, at most 0 free)"),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t, test.nodes, test.running...)
			plan, why, err := NewPlanner(gpu.Is).Plan(c.ctx, c.fw, c.snap, test.gang)
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
			if why != nil && strings.Contains(why.Message, "0 more") {
				t.Error("nothing is missing")
			}
		})
	}
}
