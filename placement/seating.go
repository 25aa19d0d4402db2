package placement

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/placement/topology"
)

// asks is what is asked of the tree for the pods that are to be placed.
func (g *group) asks() topology.Request {
	r := g.request
	r.Rank, r.Count = g.chance(), g.count()
	r.Leader = g.leader != nil && g.leader.class.Count > 0
	_, r.Kept = g.ranks()
	return r
}

// place asks the tree for nodes, nil if there are none.
func (g *group) place() *topology.Placing {
	r := g.asks()
	r.Better = g.better
	if len(r.Slices) == 0 {
		return g.tree.Place(r)
	}
	ranks, _ := g.ranks()
	if !inPart(ranks) {
		return g.tree.Place(r)
	}
	f := refill{group: g, ranks: ranks, nodes: make([]int, len(ranks))}
	return f.run(r)
}

func (g *group) chance() func() uint32 {
	if g.variation == nil {
		return nil
	}
	return g.variation.rank
}

// In the place of the node of a rank: one that is to be placed, and one that is
// not and has none.
const (
	missing = -1
	over    = -2
)

// inPart says that not all of the ranks are to be placed.
func inPart(ranks []int) bool {
	return slices.ContainsFunc(ranks, func(node int) bool { return node != missing })
}

// ranks are the tree's node of each rank that stays, or missing, or over; and kept the nodes of all that stay, the leader's with them.
func (g *group) ranks() (ranks, kept []int) {
	for _, s := range g.members {
		if s.class.Kept == nil {
			for range s.class.Count {
				ranks = append(ranks, missing)
			}
			continue
		}
		for _, name := range s.class.Kept {
			node, known := g.index[name]
			switch {
			case name == "":
				ranks = append(ranks, missing)
			case known:
				ranks, kept = append(ranks, node), append(kept, node)
			default:
				// Its pod is over, or its node is gone.
				ranks = append(ranks, over)
			}
		}
	}
	if g.leader != nil {
		for _, name := range g.leader.class.Kept {
			if node, known := g.index[name]; known && name != "" {
				kept = append(kept, node)
			}
		}
	}
	return ranks, kept
}

// seated notes where the first pod is.
func (g *group) seated(p *topology.Placing) {
	if len(p.Nodes) > 0 {
		g.home = g.nodes[g.inTree[p.Nodes[0]]].Node()
	}
	if first := g.first(); first != nil {
		g.home = first
	}
}

// first is the node of the first pod, where that stays.
func (g *group) first() *v1.Node {
	if len(g.members) == 0 || len(g.members[0].class.Kept) == 0 {
		return nil
	}
	for _, info := range g.nodes {
		if node := info.Node(); node != nil && node.Name == g.members[0].class.Kept[0] {
			return node
		}
	}
	return nil
}
