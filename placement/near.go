package placement

import (
	"cmp"
	"context"
	"slices"
	"strings"
)

// nearKeys are the node labels whose values all pods of the class must share,
// because each pod requires others of its own class nearby; none if its
// required affinity is to other pods.
func (s *classSearch) nearKeys() []string {
	var keys []string
	for _, term := range s.prototype.GetRequiredAffinityTerms() {
		if !term.Matches(s.prototype.Pod, nil) {
			return nil
		}
		keys = append(keys, term.TopologyKey)
	}
	return keys
}

// run places as many pods of the class as it can. Where the first pod goes
// binds the others if they must be near it or share a claim, so the domains
// with enough room are tried one by one.
func (s *classSearch) run(ctx context.Context) error {
	keys := s.near
	if s.hasClaims {
		// Only now, with no pod of the class placed, is to be seen what is open.
		keys = append(s.claims.nearKeys(s.prototype.Pod), keys...)
	}
	if len(keys) == 0 {
		return s.attempt(ctx)
	}
	before := len(s.assumed)
	// Of the domain before, in which a group was not complete.
	s.within = nil
	turn := turn{trial: s.trial, of: s.class.Name, level: strings.Join(keys, " and "), within: s.bounds != nil}
	done, err := turn.run(s.domains(keys), func(nodes []int) (done bool, err error) {
		s.within = nodes
		if err := s.attempt(ctx); err != nil || len(s.chosen) == s.class.Count {
			return true, err
		}
		if len(s.chosen) > 0 || s.refused != nil {
			if err := s.forget(before); err != nil {
				return true, err
			}
			// What the plugins were told of is not there any more.
			s.restart()
		}
		s.within = nil
		return false, nil
	})
	if done || err != nil {
		return err
	}
	// None takes them all. What is said of that is said of all nodes.
	return s.attempt(ctx)
}

// domains groups the nodes with room by the values of the labels that the pods
// of the class must share, and returns those groups with room for all of them:
// one in which siblings run already before others, then the one with the least
// room left over, so that big domains stay free for classes that need them.
func (s *classSearch) domains(keys []string) []domain {
	type candidate struct {
		domain
		tier tier
		rank uint32
		room int
	}
	byValues := make(map[string]*candidate)
	for _, c := range s.candidates() {
		labels := s.nodes[c.node].Node().Labels
		if slices.ContainsFunc(keys, func(key string) bool { _, found := labels[key]; return !found }) {
			// A node without the label is near no other.
			continue
		}
		values := s.labelValues(c.node, keys)
		d := byValues[values]
		if d == nil {
			d = &candidate{domain: domain{name: values}, tier: c.tier, rank: s.variation.rank()}
			byValues[values] = d
		}
		d.room += c.room
		d.tier = min(d.tier, c.tier)
		d.nodes = append(d.nodes, c.node)
		d.generation = max(d.generation, s.nodes[c.node].GetGeneration())
	}
	var roomy []*candidate
	for _, d := range byValues {
		if d.room >= s.class.Count {
			roomy = append(roomy, d)
		}
	}
	slices.SortFunc(roomy, func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(a.tier, b.tier), cmp.Compare(a.rank, b.rank), cmp.Compare(a.room, b.room), compareNatural(a.name, b.name))
	})
	out := make([]domain, len(roomy))
	for i, d := range roomy {
		out[i] = d.domain
	}
	return out
}
