package quota

// node is a ClusterQueue or a Cohort in the tree of quota.
type node struct {
	name string
	// queue is nil for a Cohort.
	queue    *clusterQueue
	parent   *node
	children map[*node]struct{}
	cells    map[FlavorResource]*cell
	// height is the longest way down to a ClusterQueue; 0 for one. Kueue measures
	// by it from how far away quota is borrowed.
	height int
	// weight is that of fair sharing.
	weight float64
	// findings are of the object.
	findings findings

	// The rest is of Cohorts. explicit says that there is an object; a Cohort
	// that is only named by others exists without, and has no quota of its own.
	explicit bool
	// parentName is the parent that the object names.
	parentName string
	// looped says that the named parents lead back to this Cohort. It has no
	// parent then, and nothing below it is admitted.
	looped bool
}

func newNode(name string) *node {
	return &node{name: name, weight: 1, children: map[*node]struct{}{}, cells: map[FlavorResource]*cell{}}
}

func (n *node) root() *node {
	for n.parent != nil {
		n = n.parent
	}
	return n
}

// cell returns the node's cell and makes it where it is not, up to the root.
func (n *node) cell(fr FlavorResource) *cell {
	c := n.cells[fr]
	if c == nil {
		c = &cell{node: n, limits: limits{borrowing: noLimit, lending: noLimit}}
		n.cells[fr] = c
		if n.parent != nil {
			c.link(n.parent.cell(fr))
		}
	}
	return c
}

// tidy forgets a cell of which nothing is known any more, up to the root.
func (n *node) tidy(fr FlavorResource) {
	c := n.cells[fr]
	if c == nil || !c.idle() {
		return
	}
	delete(n.cells, fr)
	if n.parent != nil {
		c.unlink()
		n.parent.tidy(fr)
	}
}

// setLimits makes the node's object say this of its cells, and nothing else.
func (n *node) setLimits(all map[FlavorResource]limits) {
	for fr, c := range n.cells {
		if _, stays := all[fr]; c.listed && !stays {
			c.set(limits{borrowing: noLimit, lending: noLimit}, false)
			n.tidy(fr)
		}
	}
	for fr, l := range all {
		n.cell(fr).set(l, true)
	}
}

// join puts the node, with its quota and its use, under a parent.
func (n *node) join(parent *node) {
	n.parent = parent
	parent.children[n] = struct{}{}
	for fr, c := range n.cells {
		c.link(parent.cell(fr))
	}
	parent.grow(n.height + 1)
}

// part takes the node from its parent.
func (n *node) part() {
	parent := n.parent
	if parent == nil {
		return
	}
	n.parent = nil
	delete(parent.children, n)
	for fr, c := range n.cells {
		c.unlink()
		parent.tidy(fr)
	}
	parent.shrink()
}

// grow makes the node and those above it at least so high.
func (n *node) grow(height int) {
	for ; n != nil && n.height < height; n, height = n.parent, height+1 {
		n.height = height
	}
}

// shrink works out the heights from this node up, after a child has left.
func (n *node) shrink() {
	for ; n != nil; n = n.parent {
		height := 0
		for child := range n.children {
			if height = max(height, child.height+1); height == n.height {
				return
			}
		}
		n.height = height
	}
}
