package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/muster-gpu/muster/placement/topology"
)

// byChoice has the tree choose nodes. As long as Filter refuses some of them, the tree
// is told so and chooses again. It is not done when nothing is left to choose.
func (g *group) byChoice(ctx context.Context, before int, spare bool) (done bool, err error) {
	defer func() {
		if errors.Is(err, errSpent) {
			g.untried = g.unchosen(spare)
		}
	}()
	g.recall()
	for round := 0; ; round++ {
		if round == probeAfter {
			if err := g.probe(ctx); err != nil {
				return true, err
			}
		}
		if err := g.spend(ctx, g.chooseEffort()); err != nil {
			return true, err
		}
		p := g.place()
		if p == nil {
			return false, nil
		}
		if done, err := g.settle(ctx, p); done || err != nil {
			return true, err
		}
		if err := g.takeBack(before); err != nil {
			return true, err
		}
	}
}

// limit has the tree hear how much room Filter leaves on a node.
func (g *group) limit(node, room, beside int) {
	g.tree.Limit(node, room, beside)
	info := g.nodes[g.inTree[node]]
	g.progress.refuses(groupNode{g.name(), info.Node().Name}, refusedRoom{info.GetGeneration(), room, beside})
}

// recall has the tree hear what Filter has refused the group before.
func (g *group) recall() {
	if len(g.progress.refused) == 0 {
		return
	}
	of := g.name()
	for node, i := range g.inTree {
		info := g.nodes[i]
		if r, found := g.progress.refused[groupNode{of, info.Node().Name}]; found && r.generation == info.GetGeneration() {
			g.tree.Limit(node, r.room, r.beside)
		}
	}
}

// unchosen says how many of the domains were tried that are large enough.
func (g *group) unchosen(spare bool) string {
	r := g.asks()
	left := g.tree.Large(r)
	g.plant(spare)
	return triedOf(g.tree.Large(r)-left, g.tree.Large(r), g.topology.Level)
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
				g.limit(node, room, room)
			default:
				g.limit(node, g.tree.Room(node), room)
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
		if err := g.probeFor(ctx, g.members[i], func(node int) { g.limit(node, 0, 0) }); err != nil {
			return err
		}
	}
	if g.leader == nil || g.leader.class.Count == 0 {
		return nil
	}
	return g.probeFor(ctx, g.leader, func(node int) { g.limit(node, g.tree.Room(node), -1) })
}

// probeFor calls refuses with the nodes that Filter refuses to a pod of the class.
// One that goes only where another of the group is tells nothing before that is placed.
func (g *group) probeFor(ctx context.Context, s *classSearch, refuses func(node int)) error {
	if len(s.prototype.GetRequiredAffinityTerms()) > 0 {
		return nil
	}
	if err := s.claim(ctx); err != nil || s.refused != nil {
		return err
	}
	for node, at := range g.inTree {
		if err := g.spend(ctx, 1); err != nil {
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
