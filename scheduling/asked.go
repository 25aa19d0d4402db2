package scheduling

import (
	"maps"
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// levelsAsked are the levels that a pod set names.
func levelsAsked(r *kueue.PodSetTopologyRequest) []string {
	if r == nil {
		return nil
	}
	var out []string
	for _, level := range []*string{r.Required, r.Preferred} {
		if level != nil {
			out = append(out, *level)
		}
	}
	for _, s := range workload.SlicesOf(r) {
		out = append(out, s.Topology)
	}
	return out
}

// setCloseness puts into the classes of a job what their pods ask for of being
// close to each other. A pod set that asks for nothing prefers the level that is
// the default of its flavor, and is only judged where there is none; a single pod
// is put beside the first of the largest set of the job that asks for something.
func setCloseness(job *workload.Job, a *quota.Assignment, tree *quota.Tree, classes []class) {
	var asked []*placement.Topology
	leads := make([]bool, len(job.PodSets))
	groups := map[string]*placement.Topology{}
	largest := -1
	levels := make([][]string, len(job.PodSets))
	for i := range job.PodSets {
		ps := &job.PodSets[i]
		flavors := flavorsAround(job, i, a)
		_, levels[i] = levelsOf(flavors, tree)
		t := topologyOf(ps, flavors, tree)
		if name := groupName(ps); t != nil && name != "" {
			if groups[name] == nil {
				groups[name] = t
			}
			t = groups[name]
			leads[i] = isLeader(job, i, name)
		}
		asked = append(asked, t)
		if t != nil && !t.Unasked && !leads[i] && (largest < 0 || ps.Count > job.PodSets[largest].Count) {
			largest = i
		}
	}
	for i := range classes {
		c := &classes[i]
		c.levels = levels[c.set]
		switch t := asked[c.set]; {
		case t != nil:
			c.topology, c.leader = t, leads[c.set]
		case job.PodSets[c.set].Count == 1 && largest >= 0:
			c.beside = asked[largest]
		}
	}
}

func groupName(ps *workload.PodSet) string {
	if ps.Topology == nil || ps.Topology.PodSetGroupName == nil {
		return ""
	}
	return *ps.Topology.PodSetGroupName
}

// isLeader says that pod set i is the single pod of a group of two sets: the first, if
// both have one.
func isLeader(job *workload.Job, i int, group string) bool {
	if job.PodSets[i].Count != 1 {
		return false
	}
	others, leads := 0, false
	for k := range job.PodSets {
		if ps := &job.PodSets[k]; k != i && groupName(ps) == group {
			others, leads = others+1, ps.Count > 1 || i < k
		}
	}
	return others == 1 && leads
}

// flavorsAround are the flavors of a pod set and of the others of its group.
func flavorsAround(job *workload.Job, i int, a *quota.Assignment) []string {
	var out []string
	group := groupName(&job.PodSets[i])
	for k := range job.PodSets {
		if k != i && (group == "" || groupName(&job.PodSets[k]) != group) {
			continue
		}
		for _, r := range slices.Sorted(maps.Keys(a.Flavors[k])) {
			out = append(out, a.Flavors[k][r])
		}
	}
	return out
}

// topologyOf is what a pod set asks for on the nodes of the flavors given, nil where
// it asks for nothing and there are no domains or it is a single pod.
func topologyOf(ps *workload.PodSet, flavors []string, tree *quota.Tree) *placement.Topology {
	flavor, levels := levelsOf(flavors, tree)
	r := ps.Topology
	asks := len(levelsAsked(r)) > 0
	if len(levels) == 0 && !(asks && len(flavors) > 0) {
		return nil
	}
	t := &placement.Topology{Levels: levels}
	if asks && differing(flavors, tree) != "" {
		// Whoever plans it finds no level, see disagree. So it is where a job runs
		// whose Topology is gone: nobody knows where its domains are.
		t.Levels = nil
	}
	for _, s := range workload.SlicesOf(r) {
		if s.Size > 1 {
			t.Slices = append(t.Slices, placement.Slice{Level: s.Topology, Size: int(s.Size)})
		}
	}
	switch {
	case r != nil && r.Required != nil:
		t.Level, t.Required = *r.Required, true
	case r != nil && r.Preferred != nil:
		t.Level = *r.Preferred
	case len(t.Slices) > 0:
	case r != nil && r.Unconstrained != nil && *r.Unconstrained:
	case ps.Count < 2:
		return nil
	default:
		t.Level = tree.PreferredLevel(flavor)
		t.Unasked = t.Level == ""
	}
	return t
}

// levelsOf are the levels of the first of some flavors that has any.
func levelsOf(flavors []string, tree *quota.Tree) (flavor string, levels []string) {
	for _, flavor := range flavors {
		if levels := tree.Levels(flavor); len(levels) > 0 {
			return flavor, levels
		}
	}
	return "", nil
}

// differing is one of some flavors whose topology has other levels than that of the
// first which has any, "" if there is none.
func differing(flavors []string, tree *quota.Tree) string {
	_, levels := levelsOf(flavors, tree)
	for _, flavor := range flavors {
		if l := tree.Levels(flavor); len(l) > 0 && !slices.Equal(l, levels) {
			return flavor
		}
	}
	return ""
}

// disagree says that a pod set which asks for a level has flavors, or others of its
// group have, whose topologies have other levels: then no domain is right. nil if
// that is so of none.
func disagree(job *workload.Job, a *quota.Assignment, tree *quota.Tree) *reason.Reason {
	for i := range job.PodSets {
		ps := &job.PodSets[i]
		flavors := flavorsAround(job, i, a)
		other := differing(flavors, tree)
		if len(levelsAsked(ps.Topology)) == 0 || other == "" {
			continue
		}
		whose := "its flavors"
		if group := groupName(ps); group != "" {
			whose = "the flavors of its group " + group + ","
		}
		first, levels := levelsOf(flavors, tree)
		return reason.New(reason.Misconfigured, "pod set %q asks for a topology level, and the topologies of %s %s and %s have different levels (%s; %s)",
			ps.Name, whose, first, other, strings.Join(levels, ", "), strings.Join(tree.Levels(other), ", "))
	}
	return nil
}
