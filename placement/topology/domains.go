package topology

import (
	"cmp"
	"slices"
)

// Domain is the nodes of one domain of a Level, None for all nodes. No other of the Tree
// has its Name, and none of another Tree unless the labels are the same.
type Domain struct {
	Name  string
	Level int
	Nodes []int
}

// Domains are the domains that Place would choose from, the best first, for a caller
// that places the pods itself. The last is all nodes unless a level is required.
// Slices are left to the caller.
func (t *Tree) Domains(r Request) []Domain {
	t.count(&r)
	need := t.need(&r)
	last := None
	if r.Required {
		last = r.Level
	}
	var out []Domain
	add := func(id int32) { out = append(out, Domain{t.path(id), t.domains[id].level, t.nodes(id, nil)}) }
	if len(r.Kept) > 0 && r.Level != None {
		if id := t.around(&r, need, last); id >= 0 {
			add(id)
		}
	} else {
		for level := r.Level; level > None && level >= last; level-- {
			fit := t.large(&r, level, need)
			slices.SortFunc(fit, func(a, b int32) int {
				if t.fitsBetter(a, b, need) {
					return -1
				}
				return 1
			})
			for _, id := range fit {
				add(id)
			}
		}
	}
	if last == None {
		add(0)
	}
	return out
}

// Large is how many domains of the request's level are large enough.
func (t *Tree) Large(r Request) int {
	if r.Level == None {
		return 0
	}
	t.count(&r)
	return len(t.large(&r, r.Level, t.need(&r)))
}

// large are the domains of a level with room for need slots.
func (t *Tree) large(r *Request, level, need int) []int32 {
	return slices.DeleteFunc(slices.Clone(t.byLevel[level]), func(id int32) bool {
		d := &t.domains[id]
		return !d.fits(need, true) || (r.Required && d.alone)
	})
}

// path is the values of a domain and of those around it, outermost first. No value has a
// slash: two are before the name of a node that has none.
func (t *Tree) path(id int32) string {
	switch d := &t.domains[id]; {
	case d.parent < 0:
		return ""
	case d.alone:
		return t.path(d.parent) + "//" + d.value
	default:
		return t.path(d.parent) + "/" + d.value
	}
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
