package topology

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// grove is a tree small enough to try everything.
type grove struct {
	levels int
	nodes  []Node
}

func (g grove) tree() *Tree {
	t := NewTree(g.levels, strings.Compare)
	for _, n := range g.nodes {
		t.Add(n)
	}
	return t
}

// domain tells the domain of a node at a level, by all values on the way.
func (g grove) domain(node, level int) string {
	n := g.nodes[node]
	var path []string
	for l := 0; l <= level && l < g.levels; l++ {
		if n.Values[l] == "" {
			path = append(path, "alone "+n.Name)
		} else {
			path = append(path, n.Values[l])
		}
	}
	if level == g.levels {
		path = append(path, n.Name)
	}
	return strings.Join(path, "/")
}

func (g grove) labelled(node, level int) bool {
	return level < 0 || level == g.levels || g.nodes[node].Values[level] != ""
}

// use is a number of pods on each node, and the node of the leader.
type use struct {
	pods   []int
	leader int
}

// every calls do with every way to place the pods on nodes with room, until it
// says no.
func (g grove) every(r Request, do func(use) bool) {
	pods := make([]int, len(g.nodes))
	var place func(node, left, leader int) bool
	place = func(node, left, leader int) bool {
		if node == len(g.nodes) {
			return left > 0 || do(use{pods, leader})
		}
		room := g.nodes[node].Room
		if node == leader {
			room = min(room, g.nodes[node].Beside)
		}
		for n := 0; n <= min(left, room); n++ {
			pods[node] = n
			if !place(node+1, left-n, leader) {
				return false
			}
		}
		pods[node] = 0
		return true
	}
	if !r.Leader {
		place(0, r.Count, -1)
		return
	}
	for leader := range g.nodes {
		if g.nodes[leader].Beside >= 0 && !place(0, r.Count, leader) {
			return
		}
	}
}

