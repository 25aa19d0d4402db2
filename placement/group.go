package placement

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/placement/topology"
)

// group is the classes that ask for domains together, or are only judged together.
type group struct {
	*trial
	topology *Topology
	// members are in the order of ranks; leader is the one beside them, nil
	// without one.
	members []*classSearch
	leader  *classSearch

	// labels are the levels without that of single nodes.
	labels []string
	// request is what is asked of the tree, as far as it is always the same.
	request topology.Request
	// placed: the group has had its turn in this try.
	placed bool
	// home is the node of the first pod, once that is placed.
	home *v1.Node
	// others: the gang has classes that are not in the group.
	others bool

	tree *topology.Tree
	// inTree are the trial's indices of the tree's nodes, index is the reverse by
	// name.
	inTree []int
	index  map[string]int
	// better is which of two of the tree's nodes so many pods go onto better, nil where
	// chance decides.
	better func(a, b, pods int) int
}

// groups joins the classes that ask for domains together, and those that are judged
// together.
func (t *trial) groups(searches []*classSearch) []*group {
	var out []*group
	for _, s := range searches {
		asked := s.class.Topology
		if asked == nil {
			continue
		}
		i := slices.IndexFunc(out, func(g *group) bool { return g.topology == asked })
		if i < 0 {
			i = len(out)
			out = append(out, newGroup(t, asked))
		}
		if !asked.Unasked {
			s.group = out[i]
		}
		if s.class.Leader {
			out[i].leader = s
		} else {
			out[i].members = append(out[i].members, s)
		}
	}
	for _, s := range searches {
		if i := slices.IndexFunc(out, func(g *group) bool { return g.topology == s.class.Beside }); s.class.Beside != nil && i >= 0 {
			s.beside = out[i]
		}
	}
	for _, g := range out {
		g.others = len(g.all()) < len(searches)
	}
	return out
}

func newGroup(t *trial, asked *Topology) *group {
	g := &group{trial: t, topology: asked, labels: withoutHosts(asked.Levels)}
	g.request = topology.Request{Level: g.level(asked.Level), Required: asked.Required}
	for _, s := range asked.Slices {
		g.request.Slices = append(g.request.Slices, topology.Slice{Size: s.Size, Level: g.level(s.Level)})
	}
	return g
}

// level is the place of a level among the levels.
func (g *group) level(name string) int {
	switch {
	case name == "":
		return topology.None
	case name == v1.LabelHostname:
		return len(g.labels)
	}
	return slices.Index(g.labels, name)
}

// all are the members and the leader.
func (g *group) all() []*classSearch {
	if g.leader == nil {
		return g.members
	}
	return append(slices.Clip(g.members), g.leader)
}

// name is that of its first class, which is in no other group.
func (g *group) name() string { return g.all()[0].class.Name }

// count is the number of pods to place, without the leader.
func (g *group) count() (n int) {
	for _, s := range g.members {
		n += s.class.Count
	}
	return n
}

// run places the pods of all classes of the group.
func (g *group) run(ctx context.Context) error {
	g.placed, g.home, g.tree = true, nil, nil
	if !slices.ContainsFunc(g.all(), func(s *classSearch) bool { return s.class.Count > 0 }) {
		// What is beside the group may have come back alone.
		g.home = g.first()
		return nil
	}
	if g.wrong() != nil {
		return nil
	}
	before := len(g.assumed)
	for _, spare := range g.spares() {
		if refused, err := g.ready(ctx); refused || err != nil {
			return err
		}
		g.plant(spare)
		way := g.byChoice
		if g.searched() {
			way = g.byDomain
		}
		if done, err := way(ctx, before, spare); done || err != nil {
			return err
		}
	}
	return nil
}

// ready runs PreFilter for the classes that need it.
func (g *group) ready(ctx context.Context) (refused bool, err error) {
	for _, s := range g.all() {
		if s.class.Count == 0 || s.state != nil {
			continue
		}
		if err := s.preFilter(ctx); err != nil || s.refused != nil {
			return true, err
		}
	}
	return false, nil
}

// wrong is what is wrong with the levels that are asked for, nil if nothing is.
func (g *group) wrong() *reason.Reason {
	outer, at := g.topology.Level, g.request.Level
	if outer != "" && at == topology.None {
		return reason.New(reason.Misconfigured, "it asks for %s, which is none of the topology's levels", outer)
	}
	for i, s := range g.topology.Slices {
		switch level := g.request.Slices[i].Level; {
		case level == topology.None:
			return reason.New(reason.Misconfigured, "it asks for slices in one %s, which is none of the topology's levels", s.Level)
		case level < at || (level == at && i > 0):
			return reason.New(reason.Misconfigured, "it asks for slices in one %s, which in the topology is not inside %s", s.Level, outer)
		default:
			outer, at = s.Level, level
		}
	}
	return nil
}

