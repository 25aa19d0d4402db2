package topology

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// plant builds a tree of nodes written as "block/rack/node:room", or
// "...:room+beside" where a leader changes what a node has room for. A level
// written as "-" is one without a label.
func plant(nodes ...string) (t *Tree, names []string) {
	for _, n := range nodes {
		path, size, _ := strings.Cut(n, ":")
		values := strings.Split(path, "/")
		name := values[len(values)-1]
		values = values[:len(values)-1]
		if t == nil {
			t = NewTree(len(values), strings.Compare)
		}
		var room, beside int
		if _, err := fmt.Sscanf(size, "%d+%d", &room, &beside); err != nil {
			if _, err := fmt.Sscanf(size, "%d", &room); err != nil {
				panic(err)
			}
			beside = room
		}
		for i, v := range values {
			if v == "-" {
				values[i] = ""
			}
		}
		t.Add(Node{Name: name, Values: values, Room: room, Beside: beside, Free: int64(room)})
		names = append(names, name)
	}
	return t, names
}

// racks has nodes of room 1 in the racks a, b, ... of one block, as many as said.
func racks(sizes ...int) []string {
	var out []string
	for i, n := range sizes {
		for k := range n {
			out = append(out, fmt.Sprintf("block/%c/%c%d:1", 'a'+i, 'a'+i, k))
		}
	}
	return out
}

