package quota

import "cmp"

// Head is a job that would be admitted next in its ClusterQueue.
type Head struct {
	Request    Request
	Assignment *Assignment

	node *node
	// shares are those of its ClusterQueue and of the Cohorts above it, with the
	// head admitted, by the Cohort in which they are compared; they are true for
	// the Tree as it was after so many changes.
	shares  map[*node]share
	changes int64
}

// FairFirst returns which of several heads goes first with fair sharing: at each
// Cohort, from the bottom up, the head whose side would have the smaller share
// with it goes on, one whose side does not borrow what it asks for before one
// whose side does; between equals priority, then age, then UID. The heads must
// be of different ClusterQueues; those that are not in the tree of Cohorts of the
// first are left out. It is nil for no heads.
//
// A Head keeps what was worked out for it until the Tree changes, so that it is
// cheap to ask again without some of them.
func (t *Tree) FairFirst(heads []*Head) *Head {
	all := make([]*Head, 0, len(heads))
	var root *node
	for _, h := range heads {
		q := t.existing(h.Assignment.ClusterQueue)
		if q == nil {
			continue
		}
		if root == nil {
			root = q.root()
		}
		if root == q.root() {
			h.enter(t, q.node)
			all = append(all, h)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return winner(root, all)
}

func (h *Head) enter(t *Tree, n *node) {
	if h.shares != nil && h.node == n && h.changes == t.changes {
		return
	}
	defer t.without(h.Request.ID)()
	h.node, h.shares, h.changes = n, map[*node]share{}, t.changes
	k := &taking{queue: n.queue, usage: h.Assignment.Usage}
	k.count(1, rights)
	m := members{}
	for ; n.parent != nil; n = n.parent {
		h.shares[n.parent] = m.of(n).share(afterwards)
	}
	k.count(-1, rights)
}

// winner is the head that goes first of those below n.
func winner(n *node, all []*Head) *Head {
	var best *Head
	var bySide map[*node][]*Head
	for _, h := range all {
		switch {
		case h.node == n:
			return h
		case h.node.parent == n:
			if best == nil || h.compare(best, n) < 0 {
				best = h
			}
			continue
		case bySide == nil:
			bySide = map[*node][]*Head{}
		}
		side := h.node
		for side.parent != n {
			side = side.parent
		}
		bySide[side] = append(bySide[side], h)
	}
	for side, some := range bySide {
		if h := winner(side, some); best == nil || h.compare(best, n) < 0 {
			best = h
		}
	}
	return best
}

func (h *Head) compare(o *Head, in *node) int {
	a, b := h.shares[in], o.shares[in]
	if x, y := a.on(h.Assignment.Usage), b.on(o.Assignment.Usage); x != y {
		if y {
			return -1
		}
		return 1
	}
	return cmp.Or(
		a.compare(b),
		cmp.Compare(o.Request.Priority, h.Request.Priority),
		h.Request.Created.Compare(o.Request.Created),
		cmp.Compare(h.Request.ID, o.Request.ID),
	)
}
