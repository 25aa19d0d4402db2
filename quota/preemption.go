package quota

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Candidate is a job that Kueue's policies allow to preempt.
type Candidate struct {
	ID           types.UID
	ClusterQueue string
	// Reason is Kueue's reason of the Preempted condition: InClusterQueue,
	// InCohortReclamation, InCohortReclaimWhileBorrowing or InCohortFairSharing.
	Reason string
	Holder
}

// Preemption is the search for the jobs that have to leave for a request. It
// has a copy of what it needs of the Tree: neither changes the other. Jobs that
// are leaving already are none of its business; their quota counts as free.
type Preemption struct {
	// void says that the ClusterQueue has gone.
	void   bool
	wanted []wanted
	// victims are in the order in which Kueue would take them; with fair sharing
	// that changes with every one that goes, and candidates are the same by rank.
	victims, candidates []*victim
	byID                map[types.UID]*victim
	// attempts are the ways in which Kueue looks for a set: whether the request
	// may borrow after it, and jobs that may leave only if it does not are left out.
	attempts []bool
	// fair is nil without fair sharing.
	fair *fairness
	// homebound counts the removed jobs that may leave only for a request which
	// stays within its ClusterQueue's nominal quota.
	homebound int
}

// wanted is what the request takes of one cell.
type wanted struct {
	cell  *cell
	value amount
}

// victim is a candidate, and what its leaving changes.
type victim struct {
	Candidate
	job  *taking
	kind kind
	// rank is its place among candidates.
	rank int
	// home is its ClusterQueue, with fair sharing.
	home *member
	// usage is that of the cells that the request uses, with fair sharing of all.
	usage []wanted
	// ladders are, for each cell that is short and that the job uses, the cells from its
	// ClusterQueue's up to below the Cohort that it has in common with the
	// request: it is legal while one ladder is above its quota on every rung. It
	// is nil for a job of the request's own ClusterQueue.
	ladders   []ladder
	homebound bool
	removed   bool
}

type ladder struct{ from, to *cell }

// copied is the copy of the cells that a Preemption needs.
type copied map[*cell]*cell

func (m copied) of(c *cell) *cell {
	if c == nil {
		return nil
	}
	if have := m[c]; have != nil {
		return have
	}
	own := *c
	own.parent = m.of(c.parent)
	m[c] = &own
	return &own
}

// Preemption begins the search for victims of a request that Assign gave a. For
// an Assignment that waits they are the jobs that hold the cells which are
// short; for one that fits, those that hold any cell of it, because nodes may be
// short where quota is not.
func (t *Tree) Preemption(r Request, a *Assignment) *Preemption {
	q := t.existing(a.ClusterQueue)
	if q == nil {
		return &Preemption{void: true}
	}
	defer t.without(r.ID)()
	return t.preemption(&r, q, a.Usage, a.Mode == Fit)
}

// preemption looks for those who hold the cells of a usage that are short, or
// any cell of it.
func (t *Tree) preemption(r *Request, q *clusterQueue, u Usage, any bool) *Preemption {
	p := &Preemption{byID: map[types.UID]*victim{}}
	cells := copied{}
	short := map[FlavorResource]bool{}
	for fr, v := range u {
		c := q.cells[fr]
		if c == nil || !c.listed {
			// Its quota has gone meanwhile; nothing fits it.
			c = &cell{limits: limits{borrowing: noLimit, lending: noLimit}}
		}
		p.wanted = append(p.wanted, wanted{cells.of(c), amountOf(v)})
		if any || c.lacks(amountOf(v)) {
			short[fr] = true
		}
	}
	f := finder{request: r, queue: q, usage: u, short: short, cells: cells}
	if t.SharesFairly() && q.parent != nil {
		f.fair, f.members = fairnessOf(q, t.fair, cells)
		f.fair.within = f.staysWithin()
		p.fair = f.fair
	}
	p.candidates = f.find()
	for i, v := range p.candidates {
		v.rank = i
	}
	p.victims = p.candidates
	if p.fair != nil {
		p.victims = p.fairOrder()
	}
	p.attempts = f.attempts(p.victims)
	for _, v := range p.victims {
		p.byID[v.ID] = v
	}
	return p
}

// Candidates are all jobs that the policies allow for the request, in Kueue's
// order: those of other ClusterQueues before the request's own, lower priority,
// newer charge, UID. Not all of them may go together.
func (p *Preemption) Candidates() []Candidate {
	out := make([]Candidate, len(p.victims))
	for i, v := range p.victims {
		out[i] = v.Candidate
	}
	return out
}