func TestPlace(t *testing.T) {
	const block, rack, node = 0, 1, 2
	for _, test := range []struct {
		name    string
		nodes   []string
		request Request
		// want are the nodes in rank order, the leader's before a bar.
		want string
	}{
		{
			name:  "the rack that leaves the least over is taken",
			nodes: racks(6, 4), request: Request{Count: 4, Level: rack, Required: true},
			want: "b0 b1 b2 b3",
		},
		{
			name:  "of racks of one size that in the fuller block is taken",
			nodes: []string{"x/a/a0:4", "x/b/b0:4", "y/c/c0:4"}, request: Request{Count: 4, Level: rack, Required: true},
			want: "c0 c0 c0 c0",
		},
		{
			name:  "no rack is large enough, and one is required",
			nodes: racks(3, 3), request: Request{Count: 4, Level: rack, Required: true},
		},
		{
			name:  "no rack is large enough, and one is preferred: the fewest",
			nodes: racks(1, 3, 2, 4), request: Request{Count: 5, Level: rack},
			want: "a0 d0 d1 d2 d3",
		},
		{
			name:  "the next level outwards that is large enough",
			nodes: []string{"x/a/a0:2", "x/b/b0:3", "y/c/c0:2", "y/d/d0:2"}, request: Request{Count: 4, Level: rack},
			want: "c0 c0 d0 d0",
		},
		{
			name:  "there the block with the fewest racks goes before the one that leaves the least over",
			nodes: []string{"x/a/a0:2", "x/b/b0:2", "x/c/c0:1", "y/d/d0:3", "y/e/e0:3"}, request: Request{Count: 5, Level: rack},
			want: "d0 d0 d0 e0 e0",
		},
		{
			name:  "no block is large enough: the fewest blocks, and of them the fewest racks",
			nodes: []string{"x/a/a0:5", "x/b/b0:1", "y/c/c0:5", "y/d/d0:1", "z/e/e0:2"}, request: Request{Count: 9, Level: block},
			want: "a0 a0 a0 a0 a0 c0 c0 c0 c0",
		},
		{
			name:  "no block is large enough for a gang that prefers a rack: the fewest racks, whatever their blocks",
			nodes: []string{"x/a/a0:4", "x/b/b0:4", "y/c/c0:6", "z/d/d0:5"}, request: Request{Count: 11, Level: rack},
			want: "c0 c0 c0 c0 c0 c0 d0 d0 d0 d0 d0",
		},
		{
			name:  "and of as many racks those in few blocks",
			nodes: []string{"x/a/a0:4", "y/b/b0:4", "y/c/c0:4", "z/d/d0:4", "z/e/e0:4"}, request: Request{Count: 16, Level: rack},
			want: "b0 b0 b0 b0 c0 c0 c0 c0 d0 d0 d0 d0 e0 e0 e0 e0",
		},
		{
			name:  "ranks that follow each other share a rack",
			nodes: []string{"x/a/a0:1", "x/b/b0:1", "x/a/a1:1", "x/b/b1:1"}, request: Request{Count: 4, Level: block, Required: true},
			want: "a0 a1 b0 b1",
		},
		{
			name:  "inside the domain the fewest nodes",
			nodes: []string{"x/a/a0:1", "x/a/a1:2", "x/a/a2:4", "x/a/a3:3"}, request: Request{Count: 5, Level: rack, Required: true},
			want: "a0 a2 a2 a2 a2",
		},
		{
			name:  "of two racks one is filled, so that what is left over is in the other",
			nodes: []string{"x/a/a0:4", "x/a/a1:1", "x/b/b0:4", "x/b/b1:1"}, request: Request{Count: 6, Level: block, Required: true},
			want: "a0 a0 a0 a0 a1 b1",
		},
		{
			name:  "one node is a level too",
			nodes: []string{"x/a/a0:8", "x/a/a1:4", "x/b/b0:6"}, request: Request{Count: 4, Level: node, Required: true},
			want: "a1 a1 a1 a1",
		},
		{
			name:  "a node without a label is in no domain that is required",
			nodes: []string{"x/-/n0:4", "x/a/a0:6"}, request: Request{Count: 4, Level: rack, Required: true},
			want: "a0 a0 a0 a0",
		},
		{
			name:  "and is near no other",
			nodes: []string{"x/-/n0:2", "x/-/n1:2"}, request: Request{Count: 4, Level: rack, Required: true},
		},
		{
			name:  "a node without the label of a rack is still in its block",
			nodes: []string{"x/-/n0:2", "x/a/a0:2", "y/b/b0:3"}, request: Request{Count: 4, Level: block, Required: true},
			want: "a0 a0 n0 n0",
		},
		{
			name:  "racks of one name in two blocks are two",
			nodes: []string{"x/1/x0:2", "y/1/y0:2"}, request: Request{Count: 4, Level: rack, Required: true},
		},
		{
			name:  "each slice in one rack",
			nodes: []string{"x/a/a0:3", "x/b/b0:3", "x/c/c0:4"}, request: Request{Count: 8, Level: block, Required: true, Slices: []Slice{{2, rack}}},
			want: "a0 a0 b0 b0 c0 c0 c0 c0",
		},
		{
			name:  "pods that do not fill a slice do not make one together",
			nodes: []string{"x/a/a0:3", "x/b/b0:3"}, request: Request{Count: 6, Level: None, Slices: []Slice{{2, rack}}},
		},
		{
			name:  "a smaller last slice goes where nothing else would, and comes last",
			nodes: []string{"x/a/a0:3", "x/b/b0:4"}, request: Request{Count: 7, Level: None, Slices: []Slice{{2, rack}}},
			want: "b0 b0 b0 b0 a0 a0 a0",
		},
		{
			name:  "a smaller last slice takes the place of one",
			nodes: []string{"x/a/a0:4", "x/b/b0:4"}, request: Request{Count: 7, Level: None, Slices: []Slice{{2, rack}}},
			want: "b0 b0 b0 b0 a0 a0 a0",
		},
		{
			name:  "slices of racks, within slices of blocks",
			nodes: []string{"x/a/a0:3", "x/b/b0:3", "y/c/c0:2", "y/d/d0:2", "z/e/e0:8"}, request: Request{Count: 8, Level: None, Slices: []Slice{{4, block}, {2, rack}}},
			want: "e0 e0 e0 e0 e0 e0 e0 e0",
		},
		{
			name:  "a rack that holds one pod more than its slices is no help to the slice of a block",
			nodes: []string{"x/a/a0:3", "x/b/b0:1", "y/c/c0:2", "y/d/d0:2"}, request: Request{Count: 4, Level: None, Slices: []Slice{{4, block}, {2, rack}}},
			want: "c0 c0 d0 d0",
		},
		{
			name:  "slices of nodes, of racks and of blocks",
			nodes: []string{"x/a/a0:3", "x/a/a1:3", "x/b/b0:5", "y/c/c0:3", "y/c/c1:3", "y/d/d0:4"}, request: Request{Count: 16, Level: None, Slices: []Slice{{8, block}, {4, rack}, {2, node}}},
			want: "a0 a0 a1 a1 b0 b0 b0 b0 c0 c0 c1 c1 d0 d0 d0 d0",
		},
		{
			name:  "fewer pods than whole slices that have others within",
			nodes: []string{"x/a/a0:8"}, request: Request{Count: 6, Level: None, Slices: []Slice{{4, block}, {2, rack}}},
		},
		{
			name:  "a rack without a label has no slices within those of a block",
			nodes: []string{"x/-/a0:4", "x/b/b0:2"}, request: Request{Count: 4, Level: None, Slices: []Slice{{4, block}, {2, rack}}},
		},
		{
			name:  "the leader is beside rank 0",
			nodes: []string{"x/a/a0:2+2", "x/b/b0:3+2"}, request: Request{Count: 2, Leader: true, Level: rack, Required: true},
			want: "a0|a0 a0",
		},
		{
			name:  "a rack with room for the pods alone does not do with a leader",
			nodes: []string{"x/a/a0:2+1", "x/b/b0:3+2"}, request: Request{Count: 2, Leader: true, Level: rack, Required: true},
			want: "b0|b0 b0",
		},
		{
			name:  "the leader is where it costs the least, and the ranks begin there",
			nodes: []string{"x/a/a0:2+0", "x/a/a1:2+1", "x/a/a2:2+0"}, request: Request{Count: 5, Leader: true, Level: rack, Required: true},
			want: "a1|a1 a0 a0 a2 a2",
		},
		{
			name:  "a node with room for the leader alone",
			nodes: []string{"x/a/a0:0+0", "x/a/a1:2+-1"}, request: Request{Count: 2, Leader: true, Level: rack, Required: true},
			want: "a0|a1 a1",
		},
		{
			name:  "no node has room for the leader",
			nodes: []string{"x/a/a0:2+-1"}, request: Request{Count: 2, Leader: true, Level: rack},
		},
		{
			name:  "a pod that comes back goes to the others, though elsewhere is a better fit",
			nodes: []string{"x/a/a0:0", "x/a/a1:4", "x/b/b0:1"}, request: Request{Count: 1, Level: block, Kept: []int{0}},
			want: "a1",
		},
		{
			name:  "it does not leave the level that is required",
			nodes: []string{"x/a/a0:0", "x/b/b0:1"}, request: Request{Count: 1, Level: rack, Required: true, Kept: []int{0}},
		},
		{
			name:  "it leaves one that is preferred for the next one outwards",
			nodes: []string{"x/a/a0:0", "x/b/b0:2", "y/c/c0:1"}, request: Request{Count: 1, Level: rack, Kept: []int{0}},
			want: "b0",
		},
		{
			name:  "where the others are in two racks, it goes to one of those",
			nodes: []string{"x/a/a0:2", "x/b/b0:2", "x/c/c0:1"}, request: Request{Count: 1, Level: block, Required: true, Kept: []int{0, 1}},
			want: "a0",
		},
		{
			name:  "where the others do not share the required domain, it goes to most of them",
			nodes: []string{"x/a/a0:2", "x/b/b0:2"}, request: Request{Count: 1, Level: rack, Required: true, Kept: []int{0, 1, 1}},
			want: "b0",
		},
		{
			name:  "where the others are in two racks, it goes to most of them",
			nodes: []string{"x/a/a0:2", "x/b/b0:2"}, request: Request{Count: 1, Level: block, Required: true, Kept: []int{0, 1, 1}},
			want: "b0",
		},
		{
			name:  "several that come back go to the racks of the others, not to a new one",
			nodes: []string{"x/a/a0:2", "x/b/b0:2", "x/c/c0:3"}, request: Request{Count: 3, Level: block, Required: true, Kept: []int{0, 1}},
			want: "a0 a0 b0",
		},
		{
			name:  "a small node with room for the leader saves a third",
			nodes: []string{"x/a/a0:5+-1", "x/a/a1:4+-1", "x/a/a2:1+1"}, request: Request{Count: 6, Leader: true, Level: rack, Required: true},
			want: "a2|a2 a0 a0 a0 a0 a0",
		},
		{
			name:  "a level between is tried before the outermost, where another domain is a better fit",
			nodes: []string{"x/1/a/a0:2", "x/2/b/b0:2", "y/1/c/c0:2", "y/1/d/d0:3"}, request: Request{Count: 4, Level: 2},
			want: "c0 d0 d0 d0",
		},
		{
			name:  "no level at all: the fewest nodes",
			nodes: []string{"x/a/a0:1", "x/b/b0:2"}, request: Request{Count: 2, Level: None},
			want: "b0 b0",
		},
		{name: "no pods", nodes: racks(1), request: Request{Level: rack, Required: true}, want: ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			tree, names := plant(test.nodes...)
			got := tree.Place(test.request)
			if test.want == "" && test.request.Count > 0 {
				if got != nil {
					t.Fatalf("placed on %v", got)
				}
				return
			}
			if got == nil {
				t.Fatal("no place")
			}
			if diff := cmp.Diff(test.want, render(got, names)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func render(p *Placing, names []string) string {
	var out []string
	for _, n := range p.Nodes {
		out = append(out, names[n])
	}
	if p.Leader >= 0 {
		return names[p.Leader] + "|" + strings.Join(out, " ")
	}
	return strings.Join(out, " ")
}

func TestLimitAndTake(t *testing.T) {
	tree, names := plant("x/a/a0:2", "x/a/a1:2", "x/b/b0:8")
	r := Request{Count: 3, Level: 1, Required: true}
	tree.Limit(0, 1, 1)
	if got := render(tree.Place(r), names); got != "a0 a1 a1" {
		t.Errorf("with room for one on a0: %s", got)
	}
	tree.Take(1)
	if got := render(tree.Place(r), names); got != "b0 b0 b0" {
		t.Errorf("with one taken on a1: %s", got)
	}
	tree.Limit(2, 100, 100)
	if got := tree.Place(Request{Count: 9, Level: 2, Required: true}); got != nil {
		t.Errorf("a limit has made room: %v", got)
	}
}

func TestQualityAndBest(t *testing.T) {
	tree, _ := plant(append(racks(2, 3), "other/c/c0:1")...)
	for _, test := range []struct {
		name    string
		request Request
		nodes   []int
		want    Quality
	}{
		{"one rack", Request{Count: 3, Level: 1}, []int{2, 3, 4}, Quality{Level: 1, Domains: 1, Fewest: 1}},
		{"two racks for want of one", Request{Count: 4, Level: 1}, []int{0, 2, 3, 4}, Quality{Level: 1, Domains: 2, Fewest: 2, Crossed: 1}},
		{"two racks though one would do", Request{Count: 2, Level: None}, []int{0, 2}, Quality{Level: 1, Domains: 2, Fewest: 1, Crossed: 1}},
		{"two blocks", Request{Count: 2, Level: 0}, []int{0, 5}, Quality{Domains: 2, Fewest: 1, Crossed: 2}},
		{"nodes are counted where those are asked for", Request{Count: 2, Level: 2}, []int{0, 1}, Quality{Level: 2, Domains: 2, Fewest: 2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, tree.Quality(test.request, test.nodes)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if node, room, all := tree.Best(Request{Count: 4, Level: 1, Required: true}); tree.Value(node, 1) != "b" || room != 3 || all != 6 {
		t.Errorf("the best rack is %s with %d of %d, want b with 3 of 6", tree.Value(node, 1), room, all)
	}
	if node, room, all := tree.Best(Request{Count: 5, Level: 0, Required: true, Slices: []Slice{{3, 1}}}); tree.Value(node, 0) != "block" || room != 3+2 || all != 5 {
		t.Errorf("the best block with slices of 3 is %s with %d of %d, want block with 5 of 5", tree.Value(node, 0), room, all)
	}
	for node := range 6 {
		tree.Take(node)
	}
	if node, room, _ := tree.Best(Request{Count: 4, Level: 1, Required: true, Slices: []Slice{{3, 1}}}); node != -1 || room != 0 {
		t.Errorf("node %d has the best rack with slices of 3, with %d, want none", node, room)
	}
}

func TestChanceStaysWithinTheRequest(t *testing.T) {
	tree, names := plant(racks(4, 4, 3)...)
	seen := map[string]bool{}
	for i := range uint32(32) {
		n := i
		got := tree.Place(Request{Count: 4, Level: 1, Required: true, Rank: func() uint32 { n = n*1664525 + 1013904223; return n }})
		seen[render(got, names)] = true
	}
	want := map[string]bool{"a0 a1 a2 a3": true, "b0 b1 b2 b3": true}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestExcessDomains fills 512 nodes in 16 racks of 4 blocks, of which others have
// 30 %, with small jobs that require a rack and large ones that prefer a block, and
// counts those that are in more domains than were needed.
func TestExcessDomains(t *testing.T) {
	jobs, excess := 0, 0
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		tree := NewTree(2, strings.Compare)
		free := 0
		for n := range 512 {
			room := 1
			if r.IntN(10) < 3 {
				room = 0
			}
			free += room
			tree.Add(Node{Name: names[n], Values: []string{names[n/128], names[n/32]}, Room: room})
		}
		for used := 0; ; {
			count := []int{4, 4, 4, 4, 8, 8, 32, 128}[r.IntN(8)]
			if used += count; used > free {
				break
			}
			request := Request{Count: count, Level: 1, Required: true}
			if count > 8 {
				request.Level, request.Required = 0, false
			}
			p := tree.Place(request)
			if p == nil {
				used -= count
				if count == 4 {
					break
				}
				continue
			}
			jobs++
			if q := tree.Quality(request, p.Nodes); q.Domains > q.Fewest {
				excess++
			}
			for _, node := range p.Nodes {
				tree.Take(node)
			}
		}
	}
	t.Logf("%d of %d jobs are in more domains than needed", excess, jobs)
	if excess*100 > jobs {
		t.Errorf("%d of %d jobs are in more domains than needed", excess, jobs)
	}
}

func BenchmarkPlace(b *testing.B) {
	for _, count := range []int{128, 1000} {
		for _, level := range []int{None, 0, 1} {
			b.Run(fmt.Sprintf("5000nodes/%dpods/level=%d", count, level), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					tree := NewTree(2, strings.Compare)
					for n := range 5000 {
						rack := n / 125
						tree.Add(Node{Name: names[n], Values: []string{names[rack/5], names[rack]}, Room: 8 - n%3})
					}
					if tree.Place(Request{Count: count, Level: level}) == nil {
						b.Fatal("no place")
					}
				}
			})
		}
	}
}

var names = slices.Collect(func(yield func(string) bool) {
	for n := range 5000 {
		if !yield(fmt.Sprintf("n%04d", n)) {
			return
		}
	}
})
