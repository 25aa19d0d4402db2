package islands

import "cmp"

// Choice is some GPUs of a node for a pod.
type Choice struct {
	Devices Set
	// Link is the worst between two of them.
	Link Link
	// Breaks says how much of what is joined with other free GPUs is taken away from
	// them: the number of links that go from the chosen GPUs to the free ones that
	// stay, 255 at most of each kind, the best kind first.
	Breaks uint32
}

// mostChosen bounds how many answers are remembered.
const mostChosen = 4096

// Choose chooses n of the free GPUs, false if there are fewer. Those are chosen
// whose worst link is best; then those with the best ring; then those that leave the
// most useful rest, in which larger islands stay whole; then those with more of the
// better links; then the lowest indices. Free GPUs that the shape does not have do not count.
func (s *Shape) Choose(free Set, n int) (Choice, bool) {
	free &= First(s.n)
	if n < 0 || free.Len() < n {
		return Choice{}, false
	}
	if s.uniform {
		chosen := lowest(free, n)
		return Choice{Devices: chosen, Link: s.Apart(chosen), Breaks: s.breaks(chosen, free&^chosen)}, true
	}
	s.once.Do(s.tabulate)
	s.mu.Lock()
	defer s.mu.Unlock()
	q := question{free, n}
	if c, ok := s.chosen[q]; ok {
		return c, true
	}
	var best Set
	found := false
	for set := range free.subsets(n) {
		if found && s.apart[set] > s.apart[best] {
			continue
		}
		if !found || cmp.Or(
			cmp.Compare(s.apart[set], s.apart[best]),
			cmp.Compare(s.rings[set], s.rings[best]),
			s.uses[free&^best].compare(&s.uses[free&^set]),
			cmp.Compare(s.inside(best), s.inside(set)),
			compareIndices(set, best)) < 0 {
			best, found = set, true
		}
	}
	c := Choice{Devices: best, Link: s.apart[best], Breaks: s.breaks(best, free&^best)}
	if len(s.chosen) == mostChosen {
		clear(s.chosen)
	}
	s.chosen[q] = c
	return c, true
}

// lowest are the n lowest of the GPUs.
func lowest(free Set, n int) (chosen Set) {
	for i := range free.Indices() {
		if chosen.Len() == n {
			break
		}
		chosen |= SetOf(i)
	}
	return chosen
}

// compareIndices orders sets of one size by their lowest indices.
func compareIndices(a, b Set) int {
	switch differ := a ^ b; {
	case differ == 0:
		return 0
	case a&(differ&-differ) != 0:
		return -1
	}
	return 1
}

// inside counts the links between the GPUs of a set, the best kind first.
func (s *Shape) inside(set Set) uint32 {
	var count [Machine]int
	for i := range set.Indices() {
		for k := range set.Indices() {
			if k < i && s.links[i][k] < Machine {
				count[s.links[i][k]]++
			}
		}
	}
	return pack(count)
}

func (s *Shape) breaks(chosen, rest Set) uint32 {
	var count [Machine]int
	for i := range chosen.Indices() {
		for k := range rest.Indices() {
			if link := s.links[i][k]; link < Machine {
				count[link]++
			}
		}
	}
	return pack(count)
}

// pack makes numbers of which the first counts most one number.
func pack(count [Machine]int) (packed uint32) {
	for _, n := range count {
		packed = packed<<8 | uint32(min(n, 255))
	}
	return packed
}