// Remove takes a candidate away. It is false where that is not legal together
// with those removed before, in whatever order they go: its ClusterQueue, or a
// Cohort between, would have come down to its nominal quota. An id that is no
// candidate is not legal either; one that is removed already stays so.
func (p *Preemption) Remove(id types.UID) bool {
	v := p.byID[id]
	if v == nil {
		return false
	}
	if v.removed {
		return true
	}
	last := p.legal(v)
	p.remove(v)
	if last || p.orderly() {
		return true
	}
	p.restore(v)
	return false
}

// RemoveAll takes several candidates away, or none of them: it is false where
// that is not legal in any order. Nobody else may be removed.
func (p *Preemption) RemoveAll(ids []types.UID) bool {
	for _, id := range ids {
		if v := p.byID[id]; v == nil {
			return false
		}
	}
	for _, id := range ids {
		if v := p.byID[id]; !v.removed {
			p.remove(v)
		}
	}
	if p.orderly() {
		return true
	}
	for _, id := range ids {
		p.Restore(id)
	}
	return false
}

// Legal says whether those that are removed may leave together. It is so after
// Remove, but with fair sharing somebody may have been restored who had to go
// before others: the share of the request's side is smaller without its own.
func (p *Preemption) Legal() bool { return p.fair == nil || p.orderly() }

// orderly says whether the removed ones can go one after the other so that each
// is legal when it goes. Whoever is legal with all the others gone may go last,
// and the fewer of its own side have gone, the more are legal: so the order is
// found from its end, beginning with Kueue's. With fair sharing the nearer ones
// in the tree go before the farther ones, which only helps those.
func (p *Preemption) orderly() bool {
	rest := p.removed()
	slices.Reverse(rest)
	if p.fair != nil {
		slices.SortStableFunc(rest, func(a, b *victim) int { return cmp.Compare(p.fair.distance(b.home), p.fair.distance(a.home)) })
	}
	for _, v := range rest {
		defer p.remove(v)
	}
	for len(rest) > 0 {
		last := slices.IndexFunc(rest, func(v *victim) bool {
			p.restore(v)
			if p.legal(v) {
				return true
			}
			p.remove(v)
			return false
		})
		if last < 0 {
			break
		}
		rest = slices.Delete(rest, last, last+1)
	}
	for _, v := range rest {
		p.restore(v)
	}
	return len(rest) == 0
}

// Restore undoes Remove.
func (p *Preemption) Restore(id types.UID) {
	if v := p.byID[id]; v != nil && v.removed {
		p.restore(v)
	}
}

// Fits says whether the request has its quota without the removed jobs, when
// they and those that are leaving have left, and in a way that allows to remove
// them.
func (p *Preemption) Fits() bool {
	return !p.void && p.fits(p.homebound == 0)
}

func (p *Preemption) fits(borrowing bool) bool {
	for _, w := range p.wanted {
		if w.cell.lacks(w.value) {
			return false
		}
		if !borrowing && w.cell.exceeds(afterwards, w.value) {
			return false
		}
	}
	return true
}

func (p *Preemption) removed() []*victim {
	return slices.DeleteFunc(slices.Clone(p.victims), func(v *victim) bool { return !v.removed })
}

func (p *Preemption) remove(v *victim) {
	v.removed = true
	use(v.usage, amount.minus, rightsToBorrow...)
	if v.homebound {
		p.homebound++
	}
}

func (p *Preemption) restore(v *victim) {
	v.removed = false
	use(v.usage, amount.plus, rightsToBorrow...)
	if v.homebound {
		p.homebound--
	}
}

// legal says whether the victim may go, beside those that are removed.
func (p *Preemption) legal(v *victim) bool {
	return v.kind == own || (v.onLadder() && (p.fair == nil || p.fairlyLegal(v)))
}

func (v *victim) onLadder() bool { return slices.ContainsFunc(v.ladders, ladder.above) }

// use adds to the use of cells in some views, or takes away.
func use(all []wanted, do func(amount, amount) amount, in ...view) {
	for _, w := range all {
		w.cell.use(do(amount{}, w.value), in...)
	}
}

// above says whether every rung uses more than its quota.
func (l ladder) above() bool {
	for c := l.from; c != l.to; c = c.parent {
		if !c.exceeds(afterwards, amount{}) {
			return false
		}
	}
	return true
}
