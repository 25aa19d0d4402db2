package topology

import (
	"cmp"
	"slices"
)

// Domains are the domains that Place would choose from, as nodes that they have
// inside, the best first, for a caller that places the pods itself. The last is
// all nodes unless a level is required. Slices are left to the caller.
func (t *Tree) Domains(r Request) [][]int {
	t.count(&r)
	need := t.need(&r)
	last := None
	if r.Required {
		last = r.Level
	}
	var out [][]int
	if len(r.Kept) > 0 && r.Level != None {
		if id := t.around(&r, need, last); id >= 0 {
			out = append(out, t.nodes(id, nil))
		}
	} else {
		for level := r.Level; level > None && level >= last; level-- {
			fit := slices.DeleteFunc(slices.Clone(t.byLevel[level]), func(id int32) bool {
				d := &t.domains[id]
				return !d.fits(need, true) || (r.Required && d.alone)
			})
			slices.SortFunc(fit, func(a, b int32) int {
				if t.fitsBetter(a, b) {
					return -1
				}
				return 1
			})
			for _, id := range fit {
				out = append(out, t.nodes(id, nil))
			}
		}
	}
	if last == None {
		out = append(out, t.nodes(0, nil))
	}
	return out
}

// nodes adds the nodes inside a domain.
func (t *Tree) nodes(id int32, to []int) []int {
	d := &t.domains[id]
	if d.node >= 0 {
		return append(to, int(d.node))
	}
	for _, child := range d.children {
		to = t.nodes(child, to)
	}
	return to
}

// Sort puts nodes into the order of ranks, in which those of a domain follow each
// other.
func (t *Tree) Sort(nodes []int) {
	slices.SortStableFunc(nodes, func(a, b int) int { return t.compareRanks(t.ids[a], t.ids[b], -1, -1) })
}

// Packing is the place of each node in an order that fills as few of the
// innermost domains as can be: those with room for all pods first, the smallest of
// them before others, and then those that are too small, the largest first.
func (t *Tree) Packing(count int) []int {
	r := Request{Count: count, Level: None}
	t.count(&r)
	innermost := []int32{0}
	if t.levels > 0 {
		innermost = slices.Clone(t.byLevel[t.levels-1])
	}
	slices.SortFunc(innermost, func(a, b int32) int {
		x, y := &t.domains[a], &t.domains[b]
		switch xFits, yFits := x.room >= count, y.room >= count; {
		case xFits && !yFits:
			return -1
		case yFits && !xFits:
			return 1
		case xFits:
			return cmp.Or(cmp.Compare(x.room, y.room), cmp.Compare(a, b))
		}
		return cmp.Or(cmp.Compare(y.room, x.room), cmp.Compare(a, b))
	})
	place := make([]int, len(t.ids))
	for i, id := range innermost {
		for _, node := range t.nodes(id, nil) {
			place[node] = i
		}
	}
	return place
}
