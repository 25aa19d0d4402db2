package placement

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/placement/topology"
)

// place asks the tree for nodes, nil if there are none.
func (g *group) place() *topology.Placing {
	r := g.request
	r.Rank = g.chance()
	r.Leader = g.leader != nil && g.leader.class.Count > 0
	ranks, kept := g.ranks()
	r.Kept = kept
	if len(r.Slices) == 0 || !inPart(ranks) {
		r.Count = g.count()
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

// settle puts the pods on the nodes that the tree has chosen. Where Filter lets
// fewer onto a node, the tree hears of it, and done is false.
func (g *group) settle(ctx context.Context, p *topology.Placing) (done bool, err error) {
	refused := map[int]int{}
	on := map[int]int{}
	if p.Leader >= 0 {
		placed, err := g.sit(ctx, g.leader, p.Leader, 1)
		if err != nil || g.leader.refused != nil {
			return true, err
		}
		if placed == 0 {
			refused[p.Leader] = -1
		}
	}
	from := 0
	for _, s := range g.members {
		to := from + s.class.Count
		for from < to {
			node := p.Nodes[from]
			next := from + 1
			for next < to && p.Nodes[next] == node {
				next++
			}
			want := next - from
			from = next
			if _, full := refused[node]; full {
				continue
			}
			placed, err := g.sit(ctx, s, node, want)
			if err != nil || s.refused != nil {
				return true, err
			}
			if on[node] += placed; placed < want {
				refused[node] = on[node]
			}
		}
	}
	if len(refused) > 0 {
		for node, room := range refused {
			switch {
			case node != p.Leader:
				g.tree.Limit(node, room, room)
			default:
				g.tree.Limit(node, g.tree.Room(node), room)
			}
		}
		return false, nil
	}
	g.seated(p)
	return true, nil
}

// sit places up to want pods of a class on a node.
func (g *group) sit(ctx context.Context, s *classSearch, node, want int) (int, error) {
	i := g.inTree[node]
	name := g.nodes[i].Node().Name
	if s.avoid.Has(name) {
		// The tree knows only what the first of the members avoids.
		return 0, nil
	}
	placed, _, err := s.fill(ctx, &candidate{name: name, node: i, room: want}, want)
	return placed, err
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

// probeAfter is how many choices are made before Filter is asked of
// all nodes: where it refuses many, each choice tells of only a few.
const probeAfter = 2

// probe asks Filter of each node for one pod of the members, and for the leader, and
// has the tree hear what it refuses.
func (g *group) probe(ctx context.Context) error {
	if refused, err := g.ready(ctx); refused || err != nil {
		return err
	}
	if i := slices.IndexFunc(g.members, func(s *classSearch) bool { return s.class.Count > 0 }); i >= 0 {
		if err := g.probeFor(ctx, g.members[i], func(node int) { g.tree.Limit(node, 0, 0) }); err != nil {
			return err
		}
	}
	if g.leader == nil || g.leader.class.Count == 0 {
		return nil
	}
	return g.probeFor(ctx, g.leader, func(node int) { g.tree.Limit(node, g.tree.Room(node), -1) })
}

// probeFor calls refuses with the nodes that Filter refuses to a pod of the class.
// One that goes only where another of the group is tells nothing before that is placed.
func (g *group) probeFor(ctx context.Context, s *classSearch, refuses func(node int)) error {
	if len(s.prototype.GetRequiredAffinityTerms()) > 0 {
		return nil
	}
	for node, at := range g.inTree {
		if err := g.goesOn(ctx); err != nil {
			return err
		}
		switch status := s.filter(ctx, g.nodes[at]); {
		case status.IsRejected():
			refuses(node)
		case !status.IsSuccess():
			return fmt.Errorf("filtering node %s: %w", g.nodes[at].Node().Name, status.AsError())
		}
	}
	return nil
}

// byDomain tries the domains one by one. Pods of a class are alike, so they get
// their ranks when all have nodes.
func (g *group) byDomain(ctx context.Context, before int) (done bool, err error) {
	r := g.request
	r.Rank, r.Count = g.chance(), g.count()
	r.Leader = g.leader != nil && g.leader.class.Count > 0
	_, r.Kept = g.ranks()
	order := g.tree.Packing(r.Count)
	for _, domain := range g.tree.Domains(r) {
		bounds := make([]int, len(domain))
		place := make(map[int]int, len(domain))
		for i, node := range domain {
			bounds[i] = g.inTree[node]
			place[bounds[i]] = order[node]
		}
		complete := true
		for _, s := range g.all() {
			s.bounds, s.order = bounds, place
			err := s.run(ctx)
			s.bounds, s.order = nil, nil
			if err != nil {
				return true, err
			}
			if s.refused != nil {
				return true, nil
			}
			if complete = len(s.chosen) == s.class.Count; !complete {
				break
			}
		}
		if complete {
			if p, whole := g.byRank(); whole {
				g.seated(p)
				return true, nil
			}
		}
		if err := g.takeBack(before); err != nil {
			return true, err
		}
	}
	return false, nil
}

// byRank gives the pods of each class their ranks and says whether all slices
// are whole.
func (g *group) byRank() (p *topology.Placing, whole bool) {
	p = &topology.Placing{Leader: -1}
	for _, s := range g.members {
		nodes := make([]int, len(s.chosen))
		for i, name := range s.chosen {
			nodes[i] = g.index[name]
		}
		g.tree.Sort(nodes)
		for i, node := range nodes {
			s.chosen[i] = g.nodes[g.inTree[node]].Node().Name
		}
		p.Nodes = append(p.Nodes, nodes...)
	}
	for _, layer := range g.request.Slices {
		for from := 0; from < len(p.Nodes); from += layer.Size {
			slice := p.Nodes[from:min(from+layer.Size, len(p.Nodes))]
			for _, node := range slice {
				if !g.tree.Share(slice[0], node, layer.Level) {
					return nil, false
				}
			}
		}
	}
	return p, true
}
