package quota

import "math"

// Cell is what is to be told of one flavor and resource of a ClusterQueue, in the units
// of Requests.
type Cell struct {
	FlavorResource
	Nominal int64
	// Borrowing and Lending are the limits; nil where the object sets none.
	Borrowing, Lending *int64
	// Overuse is what of the charges the tree does not allow: there is none unless a
	// quota or a limit was lowered under jobs that run. Where the cohort lacks it, each
	// ClusterQueue that borrows has all of it, up to what it borrows. One that stays
	// within its nominal quota has none.
	Overuse int64
}

// Cells are those of a ClusterQueue which it lists, or in which it has charges, in no
// order; none of one that does not exist.
func (t *Tree) Cells(cq string) []Cell {
	q := t.existing(cq)
	if q == nil {
		return nil
	}
	out := make([]Cell, 0, len(q.cells))
	for fr, c := range q.cells {
		if !c.listed && c.used[charged].zero() {
			continue
		}
		out = append(out, Cell{
			FlavorResource: fr, Nominal: c.limits.nominal,
			Borrowing: limit(c.limits.borrowing), Lending: limit(c.limits.lending), Overuse: c.overuse(),
		})
	}
	return out
}

// Cohort is the one that a ClusterQueue names, "" where it names none or does not exist.
func (t *Tree) Cohort(cq string) string {
	if q := t.existing(cq); q != nil {
		return q.parentName
	}
	return ""
}

func limit(v int64) *int64 {
	if v == noLimit {
		return nil
	}
	return &v
}

// overuse is what a ClusterQueue uses beyond its nominal quota and the tree does not
// have for it.
func (c *cell) overuse() int64 {
	lacking := amount{}.minus(c.available(charged)).atLeastZero()
	borrowed := c.used[charged].minus(c.quota).atLeastZero()
	return smaller(lacking, borrowed).value()
}

// Float is an amount in the resource's unit: CPUs, bytes, pieces.
func (fr FlavorResource) Float(v int64) float64 {
	if v == math.MaxInt64 {
		return math.Inf(1)
	}
	q := Quantity(fr.Resource, v)
	return q.AsApproximateFloat64()
}
