package invariants

import (
	"maps"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
)

// unlimited is what may be used where nothing says how much.
const unlimited = math.MaxInt64 / 2

// allQueues are the ClusterQueues and Cohorts that were ever seen or named.
func (c *Checker) allQueues() []*queue {
	var out []*queue
	for _, all := range []map[string]*queue{c.queues, c.cohorts} {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			out = append(out, all[name])
		}
	}
	return out
}

// above is the Cohort that a ClusterQueue or Cohort is in, nil if it is in none.
// Cohorts in a circle admit nothing that is new, and are each taken as a root.
func (c *Checker) above(q *queue) *queue {
	if q.parent == "" {
		return nil
	}
	seen := map[string]bool{}
	for name := q.parent; name != ""; name = named(c.cohorts, "Cohort", name).parent {
		if seen[name] {
			return nil
		}
		seen[name] = true
	}
	return named(c.cohorts, "Cohort", q.parent)
}

// below are the members of a Cohort.
func (c *Checker) below(q *queue) []*queue {
	var out []*queue
	for _, member := range c.allQueues() {
		if c.above(member) == q {
			out = append(out, member)
		}
	}
	return out
}

// subtree is the quota of a ClusterQueue or Cohort with what its members lend.
func (c *Checker) subtree(q *queue) amounts[cell] {
	sum := amounts[cell]{}
	for u, n := range q.nominal {
		sum.add(u, n)
	}
	for _, member := range c.below(q) {
		has, keeps := c.subtree(member), c.keeps(member)
		for u, n := range has {
			n.Sub(keeps[u])
			sum.add(u, n)
		}
	}
	return sum
}

// keeps is the part of its quota that a member of a Cohort never lends.
func (c *Checker) keeps(q *queue) amounts[cell] {
	out := amounts[cell]{}
	has := c.subtree(q)
	for u, most := range q.lending {
		if n := has[u]; n.Cmp(most) > 0 {
			n.Sub(most)
			out[u] = n
		}
	}
	return out
}

// used is what a ClusterQueue uses, or what the members of a Cohort use of what
// they do not keep to themselves.
func (c *Checker) used(q *queue) amounts[cell] {
	for name, is := range c.queues {
		if is == q {
			used, _ := c.charged(name)
			return used
		}
	}
	sum := amounts[cell]{}
	for _, member := range c.below(q) {
		keeps := c.keeps(member)
		for u, n := range c.used(member) {
			if k := keeps[u]; n.Cmp(k) > 0 {
				n.Sub(k)
				sum.add(u, n)
			}
		}
	}
	return sum
}

// limit is what may be used of a ClusterQueue or Cohort: its quota, and in a
// Cohort what it may borrow beyond. What the Cohort has is for the Cohort to say.
func (c *Checker) limit(q *queue) amounts[cell] {
	has := c.subtree(q)
	if c.above(q) == nil {
		return has
	}
	for u, n := range has {
		if most, limited := q.borrowing[u]; limited {
			n.Add(most)
		} else {
			n = *resource.NewQuantity(unlimited, resource.DecimalSI)
		}
		has[u] = n
	}
	return has
}
