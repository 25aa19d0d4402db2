package placement

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestLack(t *testing.T) {
	zone := func(name string) nodeOption { return nodeLabel("zone", name) }
	nodes := []*v1.Node{makeNode("a", 8, zone("east")), makeNode("b", 8, zone("west")), makeNode("c", 0, zone("west"))}
	running := []*v1.Pod{makePod("r", 6, on("a")), makePod("s", 4, on("b"))}
	tests := map[string]struct {
		class  Class
		want   bool
		byGPUs bool
	}{
		"two pods of 2 GPUs and more fit":                     {class: class(makePod("p", 2), 3)},
		"a fourth does not":                                   {class: class(makePod("p", 2), 4), want: true, byGPUs: true},
		"free GPUs of two nodes are not one pod's":            {class: class(makePod("p", 6), 1), want: true, byGPUs: true},
		"nodes that the selector does not allow do not count": {class: class(makePod("p", 4, selecting("zone", "east")), 1), want: true, byGPUs: true},
		"CPUs can be too few where GPUs are not":              {class: class(makePod("p", 2, cpus("64")), 1), want: true},
		"CPUs of nodes without GPUs are no help":              {class: class(makePod("p", 1, cpus("33")), 3), want: true},
		"a pod without GPUs can lack CPUs":                    {class: class(makePod("p", 0, cpus("64")), 2), want: true},
		"an affinity is not the business of a Lack":           {class: class(makePod("p", 2, near("nobody", "zone")), 1)},
		"no pods lack nothing":                                {class: class(makePod("p", 9), 0)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, nodes, running...)
			lack, err := NewPlanner(isGPU).Lack(c.snap, gangOf(tc.class))
			if err != nil {
				t.Fatal(err)
			}
			if (lack != nil) != tc.want {
				t.Fatalf("lack is %+v", lack)
			}
			if lack == nil {
				return
			}
			if got := lack.Bite.Resource == gpuResource; got != tc.byGPUs {
				t.Errorf("it is by GPUs alone: %v", got)
			}
			if lasts, err := lack.Lasts(c.snap); err != nil || !lasts {
				t.Errorf("it lasts: %v %v", lasts, err)
			}
			empty := newCluster(t, append(makeNodes(9, 8, zone("east")), nodes...))
			if lasts, err := lack.Lasts(empty.snap); err != nil || lasts {
				t.Errorf("with empty nodes it lasts: %v %v", lasts, err)
			}
			if tc.byGPUs {
				if room, err := lack.Bite.Room(empty.snap); err != nil || room < lack.Pods {
					t.Errorf("on empty nodes there is room for %d of %d pods (%v)", room, lack.Pods, err)
				}
			}
		})
	}
}
