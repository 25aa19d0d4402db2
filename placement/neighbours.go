package placement

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// neighbours says how near nodes are to those that others of a gang stay on.
type neighbours struct {
	// labels are the levels without that of single nodes, outermost first.
	labels []string
	// domains are those of each level that have such a node, by the values of its
	// label and of those further out.
	domains []sets.Set[string]
}

// neighboursOf are those of the class, nil where they do not count. Pods without
// GPUs keep off nodes with GPUs rather than that they are near.
func (s *classSearch) neighboursOf() *neighbours {
	t := s.class.Topology
	if len(s.class.Near) == 0 || s.demand.gpus == 0 || s.class.Beside != nil || (t != nil && (t.Level != "" || len(t.Slices) > 0)) {
		return nil
	}
	labels := withoutHosts(s.class.NearBy)
	if len(labels) == 0 {
		return nil
	}
	n := &neighbours{labels: labels, domains: make([]sets.Set[string], len(labels))}
	for l := range n.domains {
		n.domains[l] = sets.New[string]()
	}
	near := sets.New(s.class.Near...)
	for _, info := range s.nodes {
		if node := info.Node(); node != nil && near.Has(node.Name) {
			for l, domain := range domainsOf(node, labels) {
				n.domains[l].Insert(domain)
			}
		}
	}
	return n
}

// distance is how many levels a node does not share with the nearest of the others.
func (n *neighbours) distance(node *v1.Node) uint32 {
	shared := 0
	for l, domain := range domainsOf(node, n.labels) {
		if !n.domains[l].Has(domain) {
			break
		}
		shared++
	}
	return uint32(len(n.labels) - shared)
}

// domainsOf are the domains that a node is in, from the outermost in to the first
// label that it lacks.
func domainsOf(node *v1.Node, labels []string) []string {
	var out []string
	path := ""
	for _, label := range labels {
		value, found := node.Labels[label]
		if !found {
			break
		}
		// No label has a slash in its value.
		path += value + "/"
		out = append(out, path)
	}
	return out
}

// withoutHosts are the levels without that of single nodes.
func withoutHosts(levels []string) []string {
	if last := len(levels) - 1; last >= 0 && levels[last] == v1.LabelHostname {
		return levels[:last]
	}
	return levels
}