// domains are those of a level that a use is in.
func (g grove) domains(u use, level int) []string {
	var out []string
	for node, n := range u.pods {
		if n > 0 || node == u.leader {
			out = append(out, g.domain(node, level))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// allows says that a use is what the request asks for, in some order of ranks.
func (g grove) allows(r Request, u use) bool {
	if r.Required {
		for node, n := range u.pods {
			if (n > 0 || node == u.leader) && !g.labelled(node, r.Level) {
				return false
			}
		}
		if len(g.domains(u, r.Level)) > 1 {
			return false
		}
	}
	for i, s := range r.Slices {
		byDomain := map[string]int{}
		for node, n := range u.pods {
			if n > 0 && s.Size > 1 && !g.labelled(node, s.Level) {
				return false
			}
			byDomain[g.domain(node, s.Level)] += n
		}
		slices := 0
		for _, n := range byDomain {
			slices += n / s.Size
		}
		if slices != r.Count/s.Size {
			return false
		}
		if rest := r.Count % s.Size; i == 0 && rest > 0 && !containsRest(byDomain, s.Size, rest) {
			return false
		}
	}
	return true
}

func containsRest(byDomain map[string]int, size, rest int) bool {
	for _, n := range byDomain {
		if n%size == rest {
			return true
		}
	}
	return false
}

func drawGrove(t *rapid.T) grove {
	g := grove{levels: rapid.IntRange(1, 3).Draw(t, "levels")}
	for i := range rapid.IntRange(1, 7).Draw(t, "nodes") {
		n := Node{Name: fmt.Sprint("n", i), Room: rapid.IntRange(0, 4).Draw(t, "room"), Free: int64(rapid.IntRange(0, 3).Draw(t, "free"))}
		n.Beside = max(-1, n.Room-rapid.IntRange(0, 4).Draw(t, "leader takes"))
		for range g.levels {
			n.Values = append(n.Values, rapid.SampledFrom([]string{"a", "a", "a", "b", "b", "c", ""}).Draw(t, "label"))
		}
		g.nodes = append(g.nodes, n)
	}
	return g
}

func (g grove) drawRequest(t *rapid.T) Request {
	r := Request{Count: rapid.IntRange(1, 9).Draw(t, "count"), Level: rapid.IntRange(None, g.levels).Draw(t, "level")}
	r.Required = r.Level != None && rapid.Bool().Draw(t, "required")
	switch rapid.SampledFrom([]string{"", "leader", "slices", "slices within slices"}).Draw(t, "with") {
	case "leader":
		r.Leader = true
	case "slices":
		r.Slices = []Slice{{rapid.IntRange(1, 4).Draw(t, "slice size"), rapid.IntRange(max(r.Level, 0), g.levels).Draw(t, "slice level")}}
	case "slices within slices":
		r.drawWithin(t, g.levels)
	}
	return r
}

// drawWithin draws slices within slices: each size goes into the one before.
func (r *Request) drawWithin(t *rapid.T, levels int) {
	sizes := rapid.SampledFrom([][]int{{4, 2}, {2, 1}, {4, 4}, {6, 3}, {4, 2, 1}, {8, 4, 2}, {4, 2, 2}}).Draw(t, "sizes")
	level := max(r.Level, 0)
	for _, size := range sizes {
		if level > levels {
			break
		}
		level = rapid.IntRange(level, levels).Draw(t, "slice level")
		r.Slices = append(r.Slices, Slice{size, level})
		level++
	}
	r.Count = sizes[0] * rapid.IntRange(1, 8/sizes[0]).Draw(t, "slices")
}

// TestPlaceIsRightAndBest: a place is found where there is one, it is what was
// asked for, and no other has fewer domains at the level that counts.
func TestPlaceIsRightAndBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGrove(t)
		r := g.drawRequest(t)
		got := g.tree().Place(r)
		if got == nil {
			g.every(r, func(u use) bool {
				if g.allows(r, u) {
					t.Fatalf("%+v of %+v: nothing is found, there is %v", r, g, u)
				}
				return true
			})
			return
		}
		u := g.used(t, r, got)
		if !g.allows(r, u) {
			t.Fatalf("%+v of %+v: placed on %+v, which was not asked for", r, g, got)
		}
		g.checkSlices(t, r, got)
		g.checkRanks(t, r, got)
		g.checkFewest(t, r, u)
	})
}

// used counts the pods on the nodes, which must have room.
func (g grove) used(t *rapid.T, r Request, p *Placing) use {
	u := use{make([]int, len(g.nodes)), p.Leader}
	if len(p.Nodes) != r.Count || (p.Leader >= 0) != r.Leader {
		t.Fatalf("%+v: placed are %+v", r, p)
	}
	for _, node := range p.Nodes {
		u.pods[node]++
	}
	for node, n := range u.pods {
		room := g.nodes[node].Room
		if node == p.Leader {
			room = min(room, g.nodes[node].Beside)
		}
		if n > room {
			t.Fatalf("%+v of %+v: %d pods on node %d", r, g, n, node)
		}
	}
	return u
}

func (g grove) checkSlices(t *rapid.T, r Request, p *Placing) {
	for _, s := range r.Slices {
		for from := 0; from < r.Count; from += s.Size {
			slice := p.Nodes[from:min(from+s.Size, r.Count)]
			for _, node := range slice {
				if g.domain(node, s.Level) != g.domain(slice[0], s.Level) {
					t.Fatalf("%+v of %+v: the slice from rank %d is on %v", r, g, from, slice)
				}
			}
		}
	}
}

