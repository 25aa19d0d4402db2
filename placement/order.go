package placement

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// planOrder is the order in which classes are planned: most demanding first,
// but a class that must be near pods of a sibling class only after it, because
// required affinity to pods that are not there yet refuses every node.
func planOrder(searches []*classSearch, after [][]bool) []int {
	wish := make([]int, len(searches))
	for i := range wish {
		wish[i] = i
	}
	byDemand(searches, wish)
	return inOrder(wish, after)
}

// byDemand sorts indices of classes, most demanding first.
func byDemand(searches []*classSearch, indices []int) {
	slices.SortStableFunc(indices, func(a, b int) int { return searches[a].demand.compare(&searches[b].demand) })
}

// needs tells for each class after which others it must be planned.
func needs(searches []*classSearch) ([][]bool, error) {
	after := make([][]bool, len(searches))
	for i := range searches {
		after[i] = make([]bool, len(searches))
		for j := range searches {
			if i == j {
				continue
			}
			needs, err := needsNearby(searches[i].prototype.Pod, searches[j].prototype.Pod)
			if err != nil {
				return nil, fmt.Errorf("reading the affinity of pod set %s: %w", searches[i].class.Name, err)
			}
			after[i][j] = needs
		}
	}
	return after, nil
}

// inOrder is the wish with each class moved behind those that it must be after.
func inOrder(wish []int, after [][]bool) []int {
	waiting := slices.Clone(wish)
	order := make([]int, 0, len(wish))
	for len(waiting) > 0 {
		next := slices.IndexFunc(waiting, func(i int) bool {
			return !slices.ContainsFunc(waiting, func(j int) bool { return after[i][j] })
		})
		// Classes that need each other have no right order; try the wish.
		next = max(next, 0)
		order = append(order, waiting[next])
		waiting = slices.Delete(waiting, next, next+1)
	}
	return order
}

// needsNearby tells whether the pod has required affinity that the sibling
// meets and that the pod's own kind does not: a term that matches the pod
// itself lets the first pod in anywhere. Namespaces named by their labels are
// not looked up, all pods of a gang are in one.
func needsNearby(pod, sibling *v1.Pod) (bool, error) {
	terms, err := fwk.GetAffinityTerms(pod, fwk.GetPodAffinityTerms(pod.Spec.Affinity))
	if err != nil {
		return false, err
	}
	meets := func(other *v1.Pod) func(fwk.AffinityTerm) bool {
		return func(term fwk.AffinityTerm) bool { return !term.Matches(other, nil) }
	}
	return len(terms) > 0 && !slices.ContainsFunc(terms, meets(sibling)) && slices.ContainsFunc(terms, meets(pod)), nil
}
