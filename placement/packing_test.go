package placement

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/muster-gpu/muster/placement/fragmentation"
)

// pack fills candidates in the packing's order, each as far as takes allows,
// and renders what was tried.
func pack(p *packing, pods int, takes func(candidate) int) string {
	var tried []string
	for pods > 0 {
		i, ok := p.peek(pods)
		if !ok {
			break
		}
		p.take(i)
		n := min(takes(p.all[i]), pods)
		pods -= n
		tried = append(tried, fmt.Sprintf("%s x%d", p.all[i].name, n))
	}
	return strings.Join(tried, ", ")
}

func TestPacking(t *testing.T) {
	all := func(c candidate) int { return c.room }
	gpuNode := func(name string, free int) candidate {
		return candidate{name: name, tier: tierPlain, room: free, gpus: int64(free)}
	}
	for _, test := range []struct {
		name       string
		candidates []candidate
		pods       int
		takes      func(candidate) int
		want       string
	}{
		{
			name:       "one node takes all: the one with the least left over",
			candidates: []candidate{gpuNode("a", 8), gpuNode("b", 5), gpuNode("c", 4), gpuNode("d", 3)},
			pods:       4, want: "c x4",
		},
		{
			name:       "no node takes all: the most room first, best fit for the rest",
			candidates: []candidate{gpuNode("a", 2), gpuNode("b", 8), gpuNode("c", 3), gpuNode("d", 8)},
			pods:       10, want: "b x8, a x2",
		},
		{
			name:       "equal nodes are taken in natural order",
			candidates: []candidate{gpuNode("node-10", 8), gpuNode("node-2", 8), gpuNode("node-1", 8)},
			pods:       24, want: "node-1 x8, node-2 x8, node-10 x8",
		},
		{
			name: "with equal room the node with fewer GPUs left over comes first",
			candidates: []candidate{
				{name: "a", tier: tierPlain, room: 2, gpus: 8},
				{name: "b", tier: tierPlain, room: 2, gpus: 5},
			},
			pods: 4, want: "b x2, a x2",
		},
		{
			name: "nodes without GPUs are used up before those that are spared",
			candidates: []candidate{
				{name: "gpu", tier: tierSpared, room: 50, gpus: 8},
				{name: "cpu-1", tier: tierPlain, room: 2},
				{name: "cpu-2", tier: tierPlain, room: 3},
			},
			pods: 6, want: "cpu-2 x3, cpu-1 x2, gpu x1",
		},
		{
			name: "of spared nodes the one with the fewest free GPUs comes first",
			candidates: []candidate{
				{name: "empty", tier: tierSpared, room: 50, gpus: 8},
				{name: "full", tier: tierSpared, room: 40, gpus: 0},
			},
			pods: 1, want: "full x1",
		},
		{
			name: "nodes of siblings come first",
			candidates: []candidate{
				gpuNode("a", 4),
				{name: "b", tier: tierFixed, room: 8, gpus: 8},
			},
			pods: 4, want: "b x4",
		},
		{
			name:       "a node that Filter refuses is left for the next best",
			candidates: []candidate{gpuNode("a", 4), gpuNode("b", 5), gpuNode("c", 6)},
			pods:       4,
			takes: func(c candidate) int {
				if c.name == "a" {
					return 0
				}
				return c.room
			},
			want: "a x0, b x4",
		},
		{
			name:       "a node that takes fewer than it has room for makes smaller nodes fit",
			candidates: []candidate{gpuNode("a", 4), gpuNode("b", 8), gpuNode("c", 2)},
			pods:       4,
			takes:      func(c candidate) int { return min(c.room, 2) },
			want:       "a x2, c x2",
		},
		{
			name:       "too little room takes what there is",
			candidates: []candidate{gpuNode("a", 1), gpuNode("b", 2)},
			pods:       5, want: "b x2, a x1",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			takes := test.takes
			if takes == nil {
				takes = all
			}
			if diff := cmp.Diff(test.want, pack(newPacking(test.candidates, nil), test.pods, takes)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPackingTakesBackANode(t *testing.T) {
	p := newPacking([]candidate{{name: "a", room: 4, gpus: 4}, {name: "b", room: 5, gpus: 5}}, nil)
	i, _ := p.peek(3)
	c := p.all[i]
	p.take(i)
	if c.name != "a" {
		t.Fatalf("first choice is %s, want a", c.name)
	}
	c.room, c.gpus = 2, 2
	p.put(c)
	if i, _ := p.peek(2); p.all[i].name != "a" {
		t.Errorf("for the 2 pods left the choice is %s, want a again", p.all[i].name)
	}
}

// The two heaps must give what sorting all candidates anew for every step gives.
func TestPackingOrderEqualsSorting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(t, "nodes")
		candidates := make([]candidate, n)
		takes := make(map[string]int)
		for i := range candidates {
			candidates[i] = candidate{
				name: fmt.Sprintf("node-%d", i),
				tier: tier(rapid.IntRange(0, 2).Draw(t, "tier")),
				room: rapid.IntRange(1, 8).Draw(t, "room"),
				gpus: int64(rapid.IntRange(0, 8).Draw(t, "gpus")),
			}
			takes[candidates[i].name] = rapid.IntRange(0, candidates[i].room).Draw(t, "takes")
		}
		scores := rapid.SliceOfN(rapid.IntRange(-2, 2), 64, 64).Draw(t, "scores")
		score := func(c *candidate, pods int) Score {
			x := scores[(c.gpus*8+int64(pods))%64]
			return Score{Score: fragmentation.Score{Exact: x == 2, Growth: int64(x)}}
		}
		pods := rapid.IntRange(1, 60).Draw(t, "pods")
		takesOf := func(c candidate) int { return takes[c.name] }

		var want []string
		rest, left := slices.Clone(candidates), pods
		for left > 0 && len(rest) > 0 {
			slices.SortFunc(rest, func(a, b candidate) int { return comparePacking(&a, &b, left, score) })
			n := min(takesOf(rest[0]), left)
			left -= n
			want = append(want, fmt.Sprintf("%s x%d", rest[0].name, n))
			rest = rest[1:]
		}
		if diff := cmp.Diff(strings.Join(want, ", "), pack(newPacking(candidates, score), pods, takesOf)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestCompareNatural(t *testing.T) {
	ordered := []string{"", "1", "02", "2", "10", "a", "a-01", "a-1", "a-1b", "a-2", "a-10", "a-10-2", "a-10-11", "b", "node-99999999999999999999", "node-100000000000000000000"}
	for i, a := range ordered {
		for j, b := range ordered {
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			if got := compareNatural(a, b); got != want {
				t.Errorf("compareNatural(%q, %q) = %d, want %d", a, b, got, want)
			}
		}
	}
}
