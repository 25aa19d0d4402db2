package placement

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/placement/topology"
)

// whyNot says in numbers that no domain is large enough; nil where it is not the
// domains that are too small.
func (g *group) whyNot() *reason.Reason {
	if wrong := g.wrong(); wrong != nil {
		return wrong
	}
	switch {
	case g.tree == nil || g.refused():
		return nil
	case g.uneven():
		return g.whyUneven()
	}
	r := g.asks()
	loose := r
	loose.Required, loose.Slices, loose.Kept, loose.Level = false, nil, nil, topology.None
	if g.tree.Place(loose) == nil {
		// There is too little room at all.
		return nil
	}
	if g.place() != nil {
		return nil
	}
	best, room, all := g.tree.Best(r)
	need := g.wording(r)
	unlabelled, besides := g.unlabelled(), ""
	if unlabelled > 0 {
		besides = fmt.Sprintf("; %s the label", nodesLack(unlabelled))
	}
	switch {
	case len(r.Kept) > 0:
		return reason.New(reason.NoPlacement, "%s, where the rest of the gang is: there is no room for that", need)
	case unlabelled > 0 && unlabelled == len(g.inTree):
		return reason.New(reason.NoPlacement, "%s; no node with room has that label", need)
	case !r.Required:
		return reason.New(reason.NoPlacement, "%s; there is room for %s in such%s", need, numberOrNone(all), besides)
	}
	empty := g.emptied(g.screens())
	switch largest, most, _ := empty.Best(r); {
	case empty.Place(r) != nil:
	case largest < 0:
		return reason.New(reason.ExceedsCluster, "%s; even empty, none has room for one%s", need, besides)
	default:
		return reason.New(reason.ExceedsCluster, "%s; even empty, the largest, %s, has room for %d%s", need, empty.Value(largest, r.Level), most, besides)
	}
	if best < 0 {
		return reason.New(reason.NoPlacement, "%s; none has room for one%s", need, besides)
	}
	return reason.New(reason.NoPlacement, "%s; the best, %s, has room for %d%s%s", need, g.tree.Value(best, r.Level), room, g.missing(r), besides)
}

// missing says in which domain the fewest GPUs would have to become free for all pods,
// where it is GPUs that are missing.
func (g *group) missing(r topology.Request) string {
	s := g.sized()
	if len(r.Slices) > 0 || r.Leader || s.demand.gpus == 0 {
		return ""
	}
	type domain struct {
		shortfall
		name string
		room int
	}
	domains := map[string]*domain{}
	screen := s.screen()
	for i, info := range g.nodes {
		node := info.Node()
		if node == nil || !screen.lets(node) {
			continue
		}
		name, values := node.Name, node.Name
		if r.Level < len(g.labels) {
			name, values = node.Labels[g.labels[r.Level]], s.labelValues(i, g.labels[:r.Level+1])
		}
		d := domains[values]
		if d == nil {
			d = &domain{shortfall: shortfallOf(&s.demand), name: name}
			domains[values] = d
		}
		allocatable, requested := info.GetAllocatable(), info.GetRequested()
		size := s.demand.gpusOf(allocatable, g.isGPU)
		d.room += s.demand.gpuRoom(allocatable, requested, r.Count)
		d.add(size-s.demand.gpusOf(requested, g.isGPU), size)
	}
	words, least := "", int64(math.MaxInt64)
	for _, values := range slices.SortedFunc(maps.Keys(domains), compareNatural) {
		d := domains[values]
		if gpus, nodes := d.of(r.Count - d.room); d.name != "" && nodes > 0 && gpus < least {
			words, least = fmt.Sprintf("; in %s %s", d.name, s.demand.unit().missing(gpus, nodes)), gpus
		}
	}
	return words
}

func nodesLack(n int) string {
	if n == 1 {
		return "1 node with room lacks"
	}
	return fmt.Sprintf("%d nodes with room lack", n)
}

func (g *group) refused() bool {
	for _, s := range g.all() {
		if s.refused != nil {
			return true
		}
	}
	return len(g.members) == 0
}

// wording is what the group needs.
func (g *group) wording(r topology.Request) string {
	text := g.needs(r.Count)
	if r.Leader {
		text += " and their leader"
	}
	if r.Level != topology.None && r.Required {
		text += " in one " + g.topology.Level
	}
	for i, s := range g.topology.Slices {
		if i > 0 {
			text += fmt.Sprintf(", and of those each %d in one %s", s.Size, s.Level)
			continue
		}
		text += fmt.Sprintf(", each %d in one %s", s.Size, s.Level)
	}
	return text
}

// needs is how many pods the group needs, and of which sizes.
func (g *group) needs(count int) string {
	first := g.sized()
	switch {
	case !g.others && !g.uneven():
		return "needs " + first.demand.podsOf(count)
	case !g.uneven():
		return fmt.Sprintf("pod set %q needs %s", first.class.Name, first.demand.podsOf(count))
	}
	var each []string
	for _, s := range g.members {
		if s.class.Count > 0 {
			each = append(each, fmt.Sprintf("pod set %q needs %s", s.class.Name, s.demand.podsOf(s.class.Count)))
		}
	}
	return strings.Join(each, " and ")
}

// unlabelled is how many nodes with room lack the label of a level that pods must
// share.
func (g *group) unlabelled() (n int) {
	var asked []string
	if g.topology.Required {
		asked = append(asked, g.topology.Level)
	}
	for _, s := range g.topology.Slices {
		asked = append(asked, s.Level)
	}
	for _, i := range g.inTree {
		labels := g.nodes[i].Node().Labels
		if slices.ContainsFunc(asked, func(level string) bool { return level != v1.LabelHostname && labels[level] == "" }) {
			n++
		}
	}
	return n
}

// emptied is the tree of the nodes that pods of such sizes may use as if they were empty.
func (g *group) emptied(sizes screens) *topology.Tree {
	leader, nothing := g.leads(), framework.NewResource(nil)
	return g.treeOf(func(info fwk.NodeInfo) (room, beside int) {
		return sizes.room(leader, info, nothing, 0, (*screen).mightLet)
	})
}

// treeOf is the tree of all nodes with such room.
func (g *group) treeOf(room func(fwk.NodeInfo) (room, beside int)) *topology.Tree {
	tree := topology.NewTree(len(g.labels), compareNatural)
	for _, info := range g.nodes {
		node := info.Node()
		if node == nil {
			continue
		}
		n := topology.Node{Name: node.Name}
		n.Room, n.Beside = room(info)
		for _, label := range g.labels {
			n.Values = append(n.Values, node.Labels[label])
		}
		tree.Add(n)
	}
	return tree
}

// judge is how close to each other the pods of the group are, now that all have
// nodes. What those that stay have is room that the gang could have had.
func (g *group) judge() topology.Quality {
	r := g.request
	r.Leader = g.leader != nil && g.leader.class.Count > 0
	ranks, nodes := g.ranks()
	for _, node := range ranks {
		if node >= 0 {
			g.tree.Return(node)
			r.Count++
		}
	}
	for _, s := range g.all() {
		for _, name := range s.chosen {
			if node, known := g.index[name]; known {
				nodes = append(nodes, node)
			}
		}
		if s != g.leader {
			r.Count += len(s.chosen)
		}
	}
	q := g.tree.Quality(r, nodes)
	if g.uneven() && q.Fewest < q.Domains {
		// The tree counts more room than there is for pods of several sizes together, so
		// it knows only that no fewer than these would do.
		q.Fewest = 0
	}
	return q
}
