package quota

import "github.com/muster-gpu/muster/api/reason"

// Bar is what keeps a request from being more than refused: as long as it
// holds, Assign gives no Assignment, whoever else has come or gone. One that is
// nil says nothing, and one that is empty holds for good. It is true until the
// specification of a queue, a Cohort or a flavor changes.
type Bar []barrier

// barrier is a cell that has not what is needed of it; others would have to
// leave by themselves.
type barrier struct {
	cell *cell
	need int64
}

// Look is Assign for those who have many requests to look at: it leaves out the
// words, so that no is the class of the Reason, empty for a request that fits; and
// where others would have to leave, in a ClusterQueue that may ask nobody to, and
// is not StrictFIFO, the flavors and the usage. A request without an Assignment
// may have a Bar, which tells with less work that it would be refused in the same
// way again.
func (t *Tree) Look(r Request) (a *Assignment, no reason.Class, bar Bar) {
	s := &search{tree: t, request: &r, wordless: true}
	a, no, _, why := s.ask()
	if a == nil && why == nil {
		bar = s.bar
	}
	return a, no, bar
}

// asksNobody says that nobody has a use for what a job of the ClusterQueue would
// get if others left: it may preempt nobody, and keeps nothing from others.
func (q *clusterQueue) asksNobody() bool {
	return !q.spec.strict && off(q.spec.preemption.within) && off(q.spec.preemption.reclaim)
}

// Holds says whether each of the flavors still has too little of something.
// What the request itself withholds counts as in use.
func (b Bar) Holds() bool {
	if b == nil {
		return false
	}
	for _, at := range b {
		if !at.holds() {
			return false
		}
	}
	return true
}

// holds is when lookAt says that the cell has to be waited for.
func (at barrier) holds() bool {
	v := amountOf(at.need)
	if !at.cell.available(afterwards).atLeastZero().less(v) {
		return false
	}
	_, inside := at.cell.node.queue.borrowLevel(at.cell, v)
	return !inside
}
