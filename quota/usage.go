package quota

import (
	"maps"

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

// charge is what one admitted job takes.
type charge struct {
	clusterQueue string
	usage        Usage
}

// Charge makes u the charge of job id in ClusterQueue cq, in place of any
// charge that the id had, so that repeating it changes nothing. It asks for no
// room: after a restart an admitted job is charged even above what an admin has
// meanwhile lowered the quota to. The ClusterQueue need not exist; charges wait
// for it. Amounts below one are ignored.
func (t *Tree) Charge(id types.UID, cq string, u Usage) {
	t.Release(id)
	c := charge{clusterQueue: cq, usage: make(Usage, len(u))}
	used := t.used[cq]
	if used == nil {
		used = make(Usage, len(u))
		t.used[cq] = used
	}
	for cell, v := range u {
		// What would not fit an int64 is charged as far as it goes, and that
		// is remembered, so that a release gives back what was taken.
		v = saturatingAdd(used[cell], v) - used[cell]
		if v > 0 {
			c.usage[cell] = v
			used[cell] += v
		}
	}
	t.charges[id] = c
}

// Release takes the charge of job id back; an id without a charge is ignored.
func (t *Tree) Release(id types.UID) {
	c, ok := t.charges[id]
	if !ok {
		return
	}
	delete(t.charges, id)
	used := t.used[c.clusterQueue]
	for cell, v := range c.usage {
		if used[cell] -= v; used[cell] == 0 {
			delete(used, cell)
		}
	}
	if len(used) == 0 {
		delete(t.used, c.clusterQueue)
	}
}

// Used returns a copy of the sum of the charges of a ClusterQueue; cells
// without a charge are absent.
func (t *Tree) Used(cq string) Usage {
	u := make(Usage, len(t.used[cq]))
	maps.Copy(u, t.used[cq])
	return u
}

// Nominal returns a copy of the nominal quota of a ClusterQueue, with every
// cell that it lists; it is empty for a ClusterQueue that does not exist.
func (t *Tree) Nominal(cq string) Usage {
	u := Usage{}
	if c := t.clusterQueues[cq]; c != nil {
		for _, g := range c.groups {
			for _, f := range g.flavors {
				for name, q := range f.quotas {
					u[FlavorResource{f.name, name}] = q.nominal
				}
			}
		}
	}
	return u
}
