package quota

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// FlavorResource is one cell of a ClusterQueue's quota.
type FlavorResource struct {
	Flavor   string
	Resource corev1.ResourceName
}

// Usage is an amount per cell, in the units of Requests. A cell that is not
// listed is zero.
type Usage map[FlavorResource]int64

// Holder is what is known of a job that has a charge: it decides whether it is
// preempted or drained, and who is first.
type Holder struct {
	Priority int32
	// Created is the job's place among those of its priority in the queue.
	Created time.Time
	// Reserved is when the charge was made.
	Reserved time.Time
	// Queue is the LocalQueue that the job came through.
	Queue types.NamespacedName
}

// taking is what one job takes: its charge, its claim, or what it withholds.
type taking struct {
	id      types.UID
	queue   *clusterQueue
	usage   Usage
	holder  Holder
	leaving bool
	// in are the views in which it counts; fromBorrowers says that it is withheld
	// from those alone who borrow.
	in            []view
	fromBorrowers bool
}

// count adds the taking to some views, or takes it out of them (sign -1).
func (k *taking) count(sign int64, in []view) {
	for fr, v := range k.usage {
		k.queue.cell(fr).use(amountOf(sign*v), in...)
	}
}

// take enters a taking; amounts below one are ignored.
func (t *Tree) take(all map[types.UID]*taking, id types.UID, cq string, u Usage, in []view) *taking {
	k := &taking{id: id, queue: t.clusterQueue(cq), usage: make(Usage, len(u)), in: in}
	for fr, v := range u {
		if v > 0 {
			k.usage[fr] = v
		}
	}
	all[id] = k
	k.queue.takings++
	t.changes++
	k.count(1, in)
	return k
}

// giveBack ends a taking.
func (t *Tree) giveBack(all map[types.UID]*taking, k *taking) {
	delete(all, k.id)
	t.changes++
	k.count(-1, k.in)
	for fr := range k.usage {
		k.queue.tidy(fr)
	}
	k.queue.takings--
	t.tidyQueue(k.queue)
}

// Charge makes u the charge of job id in ClusterQueue cq, in place of any
// charge, claim or withheld quota that the id had, so that repeating it changes
// nothing. It asks for no room: after a restart an admitted job is charged even
// above what an admin has meanwhile lowered the quota to. The ClusterQueue need
// not exist; charges wait for it. Amounts below one are ignored.
func (t *Tree) Charge(id types.UID, cq string, u Usage, h Holder) {
	// The new charge first, so that a ClusterQueue without an object is not
	// forgotten in between.
	old := t.charges[id]
	k := t.take(t.charges, id, cq, u, ofCharge)
	k.holder = h
	if old != nil {
		t.uncharge(old)
		t.charges[id] = k
	}
	k.queue.jobs[id] = k
	k.queue.disorder(k.usage)
	t.Unclaim(id)
	t.Unwithhold(id)
}

// Release takes the charge of job id back; an id without a charge is ignored.
func (t *Tree) Release(id types.UID) {
	if k := t.charges[id]; k != nil {
		t.uncharge(k)
	}
}

func (t *Tree) uncharge(k *taking) {
	delete(k.queue.jobs, k.id)
	k.queue.disorder(k.usage)
	t.giveBack(t.charges, k)
}

// Leave marks the charge of a job that is being stopped: it counts until it is
// released, but nobody has to be preempted for it any more. An id without a
// charge is ignored.
func (t *Tree) Leave(id types.UID) {
	if k := t.charges[id]; k != nil && !k.leaving {
		k.leaving, k.in = true, ofLeaving
		t.changes++
		k.count(-1, ofClaim)
	}
}

// Stay takes Leave back: it is not to be expected that the job's quota is free
// soon. An id without a charge, or that is not leaving, is ignored.
func (t *Tree) Stay(id types.UID) {
	if k := t.charges[id]; k != nil && k.leaving {
		k.leaving, k.in = false, ofCharge
		t.changes++
		k.count(1, ofClaim)
	}
}

// Leaves says that the charge of a job is marked by Leave.
func (t *Tree) Leaves(id types.UID) bool {
	k := t.charges[id]
	return k != nil && k.leaving
}

// Claim promises quota to job id, for which others leave: from everybody else's
// view it is in use once they have left. It replaces an earlier claim of the id,
// and ends with the id's charge.
func (t *Tree) Claim(id types.UID, cq string, u Usage) {
	t.Unclaim(id)
	t.take(t.claims, id, cq, u, ofClaim)
}

// Unclaim ends the claim of job id; an id without one is ignored.
func (t *Tree) Unclaim(id types.UID) {
	if k := t.claims[id]; k != nil {
		t.giveBack(t.claims, k)
	}
}

// Withhold keeps quota from everybody but job id, a head that waits for it, and
// those for whom others have left. It replaces what the id withheld before, and
// ends with the id's charge.
func (t *Tree) Withhold(id types.UID, cq string, u Usage) { t.withhold(id, cq, u, fromAll) }

// WithholdFromBorrowers is Withhold for a head that borrows: as in Kueue, which
// looks at them before it, it keeps nothing from jobs that stay within the nominal
// quota of their ClusterQueue.
func (t *Tree) WithholdFromBorrowers(id types.UID, cq string, u Usage) {
	t.withhold(id, cq, u, fromBorrowers).fromBorrowers = true
}

func (t *Tree) withhold(id types.UID, cq string, u Usage, from []view) *taking {
	t.Unwithhold(id)
	t.forgetKeepers()
	return t.take(t.withheld, id, cq, u, from)
}

// Unwithhold ends what job id withholds; an id that withholds nothing is ignored.
func (t *Tree) Unwithhold(id types.UID) {
	if k := t.withheld[id]; k != nil {
		t.giveBack(t.withheld, k)
		t.forgetKeepers()
	}
}

// without takes out of the use what job id itself has claimed and withholds;
// the function that it returns puts it back.
func (t *Tree) without(id types.UID) (back func()) {
	claim, withheld := t.claims[id], t.withheld[id]
	if claim == nil && withheld == nil {
		return func() {}
	}
	count := func(sign int64) {
		if claim != nil {
			claim.count(sign, claim.in)
		}
		if withheld != nil {
			withheld.count(sign, withheld.in)
		}
	}
	count(-1)
	return func() { count(1) }
}

// Used returns a copy of the sum of the charges of a ClusterQueue, those of
// leaving jobs included; cells without a charge are absent.
func (t *Tree) Used(cq string) Usage {
	u := Usage{}
	if q := t.clusterQueues[cq]; q != nil {
		for fr, c := range q.cells {
			if v := c.used[charged].value(); v > 0 {
				u[fr] = v
			}
		}
	}
	return u
}