// spares are whether nodes are left out that are better kept for others: first
// yes, then no.
func (g *group) spares() []bool {
	if len(g.members) > 0 && g.members[0].demand.gpus == 0 {
		return []bool{true, false}
	}
	return []bool{false}
}

// searched says that the domains are tried one by one with the search for single
// classes: where pods go decides where their siblings may go, pods are not of one size, or
// no domain in particular is asked for.
func (g *group) searched() bool {
	if g.request.Level == topology.None && len(g.request.Slices) == 0 && g.leader == nil {
		return true
	}
	if ranks, _ := g.ranks(); len(g.request.Slices) > 0 && inPart(ranks) {
		// What comes back has its slice already, and with it a domain of its own.
		return false
	}
	return g.uneven() || slices.ContainsFunc(g.all(), func(s *classSearch) bool {
		return len(s.near) > 0 || s.preFilterEach || (s.hasClaims && len(s.claims.nearKeys(s.prototype.Pod)) > 0)
	})
}

// takeBack takes all pods of the group off their nodes again.
func (g *group) takeBack(before int) error {
	if len(g.assumed) > before {
		if err := g.forget(before); err != nil {
			return err
		}
	}
	for _, s := range g.all() {
		if len(s.chosen) > 0 || s.stale() {
			// What the plugins were told of is not there any more.
			s.restart()
		}
	}
	return nil
}

// plant builds the tree of the nodes that may have room.
func (g *group) plant(spare bool) {
	g.tree = topology.NewTree(len(g.labels), compareNatural)
	g.tree.Grow(len(g.nodes))
	g.spent += g.plantEffort()
	g.inTree, g.index = slices.Grow(g.inTree[:0], len(g.nodes)), make(map[string]int, len(g.nodes))
	kept := map[string]bool{}
	for _, s := range g.all() {
		for _, name := range s.class.Kept {
			kept[name] = name != ""
		}
	}
	one := g.sized()
	may, leader := g.screens(), g.leads()
	values := make([]string, len(g.labels))
	for i, info := range g.nodes {
		node := info.Node()
		if node == nil {
			continue
		}
		allocatable, requested := info.GetAllocatable(), info.GetRequested()
		n := topology.Node{Name: node.Name, Beside: -1}
		if !spare || one.demand.gpusOf(allocatable, g.isGPU) == 0 {
			n.Room, n.Beside = may.room(leader, info, requested, len(info.GetPods()), (*screen).lets)
		}
		if n.Room == 0 && n.Beside < 0 && !kept[node.Name] {
			continue
		}
		for l, label := range g.labels {
			values[l] = node.Labels[label]
		}
		n.Values = values
		n.Free = one.demand.gpusOf(allocatable, g.isGPU) - one.demand.gpusOf(requested, g.isGPU)
		g.index[node.Name] = g.tree.Add(n)
		g.inTree = append(g.inTree, i)
	}
	g.better = g.compareNodes(one)
}

// compareNodes orders the tree's nodes for pods of the class as the search for single
// classes does, nil where chance decides.
func (g *group) compareNodes(s *classSearch) func(a, b, pods int) int {
	score := s.scoring()
	if score == nil {
		return nil
	}
	// known is the score of each node for the number of pods that was asked last.
	var known []struct {
		pods int
		Score
	}
	var c candidate
	of := func(node, pods int) Score {
		known = slices.Grow(known, len(g.inTree))[:len(g.inTree)]
		k := &known[node]
		if k.pods != pods {
			i := g.inTree[node]
			c = candidate{node: i, gpus: s.demand.freeGPUs(g.nodes[i], g.isGPU), remainder: g.remainderOf(i)}
			k.pods, k.Score = pods, score(&c, pods)
		}
		return k.Score
	}
	return func(a, b, pods int) int { return of(a, pods).Compare(of(b, pods)) }
}

// sized has the size of the pods that are to be placed: of the members, or of the leader
// where that alone has come back.
func (g *group) sized() *classSearch {
	if i := slices.IndexFunc(g.members, func(s *classSearch) bool { return s.class.Count > 0 }); i >= 0 {
		return g.members[i]
	}
	return g.all()[0]
}

// leads is the screen of the leader, nil without one that is to be placed.
func (g *group) leads() *screen {
	if g.leader == nil || g.leader.class.Count == 0 {
		return nil
	}
	s := g.leader.screen()
	return &s
}

// unlimited bounds no room: what is left over counts.
const unlimited = 1 << 30

// distance is how many levels, that of single nodes among them, a node does not
// share with the first pod.
func (g *group) distance(node *v1.Node) uint32 {
	first := g.home
	if first == nil || first.Name == node.Name {
		return 0
	}
	for l, label := range g.labels {
		value, found := node.Labels[label]
		if !found || first.Labels[label] != value {
			return uint32(1 + len(g.labels) - l)
		}
	}
	return 1
}