// checkRanks: the pods of each domain follow each other, and the leader is as
// close to rank 0 as to any.
func (g grove) checkRanks(t *rapid.T, r Request, p *Placing) {
	for level := range g.levels + 1 {
		var left []string
		for i, node := range p.Nodes {
			d := g.domain(node, level)
			if i > 0 && g.domain(p.Nodes[i-1], level) == d {
				continue
			}
			if slices.Contains(left, d) {
				t.Fatalf("%+v of %+v: ranks leave %s and come back: %v", r, g, d, p.Nodes)
			}
			left = append(left, d)
		}
		if p.Leader < 0 {
			continue
		}
		home := g.domain(p.Leader, level)
		if slices.Contains(left, home) && left[0] != home {
			t.Fatalf("%+v of %+v: the leader on node %d is not beside rank 0: %v", r, g, p.Leader, p.Nodes)
		}
	}
}

// checkFewest: the level that has a domain for all is the innermost that has
// one, from the wanted one outwards; where none has, the wanted domains are the
// fewest, or the outermost ones, if single nodes are wanted or none in particular.
func (g grove) checkFewest(t *rapid.T, r Request, u use) {
	for level := r.Level; level >= 0; level-- {
		best := g.fewest(r, level)
		used := len(g.domains(u, level))
		if best == 1 {
			if used != 1 {
				t.Fatalf("%+v of %+v: in %d domains of level %d, one is enough: %+v", r, g, used, level, u)
			}
			return
		}
	}
	level := 0
	if r.Level != None && r.Level < g.levels {
		level = r.Level
	}
	if used, best := len(g.domains(u, level)), g.fewest(r, level); used != best {
		t.Fatalf("%+v of %+v: in %d domains of level %d, %d are enough: %+v", r, g, used, level, best, u)
	}
}

// fewest is the smallest number of domains of a level that any use has.
func (g grove) fewest(r Request, level int) int {
	best := 1 << 20
	g.every(r, func(u use) bool {
		if g.allows(r, u) {
			best = min(best, len(g.domains(u, level)))
		}
		return best > 1
	})
	return best
}

// TestBestFitLeavesTheLeastOver: of the domains that are large enough the one is
// taken that has the least room for more.
func TestBestFitLeavesTheLeastOver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGrove(t)
		r := Request{Count: rapid.IntRange(1, 8).Draw(t, "count"), Level: rapid.IntRange(0, g.levels).Draw(t, "level"), Required: true}
		got := g.tree().Place(r)
		if got == nil {
			return
		}
		room := map[string]int{}
		for i, n := range g.nodes {
			if g.labelled(i, r.Level) {
				room[g.domain(i, r.Level)] += n.Room
			}
		}
		mine := room[g.domain(got.Nodes[0], r.Level)]
		for d, n := range room {
			if n >= r.Count && n < mine {
				t.Fatalf("%+v of %+v: in a domain with room for %d, %s has %d", r, g, mine, d, n)
			}
		}
	})
}

// TestKeptStaysTogether: pods that come back go to the innermost domain around
// the others that is large enough, and never out of a required one.
func TestKeptStaysTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGrove(t)
		r := Request{Count: rapid.IntRange(1, 5).Draw(t, "count"), Level: rapid.IntRange(0, g.levels).Draw(t, "level"), Required: rapid.Bool().Draw(t, "required")}
		home := rapid.IntRange(0, len(g.nodes)-1).Draw(t, "kept on")
		r.Kept = []int{home}
		got := g.tree().Place(r)
		last := None
		if r.Required {
			last = r.Level
		}
		for level := g.levels; level >= last; level-- {
			room := 0
			for i, n := range g.nodes {
				if g.domain(i, level) == g.domain(home, level) {
					room += n.Room
				}
			}
			if room < r.Count {
				continue
			}
			if got == nil {
				t.Fatalf("%+v of %+v: no place, though level %d has room for %d", r, g, level, room)
			}
			for _, node := range got.Nodes {
				if g.domain(node, level) != g.domain(home, level) {
					t.Fatalf("%+v of %+v: away from the others: %v", r, g, got.Nodes)
				}
			}
			return
		}
		if got != nil {
			t.Fatalf("%+v of %+v: placed on %v, out of the domain", r, g, got.Nodes)
		}
	})
}
