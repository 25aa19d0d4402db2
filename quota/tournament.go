package quota

import "cmp"

// Head is a job that would be admitted next in its ClusterQueue.
type Head struct {
	Request    Request
	Assignment *Assignment
}

// FairFirst returns which of several heads goes first with fair sharing: at each
// Cohort, from the bottom up, the head whose side would have the smaller share
// with it goes on, one whose side does not borrow what it asks for before one
// whose side does; between equals priority, then age, then UID. All heads must
// be of one tree, of different ClusterQueues. It is -1 for no heads.
func (t *Tree) FairFirst(heads []Head) int {
	all := make([]*entrant, 0, len(heads))
	for i := range heads {
		h := &heads[i]
		q := t.existing(h.Assignment.ClusterQueue)
		if q == nil {
			continue
		}
		e := &entrant{index: i, Head: h, node: q.node, shares: map[*node]share{}}
		e.enter(t)
		all = append(all, e)
	}
	if len(all) == 0 {
		return -1
	}
	return winner(all[0].node.root(), all).index
}

// entrant is a head in the tournament.
type entrant struct {
	*Head
	index int
	node  *node
	// shares are those of its ClusterQueue and of the Cohorts above it, with the
	// head admitted, by the Cohort in which they are compared.
	shares map[*node]share
}

func (e *entrant) enter(t *Tree) {
	defer t.without(e.Request.ID)()
	k := &taking{queue: e.node.queue, usage: e.Assignment.Usage}
	k.count(1, afterwards)
	m := members{}
	for n := e.node; n.parent != nil; n = n.parent {
		e.shares[n.parent] = m.of(n).share(afterwards)
	}
	k.count(-1, afterwards)
}

// winner is the head that goes first of those below n.
func winner(n *node, all []*entrant) *entrant {
	bySide := map[*node][]*entrant{}
	for _, e := range all {
		if e.node == n {
			return e
		}
		side := e.node
		for side.parent != n {
			side = side.parent
		}
		bySide[side] = append(bySide[side], e)
	}
	var best *entrant
	for side, some := range bySide {
		if e := winner(side, some); best == nil || e.compare(best, n) < 0 {
			best = e
		}
	}
	return best
}

func (e *entrant) compare(o *entrant, in *node) int {
	a, b := e.shares[in], o.shares[in]
	if x, y := a.on(e.Assignment.Usage), b.on(o.Assignment.Usage); x != y {
		if y {
			return -1
		}
		return 1
	}
	return cmp.Or(
		a.compare(b),
		cmp.Compare(o.Request.Priority, e.Request.Priority),
		e.Request.Created.Compare(o.Request.Created),
		cmp.Compare(e.Request.ID, o.Request.ID),
	)
}
