package placement

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	fwk "k8s.io/kube-scheduler/framework"
)

// nearKeys are the node labels whose values all pods of the class must share,
// because each pod requires others of its own class nearby; none if its
// required affinity is to other pods.
func (s *classSearch) nearKeys() ([]string, error) {
	terms, err := fwk.GetAffinityTerms(s.prototype.Pod, fwk.GetPodAffinityTerms(s.prototype.Pod.Spec.Affinity))
	if err != nil {
		return nil, fmt.Errorf("reading its affinity: %w", err)
	}
	var keys []string
	for _, term := range terms {
		if !term.Matches(s.prototype.Pod, nil) {
			return nil, nil
		}
		keys = append(keys, term.TopologyKey)
	}
	return keys, nil
}

// run places as many pods of the class as it can. Where the first pod goes
// binds the others if they must be near it or share a claim, so if the domain
// that packing alone prefers is too small, each other one with enough room is
// tried.
func (s *classSearch) run(ctx context.Context) error {
	before := len(s.assumed)
	var keys []string
	if s.hasClaims {
		// Only now, with no pod of the class placed, is to be seen what is open.
		keys = s.claims.nearKeys(s.prototype.Pod)
	}
	if err := s.attempt(ctx); err != nil || len(s.chosen) == s.class.Count || len(s.chosen) == 0 {
		return err
	}
	near, err := s.nearKeys()
	if keys = append(keys, near...); err != nil || len(keys) == 0 {
		return err
	}
	tried := s.chosen[0]
	if err := s.forget(before); err != nil {
		return err
	}
	s.restart(nil)
	for _, nodes := range s.domains(keys, tried) {
		if err := s.forget(before); err != nil {
			return err
		}
		s.restart(nodes)
		if err := s.attempt(ctx); err != nil || len(s.chosen) == s.class.Count {
			return err
		}
	}
	if s.within == nil {
		// There was no other domain to try: the first attempt is the answer.
		return s.attempt(ctx)
	}
	return nil
}

// domains groups the nodes with room by the values of the labels, without the
// group of the node tried, and returns those groups with room for the whole
// class, the one with the least room left over first.
func (s *classSearch) domains(keys []string, tried string) [][]int {
	type domain struct {
		name  string
		room  int
		nodes []int
	}
	byValues := make(map[string]*domain)
	skip := ""
	for _, c := range s.candidates() {
		values := s.labelValues(c.node, keys)
		d := byValues[values]
		if d == nil {
			d = &domain{name: values}
			byValues[values] = d
		}
		d.room += c.room
		d.nodes = append(d.nodes, c.node)
		if c.name == tried {
			skip = values
		}
	}
	var roomy []*domain
	for values, d := range byValues {
		if values != skip && d.room >= s.class.Count {
			roomy = append(roomy, d)
		}
	}
	slices.SortFunc(roomy, func(a, b *domain) int {
		return cmp.Or(cmp.Compare(a.room, b.room), compareNatural(a.name, b.name))
	})
	groups := make([][]int, 0, len(roomy))
	for _, d := range roomy {
		groups = append(groups, d.nodes)
	}
	return groups
}
