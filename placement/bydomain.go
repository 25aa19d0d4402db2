package placement

import (
	"context"
	"fmt"

	"github.com/muster-gpu/muster/placement/topology"
)

// byDomain tries the domains one by one. Pods of a class are alike, so they get
// their ranks when all have nodes.
func (g *group) byDomain(ctx context.Context, before int, spare bool) (done bool, err error) {
	r := g.asks()
	order := g.tree.Packing(r.Count)
	var domains []domain
	for _, d := range g.tree.Domains(r) {
		of := domain{name: d.Name, nodes: d.Nodes, outer: d.Level != r.Level}
		for _, node := range d.Nodes {
			of.generation = max(of.generation, g.nodes[g.inTree[node]].GetGeneration())
		}
		domains = append(domains, of)
	}
	turn := turn{trial: g.trial, of: fmt.Sprintf("%s/%t", g.name(), spare), level: g.topology.Level}
	return turn.run(domains, func(nodes []int) (done bool, err error) {
		bounds := make([]int, len(nodes))
		place := make(map[int]int, len(nodes))
		for i, node := range nodes {
			bounds[i] = g.inTree[node]
			place[bounds[i]] = order[node]
		}
		complete := true
		for _, s := range g.inTurn() {
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
		return false, g.takeBack(before)
	})
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
