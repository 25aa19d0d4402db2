package placement

import "github.com/muster-gpu/muster/placement/topology"

// refill finds nodes for what comes back of a group with slices, a part of which
// stays. The slices that those are in are completed first, each in its own domain;
// slices that come back whole are placed after them.
type refill struct {
	*group
	// ranks are those of group.ranks, and nodes has the nodes that were found.
	ranks, nodes []int
}

// run is group.place.
func (f *refill) run(r topology.Request) *topology.Placing {
	var taken []int
	defer func() {
		for _, node := range taken {
			f.tree.Return(node)
		}
	}()
	p := f.fill(r, 0, len(f.ranks), &taken)
	if p == nil {
		return nil
	}
	out := &topology.Placing{Leader: p.Leader}
	for rank, stays := range f.ranks {
		if stays == missing {
			out.Nodes = append(out.Nodes, f.nodes[rank])
		}
	}
	return out
}

// fill finds nodes for the ranks from from to to, which are all of a slice or all
// there are; nil if there are none.
func (f *refill) fill(r topology.Request, from, to int, taken *[]int) *topology.Placing {
	size := 1
	if len(r.Slices) > 0 {
		size = r.Slices[0].Size
	}
	// whole are the ranks of slices of which nothing stays. What is over of them
	// counts, so that the others are in one domain.
	var whole []int
	for first := from; first < to; first += size {
		end := min(first+size, to)
		lost, kept := f.parts(first, end)
		switch {
		case lost == 0:
		case len(kept) > 0:
			inner := topology.Request{Level: r.Slices[0].Level, Required: true, Kept: kept, Slices: r.Slices[1:], Better: r.Better, Rank: r.Rank}
			if f.fill(inner, first, end, taken) == nil {
				return nil
			}
		default:
			for rank := first; rank < end; rank++ {
				whole = append(whole, rank)
			}
		}
	}
	if len(whole) == 0 {
		return &topology.Placing{Leader: -1}
	}
	r.Count = len(whole)
	p := f.tree.Place(r)
	if p == nil {
		return nil
	}
	for i, rank := range whole {
		if f.ranks[rank] == missing {
			f.nodes[rank] = p.Nodes[i]
			f.tree.Take(p.Nodes[i])
			*taken = append(*taken, p.Nodes[i])
		}
	}
	return p
}

// parts are how many of the ranks from first to end are to be placed, and the nodes
// of those that stay.
func (f *refill) parts(first, end int) (lost int, kept []int) {
	for _, node := range f.ranks[first:end] {
		switch node {
		case missing:
			lost++
		case over:
		default:
			kept = append(kept, node)
		}
	}
	return lost, kept
}
