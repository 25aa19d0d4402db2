package topology

import (
	"cmp"
	"slices"
)

// Placing is where the pods of a gang go.
type Placing struct {
	// Nodes has the node of each pod, in the order of their ranks.
	Nodes []int
	// Leader is the leader's node, -1 without a leader.
	Leader int
}

// Place finds nodes for all pods of a request, nil if there are none.
//
// A required level is kept; of several domains the one is taken that leaves the
// least over, and of nodes that which the request says is better. A preferred one is tried first, then those further out, of which the one is
// taken with the fewest of the preferred inside that are needed; where no
// domain is large enough, the fewest preferred ones are used, in few of those further
// out. Where no level is asked for, and on the way in, the fewest domains of each level
// are used, of those chosen before.
// Pods that come back to a gang go into the innermost domain that all others are
// in, as far as that is large enough and the request allows it.
func (t *Tree) Place(r Request) *Placing {
	if _, rest := r.outermost(t.levels); rest > 0 && len(r.Slices) > 1 {
		return nil
	}
	t.count(&r)
	start := t.start(&r)
	if start < 0 {
		return nil
	}
	return t.inside(&r, start)
}

// need is for how many of what is counted there must be room in a domain.
func (t *Tree) need(r *Request) int {
	outer, _ := r.outermost(t.levels)
	return r.Count / outer.Size
}

// start is the domain that is to have all pods, -1 if there is none.
func (t *Tree) start(r *Request) int32 {
	need := t.need(r)
	last := None
	if r.Required {
		last = r.Level
	}
	if len(r.Kept) > 0 && r.Level != None {
		return t.around(r, need, last)
	}
	for level := r.Level; level > None && level >= last; level-- {
		if level == r.Level {
			if best := t.bestFit(t.byLevel[level], need, true, r.Required); best >= 0 {
				return best
			}
		} else if best := t.fewestInside(t.byLevel[level], need, r.Level); best >= 0 {
			return best
		}
	}
	if last == None && t.domains[0].fits(need, true) {
		return 0
	}
	return -1
}

// around is the innermost domain with room around the pods that stay. If those
// do not share one at the required level, it is inside that with the most of them.
func (t *Tree) around(r *Request, need, last int) int32 {
	outer, _ := r.outermost(t.levels)
	most, from := int32(-1), 0
	for _, node := range r.Kept {
		if id := t.at(node, last); most < 0 || t.domains[id].kept > t.domains[most].kept {
			most, from = id, node
		}
	}
	for id := t.ids[from]; ; id = t.domains[id].parent {
		d := &t.domains[id]
		if d.level <= outer.Level && d.kept == t.domains[most].kept && d.fits(need, true) {
			return id
		}
		if id == most {
			return -1
		}
	}
}

// fewestInside is, of the domains that are large enough, the one with the fewest
// domains of a level inside it that are needed, and of those the best fit; -1 if
// there is none.
func (t *Tree) fewestInside(ids []int32, need, level int) int32 {
	best, least := int32(-1), 0
	for _, id := range ids {
		if !t.domains[id].fits(need, true) {
			continue
		}
		n := len(t.fewest(t.within(id, level, nil), need, true))
		if best < 0 || n < least || (n == least && t.fitsBetter(id, best, need)) {
			best, least = id, n
		}
	}
	return best
}

// within adds the domains of a level inside a domain.
func (t *Tree) within(id int32, level int, to []int32) []int32 {
	d := &t.domains[id]
	if d.level == level {
		return append(to, id)
	}
	for _, child := range d.children {
		to = t.within(child, level, to)
	}
	return to
}

// bestFit is the domain with room for need slots that leaves the least over; -1 if
// none has. Where labelled, nodes without the label are in none.
func (t *Tree) bestFit(ids []int32, need int, host, labelled bool) int32 {
	best := int32(-1)
	for _, id := range ids {
		d := &t.domains[id]
		if !d.fits(need, host) || (labelled && d.alone) {
			continue
		}
		if best < 0 || t.fitsBetter(id, best, need) {
			best = id
		}
	}
	return best
}

