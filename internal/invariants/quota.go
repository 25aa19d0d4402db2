package invariants

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// queue is a ClusterQueue, or a Cohort. One that does not exist has no quota.
type queue struct {
	ref    string
	exists bool
	// parent is the Cohort that it names.
	parent string
	// nominal is its own quota, borrowing and lending its limits, as far as it
	// has any.
	nominal, borrowing, lending amounts[cell]
	// quota is what it may use, with all that is below it.
	quota allowance[cell]
}

func (c *Checker) queueNamed(name string) *queue {
	return named(c.queues, "ClusterQueue", name)
}

func named(all map[string]*queue, kind, name string) *queue {
	if all[name] == nil {
		all[name] = &queue{ref: kind + " " + name}
	}
	return all[name]
}

func (c *Checker) seeQueue(o *kueue.ClusterQueue, gone bool) {
	c.seeQuota(c.queueNamed(o.Name), string(o.Spec.CohortName), o.Spec.ResourceGroups, gone)
}

func (c *Checker) seeCohort(o *kueue.Cohort, gone bool) {
	c.seeQuota(named(c.cohorts, "Cohort", o.Name), string(o.Spec.ParentName), o.Spec.ResourceGroups, gone)
}

// seeQuota takes in what a queue has now. It changes what all may use that are
// in a tree with it.
func (c *Checker) seeQuota(q *queue, parent string, groups []kueue.ResourceGroup, gone bool) {
	now := queue{ref: q.ref, exists: !gone, nominal: amounts[cell]{}, borrowing: amounts[cell]{}, lending: amounts[cell]{}, quota: q.quota}
	if !gone {
		now.parent = parent
		for _, group := range groups {
			for _, flavor := range group.Flavors {
				for _, r := range flavor.Resources {
					u := cell{string(flavor.Name), r.Name}
					now.nominal.add(u, r.NominalQuota)
					if r.BorrowingLimit != nil {
						now.borrowing[u] = *r.BorrowingLimit
					}
					if r.LendingLimit != nil {
						now.lending[u] = *r.LendingLimit
					}
				}
			}
		}
	}
	if q.exists == now.exists && q.parent == now.parent && same(q.nominal, now.nominal) && same(q.borrowing, now.borrowing) && same(q.lending, now.lending) {
		return
	}
	*q = now
	c.forgive()
	if q.parent != "" {
		named(c.cohorts, "Cohort", q.parent)
	}
	for _, n := range c.allQueues() {
		limit, used := c.limit(n), c.used(n)
		if n == q || !same(n.quota.limit, limit) || !same(n.quota.seen, used) {
			n.quota.set(limit, used, c.now, c.options.InFlight)
		}
	}
	if gone {
		c.note(q.ref+" is gone", q.ref)
		return
	}
	var cells []string
	for u, amount := range q.nominal {
		cells = append(cells, fmt.Sprintf("%s %s of %s", amount.String(), u.resource, u.flavor))
	}
	slices.Sort(cells)
	c.note(fmt.Sprintf("%s has quota for %s", q.ref, strings.Join(cells, ", ")), q.ref)
}

// charged is what the admitted Workloads of a ClusterQueue use, and who they
// are.
func (c *Checker) charged(queue string) (amounts[cell], []*claim) {
	used := amounts[cell]{}
	var by []*claim
	for _, cl := range c.workloads {
		if cl.queue != queue || !c.charges(cl) {
			continue
		}
		by = append(by, cl)
		for u, q := range cl.usage {
			used.add(u, q)
		}
	}
	slices.SortFunc(by, func(a, b *claim) int { return strings.Compare(a.ref, b.ref) })
	return used, by
}

// judgeCharges asserts that the quota of a Workload's ClusterQueue is kept
// after the Workload has changed.
func (c *Checker) judgeCharges(was, now *claim) {
	names := map[string]bool{}
	for _, cl := range []*claim{was, now} {
		if cl != nil && cl.queue != "" {
			names[cl.queue] = true
		}
	}
	judged := map[*queue]bool{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		_, by := c.charged(name)
		for q := c.queueNamed(name); q != nil && !judged[q]; q = c.above(q) {
			judged[q] = true
			c.judgeUse(q, c.used(q), by)
		}
	}
}

// judgeUse asserts that a ClusterQueue or a Cohort uses no more than it may; by
// are those of whom something has changed, with their neighbours.
func (c *Checker) judgeUse(q *queue, used amounts[cell], by []*claim) {
	for _, u := range q.quota.exceeded(used, c.now, c.options.InFlight) {
		objects, parts := []string{q.ref}, []string{}
		for _, cl := range by {
			if amount, ok := cl.usage[u]; ok {
				objects = append(objects, cl.ref)
				parts = append(parts, fmt.Sprintf("%s %s", cl.ref, amount.String()))
			}
		}
		c.violated(quotaKept, fmt.Sprintf("%s of %s %s of flavor %s are charged to %s: %s",
			text(used[u]), text(q.quota.limit[u]), u.resource, u.flavor, q.ref, strings.Join(parts, ", ")), objects...)
	}
	q.quota.settle(used)
}

// same says that two amounts are equal.
func same[K comparable](a, b amounts[K]) bool {
	if len(a) != len(b) {
		return false
	}
	for k, q := range a {
		other, ok := b[k]
		if !ok || q.Cmp(other) != 0 {
			return false
		}
	}
	return true
}

// list prints amounts of resources in the order of their names.
func list(a amounts[corev1.ResourceName]) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(a)) {
		out = append(out, fmt.Sprintf("%s %s", text(a[name]), name))
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, ", ")
}
