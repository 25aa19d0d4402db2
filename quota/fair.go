package quota

import (
	"cmp"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// fairness is what a Preemption needs with fair sharing: a copy of the whole
// tree. The rules are Kueue's. A job of another ClusterQueue may be asked to
// leave while its side, below the lowest Cohort in common, has borrowed, and
//   - the request stays within its ClusterQueue's nominal quota, or
//   - a FairStrategy allows it: the second one only where the first is not
//     enough.
type fairness struct {
	strategies []FairStrategy
	home, root *member
	// path has the Cohorts above home.
	path map[*member]bool
	// within says that the request stays within its ClusterQueue's nominal quota
	// of what is short.
	within bool
}

// FairStrategy says when a job of another ClusterQueue may be preempted to share
// fairly. The names are those of Kueue's configuration. Shares are those of the
// two members of the lowest Cohort in common.
type FairStrategy string

const (
	// LessThanOrEqualToFinalShare: the request's side then has no larger share than
	// the victim's side has without the victim.
	LessThanOrEqualToFinalShare FairStrategy = "LessThanOrEqualToFinalShare"
	// LessThanInitialShare: the request's side then has a smaller share than the
	// victim's side has with the victim.
	LessThanInitialShare FairStrategy = "LessThanInitialShare"
)

// fairnessOf copies the tree that a ClusterQueue is in.
func fairnessOf(q *clusterQueue, strategies []FairStrategy, cells copied) (*fairness, members) {
	m := members{}
	f := &fairness{strategies: strategies, root: copyOf(q.root(), nil, m, cells), path: map[*member]bool{}}
	f.home = m[q.node]
	for n := f.home.parent; n != nil; n = n.parent {
		f.path[n] = true
	}
	return f, m
}

func copyOf(n *node, parent *member, m members, cells copied) *member {
	own := &member{name: n.name, parent: parent, queue: n.queue != nil, weight: n.weight, cells: make(map[FlavorResource]*cell, len(n.cells))}
	for fr, c := range n.cells {
		own.cells[fr] = cells.of(c)
	}
	m[n] = own
	for child := range n.children {
		own.children = append(own.children, copyOf(child, own, m, cells))
	}
	slices.SortFunc(own.children, func(a, b *member) int { return cmp.Compare(a.name, b.name) })
	return own
}

// sides are the two members of the lowest Cohort in common that stand for the
// request and for a ClusterQueue.
func (f *fairness) sides(other *member) (mine, theirs *member) {
	for theirs = other; !f.path[theirs.parent]; theirs = theirs.parent {
	}
	for mine = f.home; mine.parent != theirs.parent; mine = mine.parent {
	}
	return mine, theirs
}

// distance is how many Cohorts up from the request's ClusterQueue the lowest one
// is that it has in common with another.
func (f *fairness) distance(other *member) (n int) {
	mine, _ := f.sides(other)
	for m := f.home; m != mine; m = m.parent {
		n++
	}
	return n
}

// admitted does something as if the request had been admitted.
func (p *Preemption) admitted(do func()) {
	p.use(amount.plus)
	do()
	p.use(amount.minus)
}

// use adds what the request wants to the use, or takes it away again.
func (p *Preemption) use(do func(amount, amount) amount) { use(p.wanted, do, rights...) }

// keepsEnough says whether the victim's side, without it, has at least the share
// of the request's side. The request counts as admitted.
func (p *Preemption) keepsEnough(v *victim) bool {
	mine, theirs := p.fair.sides(v.home)
	limit := mine.share(afterwards)
	use(v.usage, amount.minus, rights...)
	rest := theirs.share(afterwards)
	use(v.usage, amount.plus, rights...)
	return limit.compare(rest) <= 0
}

// hasMore says whether the victim's side has a larger share than the request's.
// The request counts as admitted.
func (p *Preemption) hasMore(v *victim) bool {
	mine, theirs := p.fair.sides(v.home)
	return mine.share(afterwards).compare(theirs.share(afterwards)) < 0
}

// allows says whether a strategy lets a victim of another ClusterQueue go. The
// request counts as admitted.
func (p *Preemption) allows(s FairStrategy, v *victim) bool {
	if s == LessThanInitialShare {
		return p.hasMore(v)
	}
	return p.keepsEnough(v)
}

// fairlyLegal says whether a victim of another ClusterQueue may go.
func (p *Preemption) fairlyLegal(v *victim) bool {
	if p.fair.within {
		return true
	}
	legal := false
	p.admitted(func() {
		legal = slices.ContainsFunc(p.fair.strategies, func(s FairStrategy) bool { return p.allows(s, v) })
	})
	return legal
}

// victimQueues yields the ClusterQueues of victims, time and again the one with
// the largest share at each Cohort from the root down, as long as it has victims.
type victimQueues struct {
	*fairness
	victims map[*member][]*victim
	done    map[*member]bool
}

func (f *fairness) queues(victims []*victim) *victimQueues {
	o := &victimQueues{fairness: f, victims: map[*member][]*victim{}, done: map[*member]bool{}}
	for _, v := range victims {
		o.victims[v.home] = append(o.victims[v.home], v)
	}
	return o
}

// next is nil when there is no ClusterQueue left.
func (o *victimQueues) next() *member {
	for !o.done[o.root] {
		if m := o.below(o.root); m != nil {
			return m
		}
	}
	return nil
}

// below is nil also where it has only found that some are done.
func (o *victimQueues) below(cohort *member) *member {
	var first *member
	var most share
	for _, m := range cohort.children {
		if o.done[m] {
			continue
		}
		s := m.share(afterwards)
		// Whoever has borrowed nothing is protected; the request's own side may
		// still be out of balance within.
		spared := len(s.borrowed) == 0 && m != o.home && !o.path[m]
		if spared || (m.queue && len(o.victims[m]) == 0) {
			o.done[m] = true
			continue
		}
		if first == nil || cmp.Or(s.compare(most), o.tie(m, first)) > 0 {
			first, most = m, s
		}
	}
	switch {
	case first == nil:
		o.done[cohort] = true
		return nil
	case first.queue:
		return first
	default:
		return o.below(first)
	}
}

// tie prefers, of two members with the same share, a Cohort, and of two
// ClusterQueues the one whose first victim comes first.
func (o *victimQueues) tie(m, first *member) int {
	switch {
	case m.queue && first.queue:
		return cmp.Compare(o.victims[first][0].rank, o.victims[m][0].rank)
	case first.queue:
		return 1
	default:
		return -1
	}
}

func (o *victimQueues) pop(m *member) *victim {
	v := o.victims[m][0]
	o.victims[m] = o.victims[m][1:]
	return v
}

// chooseFairly removes victims until enough says so. It returns them, and
// whether that came; enough is asked with the request not admitted.
func (p *Preemption) chooseFairly(enough func() bool) (chosen []*victim, done bool) {
	var later []*victim
	take := func(v *victim) bool {
		p.remove(v)
		chosen = append(chosen, v)
		p.use(amount.minus)
		done = enough()
		p.use(amount.plus)
		return done
	}
	p.admitted(func() {
		o := p.fair.queues(p.candidates)
		for m := o.next(); m != nil; m = o.next() {
			for len(o.victims[m]) > 0 {
				v := o.pop(m)
				if v.kind == own || (v.onLadder() && (p.fair.within || p.allows(p.fair.strategies[0], v))) {
					if take(v) {
						return
					}
					break
				}
				later = append(later, v)
			}
		}
		if len(p.fair.strategies) == 1 {
			return
		}
		o = p.fair.queues(later)
		for m := o.next(); m != nil; m = o.next() {
			v := o.pop(m)
			if v.onLadder() && p.allows(p.fair.strategies[1], v) && take(v) {
				return
			}
			o.done[m] = true
		}
	})
	return chosen, done
}

// ByShares says that the order of the Candidates follows the shares of
// ClusterQueues, as they change with each that goes: that is so with fair sharing,
// where some are of other ClusterQueues than the request.
func (p *Preemption) ByShares() bool {
	return p.fair != nil && slices.ContainsFunc(p.victims, func(v *victim) bool { return v.kind != own })
}

// fairOrder is the order in which Kueue would take the candidates if none were
// ever enough; those whom it would never take come last.
func (p *Preemption) fairOrder() []*victim {
	order, _ := p.chooseFairly(func() bool { return false })
	taken := len(order)
	for _, v := range p.candidates {
		if !v.removed {
			order = append(order, v)
		}
	}
	for _, v := range order[:taken] {
		p.restore(v)
	}
	return order
}

// reason is Kueue's reason for a victim of another ClusterQueue.
func (f *fairness) reason() string {
	if f.within {
		return kueue.InCohortReclamationReason
	}
	return kueue.InCohortFairSharingReason
}
