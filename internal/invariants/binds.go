package invariants

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// start is a start group of which a pod is on its node.
type start struct {
	began time.Time
	first string
	// settled: all were bound, or it was reported that they were not.
	settled bool
}

// judgeBind asserts that a pod which was just bound was admitted before.
func (c *Checker) judgeBind(p *pod, cl *claim) {
	_, queued := c.jobOf(p.jobSet)
	js := c.jobSets[p.jobSet]
	if !queued || js.namespace != p.namespace {
		return
	}
	if !p.ours {
		c.others("%s of queued %s was bound to node %s by someone else", p.ref, c.jobRef(p.jobSet), p.node)
		return
	}
	objects := []string{p.ref, js.ref, c.jobRef(p.jobSet)}
	if cl != nil {
		objects = append(objects, cl.ref)
	}
	if why := c.unadmitted(p, cl); why != "" {
		c.violated(admittedFirst, fmt.Sprintf("%s was bound to node %s, but %s", p.ref, p.node, why), objects...)
		return
	}
	if phase := js.phases[p.set]; cl.starts[phase] == nil && c.judging() {
		cl.starts[phase] = &start{began: c.now, first: p.ref}
	}
}

// unadmitted says why a pod should not have been bound; empty if it may.
func (c *Checker) unadmitted(p *pod, cl *claim) string {
	switch {
	case cl == nil:
		return "its job has no Workload"
	case cl.gone && !(cl.admitted && c.justNow(cl.goneAt)):
		return fmt.Sprintf("%s was deleted %s before", cl.ref, c.now.Sub(cl.goneAt))
	case !cl.admitted:
		return fmt.Sprintf("%s is %s", cl.ref, cl)
	}
	s := cl.sets[p.set]
	if s == nil {
		return fmt.Sprintf("%s is admitted for %s and not for its pod set %q", cl.ref, strings.Join(slices.Sorted(maps.Keys(cl.sets)), ", "), p.set)
	}
	// A pod that is being deleted has passed its slot on to its replacement.
	var all, here int64
	for _, o := range c.podsOf(cl.owner, p.set) {
		if o.onNode() && !o.leaving {
			all++
			if o.node == p.node {
				here++
			}
		}
	}
	if all > s.count {
		return fmt.Sprintf("it is number %d of pod set %s, of which %s has %d slots", all, p.set, cl.ref, s.count)
	}
	if slots := s.hosts[c.hostOf(p.node)]; s.hosts != nil && here > slots {
		return fmt.Sprintf("it is number %d of pod set %s there, and %s has %d slots on that node", here, p.set, cl.ref, slots)
	}
	return ""
}

// started settles the start groups of a Workload that are complete.
func (c *Checker) started(cl *claim, jobSet types.UID) {
	js := c.jobSets[jobSet]
	for phase, st := range cl.starts {
		if !st.settled && js != nil && len(c.absent(cl, js, phase)) == 0 {
			st.settled = true
		}
	}
}

// absent says, by pod set, how many pods of a start group were not bound.
func (c *Checker) absent(cl *claim, js *jobSet, phase int) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(cl.sets)) {
		if js.phases[name] != phase {
			continue
		}
		var n int64
		for place, done := range cl.done {
			if place.set == name {
				n += done
			}
		}
		for _, p := range c.podsOf(cl.owner, name) {
			if p.node != "" && !p.succeeded {
				n++
			}
		}
		if n < cl.sets[name].count {
			out = append(out, fmt.Sprintf("%d of %d %s", n, cl.sets[name].count, name))
		}
	}
	return out
}

// overdue reports the start groups that have been incomplete for too long. A
// Workload that is being evicted is being released.
func (c *Checker) overdue() {
	for _, cl := range c.workloads {
		if !cl.admitted || cl.evicted != "" || c.ended[cl.owner] {
			continue
		}
		for phase, st := range cl.starts {
			if st.settled || c.now.Sub(st.began) <= c.options.StartWithin {
				continue
			}
			st.settled = true
			objects, have := []string{cl.ref}, []string{"none"}
			for uid, js := range c.jobSets {
				if job, _ := c.jobOf(uid); job == cl.owner {
					objects, have = append(objects, js.ref, c.jobRef(uid)), c.absent(cl, js, phase)
				}
			}
			c.violated(startsTogether, fmt.Sprintf("%s was bound %s ago, and of its start group only %s are on nodes; %s is still admitted",
				st.first, c.now.Sub(st.began).Round(time.Second), strings.Join(have, ", "), cl.ref), objects...)
		}
	}
}

// judgeLeaving asserts that a Workload which is admitted no more has no pod on
// a node.
func (c *Checker) judgeLeaving(cl *claim) {
	var left []string
	objects := []string{cl.ref}
	for _, p := range c.podsOf(cl.owner, "") {
		// Someone else may have bound it while the Workload was being written.
		if p.onNode() && (p.ours || !c.justNow(p.boundAt)) {
			left = append(left, fmt.Sprintf("%s on %s", p.ref, p.node))
			objects = append(objects, p.ref, "Node "+p.node)
		}
	}
	if len(left) > 0 {
		slices.Sort(left)
		c.violated(leavesWhole, fmt.Sprintf("%s is %s, and still has %s", cl.ref, cl, strings.Join(left, ", ")), objects...)
	}
}