// fitsBetter orders domains that are large enough for need slots. Where the pods of the
// gang are already costs no new domain; of nodes that counts which its pods go onto
// better; a smaller hole is better than a larger one, and one inside a smaller hole.
func (t *Tree) fitsBetter(a, b int32, need int) bool {
	x, y := &t.domains[a], &t.domains[b]
	if d := cmp.Or(cmp.Compare(x.rank, y.rank), cmp.Compare(y.kept, x.kept)); d != 0 {
		return d < 0
	}
	if d := cmp.Or(t.compareNodes(x, y, need), cmp.Compare(x.slots, y.slots), cmp.Compare(x.room, y.room)); d != 0 {
		return d < 0
	}
	for p, q := x, y; p.parent != q.parent; {
		p, q = &t.domains[p.parent], &t.domains[q.parent]
		if d := cmp.Compare(p.room, q.room); d != 0 {
			return d < 0
		}
	}
	return cmp.Or(cmp.Compare(x.free, y.free), t.compare(x.value, y.value), cmp.Compare(a, b)) < 0
}

// compareNodes orders single nodes for so many slots of each, as the request does;
// other domains are equal.
func (t *Tree) compareNodes(x, y *domain, slots int) int {
	if t.better == nil || x.node < 0 || y.node < 0 {
		return 0
	}
	return t.better(int(x.node), int(y.node), slots*t.unit)
}

// share is a domain and how many slots of it are used.
type share struct {
	id    int32
	slots int
	// host: what goes with the slices is here.
	host bool
}

// inside goes from a domain down to nodes.
func (t *Tree) inside(r *Request, start int32) *Placing {
	outer, rest := r.outermost(t.levels)
	need := r.Count / outer.Size
	out := &Placing{Leader: -1}
	var pods []share
	var leader, tail int32 = -1, -1
	shares := []share{{start, need, true}}
	if r.Level < t.levels && t.domains[start].level < r.Level && len(r.Kept) == 0 {
		shares = t.outside(start, r.Level, need)
	}
	for _, s := range t.descend(shares, need, outer.Level) {
		count := s.slots * outer.Size
		if s.host && rest > 0 {
			count, tail = count+rest, s.id
		}
		if s.host && r.Leader {
			leader = s.id
			out.Leader = int(t.domains[s.id].node)
		}
		pods = t.slice(s.id, count, r.Slices[min(1, len(r.Slices)):], pods)
	}
	slices.SortFunc(pods, func(a, b share) int { return t.compareRanks(a.id, b.id, leader, tail) })
	out.Nodes = make([]int, 0, r.Count)
	for _, s := range pods {
		for range s.slots {
			out.Nodes = append(out.Nodes, int(t.domains[s.id].node))
		}
	}
	return out
}

// slice adds the nodes of pods that are inside a domain, in slices that are within
// each other.
func (t *Tree) slice(id int32, count int, within []Slice, to []share) []share {
	switch {
	case count == 0:
		return to
	case len(within) == 0:
		return append(to, t.descend([]share{{id, count, true}}, count, t.levels)...)
	}
	need := count / within[0].Size
	for _, s := range t.descend([]share{{id, need, true}}, need, within[0].Level) {
		to = t.slice(s.id, s.slots*within[0].Size, within[1:], to)
	}
	return to
}

// descend replaces domains by the fewest inside them at a level, step by step.
// Only at the last step, to nodes, each domain keeps its share: what one has left
// over is a larger hole than what several have.
func (t *Tree) descend(shares []share, need, level int) []share {
	for next := t.domains[shares[0].id].level + 1; next <= level; next++ {
		var inside []int32
		var nodes []share
		for _, s := range shares {
			for _, id := range t.domains[s.id].children {
				if d := &t.domains[id]; d.slots > 0 || d.penalty != noHost {
					inside = append(inside, id)
				}
			}
			if next == t.levels {
				nodes = append(nodes, t.fewest(inside, s.slots, s.host)...)
				inside = inside[:0]
			}
		}
		if shares = nodes; next < t.levels {
			shares = t.fewest(inside, need, true)
		}
	}
	return shares
}

// compareRanks orders nodes so that those in a domain follow each other: the
// leader's first, those of a smaller last slice last.
func (t *Tree) compareRanks(a, b, leader, tail int32) int {
	for level := range t.levels + 1 {
		x, y := t.up(a, level), t.up(b, level)
		if x == y {
			continue
		}
		first := func(id int32) int {
			switch {
			case leader >= 0 && t.up(leader, level) == id:
				return -1
			case tail >= 0 && t.up(tail, level) == id:
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(first(x), first(y)), t.compare(t.domains[x].value, t.domains[y].value), cmp.Compare(x, y))
	}
	return 0
}

// up is the domain around another at a level, or itself if that is further out.
func (t *Tree) up(id int32, level int) int32 {
	for t.domains[id].level > level {
		id = t.domains[id].parent
	}
	return id
}
