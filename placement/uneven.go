package placement

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/placement/topology"
)

// Pods of several sizes may ask for one domain. A tree counts pods of one size; of
// several it counts more than there is room for, and what a domain takes is found out by
// trying it.

// uneven says that the members of which pods are to be placed are not all of one size.
func (g *group) uneven() bool {
	var first *classSearch
	for _, s := range g.members {
		switch {
		case s.class.Count == 0:
		case first == nil:
			first = s
		case !s.demand.equals(&first.demand):
			return true
		}
	}
	return false
}

// equals says that two demands are the same.
func (d *demand) equals(other *demand) bool {
	return d.milliCPU == other.milliCPU && d.memory == other.memory && d.ephemeral == other.ephemeral && slices.Equal(d.scalars, other.scalars)
}

// inTurn are all classes of the group in the order in which they are tried on the nodes
// of a domain: of several sizes the most demanding first.
func (g *group) inTurn() []*classSearch {
	all := g.all()
	if !g.uneven() {
		return all
	}
	return slices.SortedStableFunc(slices.Values(all), func(a, b *classSearch) int { return a.demand.compare(&b.demand) })
}

// screens are those of the members, one for all that are of one size.
type screens []screen

func (g *group) screens() (out screens) {
	if !g.uneven() {
		return screens{g.sized().screen()}
	}
	for _, s := range g.members {
		if s.class.Count > 0 {
			out = append(out, s.screen())
		}
	}
	return out
}

// room is screen.room for members of one size, and for others no less than there is room
// for.
func (s screens) room(leader *screen, info fwk.NodeInfo, requested fwk.Resource, pods int, lets func(*screen, *v1.Node) bool) (room, beside int) {
	if len(s) == 1 {
		return s[0].room(leader, info, requested, pods, lets)
	}
	beside = -1
	for i := range s {
		r, b := s[i].room(leader, info, requested, pods, lets)
		room += min(r, s[i].class.Count)
		if b >= 0 {
			beside = max(beside, 0) + min(b, s[i].class.Count)
		}
	}
	return room, beside
}

// whyUneven says of which member no domain has room for the pods, or that it is only
// together that they have none.
func (g *group) whyUneven() *reason.Reason {
	r := g.asks()
	need := g.wording(r)
	if len(r.Kept) > 0 {
		return reason.New(reason.NoPlacement, "%s, where the rest of the gang is: there is no room for that", need)
	}
	gpus, leader := 0, g.leads()
	for _, s := range g.members {
		alone := r
		if alone.Count, alone.Leader = s.class.Count, false; alone.Count == 0 {
			continue
		}
		size := screens{s.screen()}
		now := g.treeOf(func(info fwk.NodeInfo) (room, beside int) {
			return size.room(leader, info, info.GetRequested(), len(info.GetPods()), (*screen).lets)
		})
		empty := g.emptied(size)
		switch of := fmt.Sprintf("of %q", s.class.Name); {
		case empty.Place(alone) == nil:
			return reason.New(reason.ExceedsCluster, "%s; even empty, %s", need, g.most(empty, alone, "the largest", of))
		case now.Place(alone) == nil:
			return reason.New(reason.NoPlacement, "%s; %s", need, g.most(now, alone, "the best", of))
		}
		gpus += s.class.Count * int(s.demand.gpus)
	}
	r.Count, r.Leader = gpus, false
	every := &demand{}
	all := func(info fwk.NodeInfo) (room, beside int) {
		return int(every.gpusOf(info.GetAllocatable(), g.isGPU)), -1
	}
	free := func(info fwk.NodeInfo) (room, beside int) {
		return int(max(0, every.freeGPUs(info, g.isGPU))), -1
	}
	where := fmt.Sprintf("of their %d GPUs", gpus)
	switch most, now := g.treeOf(all), g.treeOf(free); {
	case most.Place(r) == nil:
		return reason.New(reason.ExceedsCluster, "%s; even empty, %s", need, g.most(most, r, "the largest", where))
	case now.Place(r) == nil:
		return reason.New(reason.NoPlacement, "%s; %s", need, g.most(now, r, "the best", where))
	}
	return reason.New(reason.NoPlacement, "%s; there is room for each of these alone, and not for all together", need)
}

// most says for how many of something one domain has room, or all nodes together.
func (g *group) most(tree *topology.Tree, r topology.Request, which, of string) string {
	best, room, all := tree.Best(r)
	switch {
	case !r.Required:
		return fmt.Sprintf("there is room for %s %s", numberOrNone(all), of)
	case best < 0:
		return fmt.Sprintf("none has room for one %s", of)
	}
	return fmt.Sprintf("%s, %s, has room for %d %s", which, tree.Value(best, r.Level), room, of)
}
