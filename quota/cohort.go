package quota

import (
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// SetCohort adds a Cohort or replaces its specification; its members stay. A
// parent that closes a cycle is not entered: all members of the cycle, and
// whatever is below them, are inactive until it is broken.
func (t *Tree) SetCohort(obj *kueue.Cohort) {
	defer t.forgetKeepers()
	t.changes++
	n := t.cohort(obj.Name)
	n.explicit = true
	n.weight = weightOf(obj.Spec.FairSharing)
	n.findings = cohortFindings(&obj.Spec)
	t.setParent(n, string(obj.Spec.ParentName))
	n.setLimits(limitsOf(obj.Spec.ResourceGroups))
}

// DeleteCohort forgets a Cohort with its quota, its limits and its parent. The
// ClusterQueues and Cohorts that name it stay together, as in one that never
// had an object.
func (t *Tree) DeleteCohort(name string) {
	defer t.forgetKeepers()
	n := t.cohorts[name]
	if n == nil {
		return
	}
	t.changes++
	n.explicit, n.weight, n.findings = false, 1, findings{}
	n.setLimits(nil)
	t.setParent(n, "")
	t.tidyCohort(n)
}

// cohort returns the node of a Cohort; one that is only named is made.
func (t *Tree) cohort(name string) *node {
	n := t.cohorts[name]
	if n == nil {
		n = newNode(name)
		t.cohorts[name] = n
	}
	return n
}

// tidyCohort forgets a Cohort that has no object and that nobody names.
func (t *Tree) tidyCohort(n *node) {
	if n != nil && !n.explicit && len(n.children) == 0 {
		delete(t.cohorts, n.name)
	}
}

// setParent makes a Cohort name this parent.
func (t *Tree) setParent(n *node, parent string) {
	if n.parentName == parent {
		return
	}
	// Every Cohort names one parent, so only the cycle that n was part of can
	// end, and only one with n in it can begin.
	broken := t.cycle(n)
	old := n.parent
	n.part()
	n.parentName, n.looped = parent, false
	for _, m := range broken {
		if m != n {
			m.looped = false
			m.join(t.cohort(m.parentName))
		}
	}
	if closed := t.cycle(n); closed != nil {
		for _, m := range closed {
			m.part()
			m.looped = true
		}
	} else if parent != "" {
		n.join(t.cohort(parent))
	}
	t.tidyCohort(old)
}

// cycle lists the Cohorts from n along the named parents back to n; it is nil
// where they do not lead back.
func (t *Tree) cycle(n *node) []*node {
	members := []*node{n}
	for m := t.cohorts[n.parentName]; m != nil; m = t.cohorts[m.parentName] {
		if m == n {
			return members
		}
		if m.looped && !n.looped {
			return nil
		}
		members = append(members, m)
	}
	return nil
}

// Cycles describes, for each Cohort whose named parents lead back to it, the way,
// which begins with it: no ClusterQueue below one admits anything.
func (t *Tree) Cycles() map[string]string {
	out := map[string]string{}
	for name, n := range t.cohorts {
		if n.looped {
			out[name] = t.looped(n)
		}
	}
	return out
}

// looped describes the cycle that the way up from a node ends in, "" where it
// ends in none.
func (t *Tree) looped(n *node) string {
	r := n.root()
	if !r.looped {
		return ""
	}
	var b strings.Builder
	for _, m := range t.cycle(r) {
		b.WriteString(m.name + " -> ")
	}
	return b.String() + r.name
}

// Root names the tree of Cohorts that a ClusterQueue is in: "cohort/<name>", or
// "cq/<name>" for one without a cohort. Quota that is released anywhere in it
// may help any job in it, and none outside.
func (t *Tree) Root(cq string) string {
	q := t.clusterQueues[cq]
	if q == nil || q.parent == nil {
		return "cq/" + cq
	}
	return "cohort/" + q.root().name
}
