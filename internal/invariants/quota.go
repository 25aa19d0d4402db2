package invariants

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// queue is a ClusterQueue. One that does not exist has no quota.
type queue struct {
	ref    string
	exists bool
	quota  allowance[cell]
}

func (c *Checker) queueNamed(name string) *queue {
	if c.queues[name] == nil {
		c.queues[name] = &queue{ref: "ClusterQueue " + name}
	}
	return c.queues[name]
}

func (c *Checker) seeQueue(o *kueue.ClusterQueue, gone bool) {
	limit := amounts[cell]{}
	for _, group := range o.Spec.ResourceGroups {
		for _, flavor := range group.Flavors {
			for _, r := range flavor.Resources {
				if !gone {
					limit.add(cell{string(flavor.Name), r.Name}, r.NominalQuota)
				}
			}
		}
	}
	q := c.queueNamed(o.Name)
	if q.exists == !gone && same(q.quota.limit, limit) {
		return
	}
	q.exists = !gone
	c.forgive()
	used, _ := c.charged(o.Name)
	q.quota.set(limit, used, c.now, c.options.InFlight)
	if gone {
		c.note(q.ref+" is gone", q.ref)
		return
	}
	var cells []string
	for u, amount := range limit {
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
	for _, name := range slices.Sorted(maps.Keys(names)) {
		q := c.queueNamed(name)
		used, by := c.charged(name)
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
