package placement

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestShortfallIsTheFewest compares with all ways to divide pods among nodes.
func TestShortfallIsTheFewest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := shortfall{perPod: rapid.Int64Range(1, 5).Draw(t, "perPod")}
		pods := rapid.IntRange(1, 8).Draw(t, "pods")
		// fewest is by how many pods have a node.
		fewest := make([]int64, pods+1)
		for n := range fewest {
			fewest[n] = math.MaxInt32
		}
		fewest[0] = 0
		for range rapid.IntRange(0, 4).Draw(t, "nodes") {
			size := rapid.Int64Range(0, 12).Draw(t, "size")
			free := rapid.Int64Range(-2, size).Draw(t, "free")
			s.add(free, size)
			free = max(0, free)
			has := free / s.perPod
			for n := pods; n > 0; n-- {
				for more := int64(1); int(more) <= n && has+more <= size/s.perPod; more++ {
					fewest[n] = min(fewest[n], fewest[n-int(more)]+(has+more)*s.perPod-free)
				}
			}
		}
		gpus, nodes := s.of(pods)
		switch {
		case fewest[pods] == math.MaxInt32 && nodes != 0:
			t.Fatalf("%d GPUs on %d nodes are missing, where the nodes are too small", gpus, nodes)
		case fewest[pods] != math.MaxInt32 && (gpus != fewest[pods] || nodes < 1 || nodes > len(s.nodes)):
			t.Fatalf("%d GPUs on %d nodes are missing, want %d", gpus, nodes, fewest[pods])
		}
	})
}

func TestShortfallNamesNodes(t *testing.T) {
	for _, test := range []struct {
		name string
		// nodes are what is free and what there is.
		nodes  [][2]int64
		perPod int64
		pods   int
		want   string
	}{
		{name: "what is left over is filled up first", nodes: [][2]int64{{2, 8}, {3, 8}, {0, 8}}, perPod: 4, pods: 2, want: "3 more GPUs are missing, on 2 nodes"},
		{name: "then whole pods go to the same nodes", nodes: [][2]int64{{2, 8}, {0, 8}}, perPod: 4, pods: 2, want: "6 more GPUs are missing, on one node"},
		{name: "one GPU", nodes: [][2]int64{{7, 8}}, perPod: 8, pods: 1, want: "1 more GPU is missing, on one node"},
		{name: "nodes that are promised twice count as full", nodes: [][2]int64{{-3, 8}}, perPod: 8, pods: 1, want: "8 more GPUs are missing, on one node"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := shortfall{perPod: test.perPod}
			for _, n := range test.nodes {
				s.add(n[0], n[1])
			}
			if got := unit("").missing(s.of(test.pods)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
