package quota

import (
	"slices"

	"github.com/muster-gpu/muster/api/reason"
)

// Bar is what keeps a request from being more than refused: as long as it
// holds, Look gives the same class of Reason and nothing to charge, whoever else
// has come or gone. The zero one says nothing. It is true until the specification
// of a queue, a Cohort, a flavor or a Topology changes.
type Bar struct {
	// known is false in the zero one.
	known bool
	// whole: the barriers are all that the request asks for, and any of them keeps
	// it out; it would be within the rights of its ClusterQueue. Else there is one
	// for each flavor, and it gets nothing as long as all of them hold: for good
	// where there is none.
	whole    bool
	barriers []barrier
}

// barrier is a cell that has not what is needed of it; others would have to
// leave by themselves.
type barrier struct {
	cell *cell
	need int64
}

// Look is Assign for those who have many requests to look at: it leaves out the
// words, so that no is the class of the Reason, empty for a request that fits; and
// where others would have to leave, in a ClusterQueue that may ask nobody to, and
// is not StrictFIFO, the flavors and the usage. A request that does not fit may
// have a Bar, which tells with less work that it would be refused in the same way
// again.
func (t *Tree) Look(r Request) (a *Assignment, no reason.Class, bar Bar) {
	s := &search{tree: t, request: &r, wordless: true}
	a, no, _, why := s.ask()
	if no != "" && why == nil {
		bar = s.bar
	}
	return a, no, bar
}

// barWhole is the Bar of a request that is within the rights of a ClusterQueue which
// asks nobody to leave. It has none where there are flavors to choose from, or
// where its share decides when it is looked at.
func (s *search) barWhole(sets []demand) Bar {
	if s.tree.SharesFairly() {
		return Bar{}
	}
	bar := Bar{known: true, whole: true}
	for g, group := range s.queue.spec.groups {
		if len(group.flavors) > 1 {
			return Bar{}
		}
		for i := range sets {
			for _, asked := range sets[i].groups[g] {
				if c := s.queue.cells[FlavorResource{group.flavors[0], asked.resource}]; c != nil && c.listed {
					bar.ask(c, asked.value)
				}
			}
		}
	}
	return bar
}

// ask adds to what is needed of a cell.
func (b *Bar) ask(c *cell, need int64) {
	for i := range b.barriers {
		if at := &b.barriers[i]; at.cell == c {
			at.need = saturatingAdd(at.need, need)
			return
		}
	}
	b.barriers = append(b.barriers, barrier{c, need})
}

// asksNobody says that nobody has a use for what a job of the ClusterQueue would
// get if others left: it may preempt nobody, and keeps nothing from others.
func (q *clusterQueue) asksNobody() bool {
	return !q.spec.strict && off(q.spec.preemption.within) && off(q.spec.preemption.reclaim)
}

// Holds says whether there is still too little of something, in each of the
// flavors. What the request itself withholds counts as in use.
func (b Bar) Holds() bool {
	if !b.whole {
		return b.known && !slices.ContainsFunc(b.barriers, func(at barrier) bool { return !at.bars() })
	}
	return slices.ContainsFunc(b.barriers, func(at barrier) bool {
		sees := at.cell.sight(amountOf(at.need))
		return at.lacks(sees.afterwards) || at.lacks(sees.now)
	})
}

// MayBorrow says that Levels may be more than none.
func (b Bar) MayBorrow() bool { return b.whole }

// Levels is Assignment.Borrows of what Look would give as long as the Bar holds, 0
// where that would be no Assignment.
func (b Bar) Levels() int {
	most := 0
	for _, at := range b.barriers {
		if !b.whole || at.bars() {
			return 0
		}
		level, _ := at.cell.node.queue.borrowLevel(at.cell, amountOf(at.need))
		most = max(most, level)
	}
	return most
}

// bars says that a request that would borrow has to wait for the cell.
func (at barrier) bars() bool { return at.lacks(afterwardsToBorrow) && at.waits() }

// lacks says that the cell has too little in a view.
func (at barrier) lacks(v view) bool {
	return at.cell.available(v).atLeastZero().less(amountOf(at.need))
}

// waits is when lookAt says that the cell has to be waited for, if there is too
// little of it.
func (at barrier) waits() bool {
	q := at.cell.node.queue
	_, inside := q.borrowLevel(at.cell, amountOf(at.need))
	return q.mustWait(at.cell, at.need, inside)
}

// mustWait says that the ClusterQueue may not have others leave for a need of a
// cell, because it would borrow by that.
func (q *clusterQueue) mustWait(c *cell, need int64, inside bool) bool {
	return need > c.limits.nominal && !inside && !q.spec.preemption.borrowing
}
