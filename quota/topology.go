package quota

import (
	"fmt"
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// SetTopology adds or replaces a Topology.
func (t *Tree) SetTopology(obj *kueue.Topology) {
	levels := make([]string, len(obj.Spec.Levels))
	for i, l := range obj.Spec.Levels {
		levels[i] = l.NodeLabel
	}
	t.topologies[obj.Name] = levels
}

// DeleteTopology forgets a Topology. ClusterQueues with a flavor that names it
// become inactive.
func (t *Tree) DeleteTopology(name string) { delete(t.topologies, name) }

// SetDefaultLevels says which levels flavors have that name no Topology, and which
// of its levels the pods in a flavor prefer that ask for none: "" for none.
func (t *Tree) SetDefaultLevels(of func(flavor string) []string, preferred func(flavor string) string) {
	t.defaultLevels, t.preferredLevel = of, preferred
}

// PreferredLevel is the level that pods in a flavor prefer which ask for none, ""
// where there is none.
func (t *Tree) PreferredLevel(flavor string) string {
	if level := t.preferredLevel(flavor); slices.Contains(t.Levels(flavor), level) {
		return level
	}
	return ""
}

// Levels are the node labels by which the nodes of a flavor are in domains,
// outermost first; none where the flavor has no topology.
func (t *Tree) Levels(flavor string) []string {
	f, ok := t.flavors[flavor]
	switch {
	case !ok:
		return nil
	case f.topology != "":
		return t.topologies[f.topology]
	}
	return t.defaultLevels(flavor)
}

// missingTopologies are those that flavors of the queue name, with the flavor.
func (t *Tree) missingTopologies(q *clusterQueue) []string {
	var missing []string
	for _, g := range q.spec.groups {
		for _, name := range g.flavors {
			f, ok := t.flavors[name]
			if !ok || f.topology == "" {
				continue
			}
			if _, ok := t.topologies[f.topology]; !ok {
				missing = append(missing, fmt.Sprintf("Topology %s of ResourceFlavor %s", f.topology, name))
			}
		}
	}
	return missing
}

// lacksLevel is a level that a pod set asks for and that a flavor does not have.
func (t *Tree) lacksLevel(ps *PodSet, flavor string) (level string, lacks bool) {
	if len(ps.Levels) == 0 {
		return "", false
	}
	levels := t.Levels(flavor)
	for _, level := range ps.Levels {
		if !slices.Contains(levels, level) {
			return level, true
		}
	}
	return "", false
}

// noLevel is the phrase for it that ineligible would give.
func (t *Tree) noLevel(level, flavor string) string {
	levels := t.Levels(flavor)
	if len(levels) == 0 {
		return fmt.Sprintf("flavor %s has no topology, and so no level %s", flavor, level)
	}
	return fmt.Sprintf("the topology of flavor %s has no level %s, but %s", flavor, level, strings.Join(levels, ", "))
}
