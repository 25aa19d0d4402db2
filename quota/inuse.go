package quota

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Drained is a job that has to stop because its queue has been stopped.
type Drained struct {
	ID types.UID
	// Reason is Kueue's reason of the Evicted condition: ClusterQueueStopped or
	// LocalQueueStopped.
	Reason string
	// Message says which queue it is.
	Message string
}

// Drain lists, by UID, the jobs with a charge whose ClusterQueue or LocalQueue
// has the stopPolicy HoldAndDrain. Those that are leaving are not in it.
func (t *Tree) Drain() []Drained {
	found := map[types.UID]Drained{}
	for name, lq := range t.localQueues {
		if lq.stopPolicy != kueue.HoldAndDrain {
			continue
		}
		// A job stays in the ClusterQueue that it was admitted to.
		for id, k := range t.charges {
			if k.holder.Queue == name && !k.leaving {
				found[id] = Drained{id, kueue.WorkloadEvictedByLocalQueueStopped, fmt.Sprintf("LocalQueue %s is stopped", name)}
			}
		}
	}
	for _, q := range t.clusterQueues {
		if !q.exists || q.spec.stopPolicy != kueue.HoldAndDrain {
			continue
		}
		for id, k := range q.jobs {
			if !k.leaving {
				found[id] = Drained{id, kueue.WorkloadEvictedByClusterQueueStopped, fmt.Sprintf("ClusterQueue %s is stopped", q.name)}
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Drained) int { return cmp.Compare(a.ID, b.ID) })
}

// ClusterQueueInUse says whether any job has a charge in a ClusterQueue, known
// or not: one that is being deleted is kept until it is false.
func (t *Tree) ClusterQueueInUse(cq string) bool {
	q := t.clusterQueues[cq]
	return q != nil && len(q.jobs) > 0
}

// FlavorUsers names, sorted, the ClusterQueues that list a ResourceFlavor or
// have jobs in it: one that is being deleted is kept until there are none.
func (t *Tree) FlavorUsers(flavor string) []string {
	var names []string
	for name, q := range t.clusterQueues {
		for fr, c := range q.cells {
			if fr.Flavor == flavor && ((q.exists && c.listed) || !c.used[charged].zero()) {
				names = append(names, name)
				break
			}
		}
	}
	slices.Sort(names)
	return names
}

// Borrowed is, by cell, what the charges of a ClusterQueue in a cohort take
// beyond its nominal quota, as its status shows it; cells of which nothing is
// borrowed are absent.
func (t *Tree) Borrowed(cq string) Usage {
	u := Usage{}
	if q := t.existing(cq); q != nil && q.parent != nil {
		for fr, c := range q.cells {
			if v := c.used[charged].minus(amountOf(c.limits.nominal)).value(); v > 0 {
				u[fr] = v
			}
		}
	}
	return u
}

// Lent is, by cell, what a ClusterQueue cannot use of its nominal quota because others
// of its cohort use it: what it has left, less what is available to it. Cells of which
// nothing is lent are absent.
func (t *Tree) Lent(cq string) Usage {
	u := Usage{}
	if q := t.existing(cq); q != nil && q.parent != nil {
		for fr, c := range q.cells {
			own := amountOf(c.limits.nominal).minus(c.used[charged]).atLeastZero()
			if v := own.minus(c.available(charged).atLeastZero()).value(); v > 0 {
				u[fr] = v
			}
		}
	}
	return u
}

// CohortStatus is what is to be told of a Cohort.
type CohortStatus struct {
	// Quota is, by cell, what the Cohort has together with what its members lend
	// it, and Used what of it is charged.
	Quota, Used Usage
	// Share is CohortShare.
	Share int64
	// Cycle is the way from parent to parent back to a Cohort on it, "a -> b -> a",
	// where it stops everything below; "" where there is none.
	Cycle string
}

// CohortStatus returns the status of a Cohort, and whether it is known: by an
// object, or because others name it.
func (t *Tree) CohortStatus(cohort string) (CohortStatus, bool) {
	n := t.cohorts[cohort]
	if n == nil {
		return CohortStatus{}, false
	}
	s := CohortStatus{Quota: Usage{}, Used: Usage{}, Share: t.CohortShare(cohort), Cycle: t.looped(n)}
	for fr, c := range n.cells {
		s.Quota[fr] = c.quota.value()
		if v := c.used[charged].value(); v > 0 {
			s.Used[fr] = v
		}
	}
	return s, true
}

// Cohorts are the names of the Cohorts that have an object.
func (t *Tree) Cohorts() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(t.cohorts)), func(name string) bool {
		return !t.cohorts[name].explicit
	})
}
