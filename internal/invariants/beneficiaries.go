package invariants

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// debt is what Muster owes to a job for which it has stopped others: that it
// starts when they have left.
type debt struct {
	ref        string
	generation int64
	priority   int32
	created    time.Time
	// victims are the Workloads, by UID, that were stopped for it.
	victims map[types.UID]string
	// left is when the last of them had left; zero before.
	left time.Time
}

// owe notes that a Workload was stopped for another one.
func (c *Checker) owe(victim, to *claim) {
	if to.gone || to.finished || to.admitted || to.owner == "" {
		return
	}
	d := c.debts[to.owner]
	if d == nil {
		d = &debt{ref: to.ref, generation: to.generation, priority: to.priority, created: to.created, victims: map[types.UID]string{}}
		c.debts[to.owner] = d
	}
	d.victims[victim.uid], d.left = victim.ref, time.Time{}
}

// settleDebts sees what a change of a Workload means for what is owed: to it, if
// it starts, ends, or is another one now; to others, if it has left for them, or
// if it starts and goes before them, for it takes what was left for them.
func (c *Checker) settleDebts(now *claim, newly bool) {
	if d := c.debts[now.owner]; d != nil && (now.gone || now.finished || now.admitted || !now.active || now.generation != d.generation) {
		delete(c.debts, now.owner)
	}
	for owner, d := range c.debts {
		if newly && (now.priority > d.priority || (now.priority == d.priority && now.created.Before(d.created))) {
			delete(c.debts, owner)
			continue
		}
		if _, victim := d.victims[now.uid]; victim && d.left.IsZero() && !slices.ContainsFunc(slices.Collect(maps.Keys(d.victims)), c.isAdmitted) {
			d.left = c.now
		}
	}
}

func (c *Checker) isAdmitted(workload types.UID) bool {
	cl := c.workloads[workload]
	return cl != nil && cl.admitted
}

// forgive drops all debts: others have changed a node or a quota, and with that
// what was free for whom.
func (c *Checker) forgive() { clear(c.debts) }

// overdueDebts asserts that who others were stopped for has started in time.
func (c *Checker) overdueDebts() {
	for owner, d := range c.debts {
		if d.left.IsZero() || c.now.Sub(d.left) <= c.options.StartWithin {
			continue
		}
		refs := slices.Sorted(maps.Values(d.victims))
		c.violated(beneficiaryStarts, fmt.Sprintf("%s was stopped for %s, which is not admitted %s after all of them had left",
			strings.Join(refs, " and "), d.ref, c.now.Sub(d.left).Round(time.Second)), append(refs, d.ref)...)
		delete(c.debts, owner)
	}
}

// isAway says that a node does not take pods.
func isAway(o *corev1.Node) bool {
	if o.Spec.Unschedulable || len(o.Spec.Taints) > 0 {
		return true
	}
	return slices.ContainsFunc(o.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
}
