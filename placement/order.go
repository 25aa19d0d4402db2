package placement

import (
	"cmp"
	"slices"

	fwk "k8s.io/kube-scheduler/framework"
)

// planOrder is the order in which classes are planned: those first whose pods
// must all be in one domain, or are to share some, the largest of them before the
// others, because each takes a domain from the rest; then the most demanding pods first. But a
// class that must be near pods of a sibling class comes only after it, because
// required affinity to pods that are not there yet refuses every node.
func planOrder(searches []*classSearch, after [][]int) []int {
	return inOrder(wishOf(searches), after)
}

// wishOf are the indices of the classes in the order that is best where none
// needs another.
func wishOf(searches []*classSearch) []int {
	wish := make([]int, len(searches))
	for i := range wish {
		wish[i] = i
	}
	slices.SortStableFunc(wish, func(a, b int) int { return compareClasses(searches[a], searches[b]) })
	return wish
}

// needs tells for each class after which others it must be planned.
func needs(searches []*classSearch) [][]int {
	after := make([][]int, len(searches))
	for i := range searches {
		if s := searches[i]; s.beside != nil {
			for j := range searches {
				if searches[j].group == s.beside {
					after[i] = append(after[i], j)
				}
			}
		}
		if len(searches[i].near) > 0 || len(searches[i].prototype.GetRequiredAffinityTerms()) == 0 {
			continue
		}
		for j := range searches {
			if i != j && needsNearby(searches[i], searches[j]) {
				after[i] = append(after[i], j)
			}
		}
	}
	return after
}

// inOrder is the wish with each class moved behind those that it must be after.
func inOrder(wish []int, after [][]int) []int {
	waiting := slices.Clone(wish)
	order := make([]int, 0, len(wish))
	planned := make([]bool, len(wish))
	for len(waiting) > 0 {
		next := slices.IndexFunc(waiting, func(i int) bool {
			return !slices.ContainsFunc(after[i], func(j int) bool { return !planned[j] })
		})
		// Classes that need each other have no right order; try the wish.
		next = max(next, 0)
		order = append(order, waiting[next])
		planned[waiting[next]] = true
		waiting = slices.Delete(waiting, next, next+1)
	}
	return order
}

// compareClasses is the wish of planOrder, as of slices.SortFunc.
func compareClasses(a, b *classSearch) int {
	switch aNear, bNear := a.needsDomain(), b.needsDomain(); {
	case aNear && !bNear:
		return -1
	case bNear && !aNear:
		return 1
	case aNear:
		total := func(s *classSearch, each int64) int64 {
			n := s.class.Count
			if s.group != nil {
				n = s.group.count()
			}
			return int64(n) * each
		}
		return cmp.Or(
			cmp.Compare(total(b, b.demand.gpus), total(a, a.demand.gpus)),
			cmp.Compare(total(b, b.demand.milliCPU), total(a, a.demand.milliCPU)),
			cmp.Compare(total(b, b.demand.memory), total(a, a.demand.memory)))
	}
	return a.demand.compare(&b.demand)
}

// needsNearby tells whether the class has required affinity that the sibling
// meets and that its own kind does not: a term that matches the pod itself lets
// the first pod in anywhere. Namespaces named by their labels are not looked
// up, all pods of a gang are in one.
func needsNearby(s, sibling *classSearch) bool {
	terms := s.prototype.GetRequiredAffinityTerms()
	misses := func(other *classSearch) bool {
		return slices.ContainsFunc(terms, func(term fwk.AffinityTerm) bool { return !term.Matches(other.prototype.Pod, nil) })
	}
	return len(terms) > 0 && !misses(sibling) && misses(s)
}

// needsDomain says that the pods of the class must be in one domain, or are to
// share some.
func (s *classSearch) needsDomain() bool { return len(s.near) > 0 || s.group != nil }
