package islands

// Fit is how well pods that ask for equally many GPUs go onto a node.
type Fit struct {
	// Possible is the worst link within one of the pods, if all goes well.
	Possible Link
	// Sure is the same in the worst case. Where it is known which GPUs are free, it
	// is Possible.
	Sure Link
	// Breaks is what the pods together take away from the free GPUs that stay, as of
	// Choice, 0 where nothing is chosen.
	Breaks uint32
	// Lonely is how many more of the free GPUs that stay are joined to no other one, by an
	// NVLink or a PCIe root, than were before; less than 0 where the pods take such ones.
	// 0 where nothing is chosen, or all GPUs are joined alike.
	Lonely int
}

// Fit is that of so many pods with n GPUs each, where exactly these GPUs are free.
// They are chosen one pod after the other; false if there are too few.
func (s *Shape) Fit(free Set, n, pods int) (f Fit, ok bool) {
	rest := free
	for range pods {
		c, ok := s.Choose(rest, n)
		if !ok {
			return Fit{}, false
		}
		rest &^= c.Devices
		f = Fit{Possible: max(f.Possible, c.Link), Sure: max(f.Sure, c.Link), Breaks: c.Breaks}
	}
	if pods > 1 {
		f.Breaks = s.breaks(free&^rest, rest)
	}
	if !s.uniform && pods > 0 {
		f.Lonely = s.lonely(rest) - s.lonely(free)
	}
	return f, true
}

// lonely is how many GPUs of the set are joined to no other one of it by more than a
// NUMA node.
func (s *Shape) lonely(set Set) (n int) {
	for i := range set.Indices() {
		if s.beside[i]&set == 0 {
			n++
		}
	}
	return n
}

// guess is what Likely is asked.
type guess struct{ free, n, pods uint8 }

// Likely is that of so many pods with n GPUs each, where only the number of free
// GPUs is known, false if there are too few. Whoever chooses them, and whichever
// are free, each pod can be given GPUs that are joined by Sure.
func (s *Shape) Likely(free, n, pods int) (f Fit, ok bool) {
	if free > s.n || n < 0 || pods < 0 || pods > MaxDevices || free < n*pods {
		return Fit{}, false
	}
	if s.uniform {
		if pods > 0 {
			f.Possible = s.Apart(First(n))
		}
		f.Sure = f.Possible
		return f, true
	}
	q := guess{uint8(free), uint8(n), uint8(pods)}
	s.mu.Lock()
	f, ok = s.likely[q]
	s.mu.Unlock()
	if ok {
		return f, true
	}
	best, ok := s.Fit(First(s.n), n, pods)
	if !ok {
		return Fit{}, false
	}
	f.Possible = best.Possible
	s.once.Do(s.tabulate)
	for i := range pods {
		f.Sure = max(f.Sure, s.sure[n][free-i*n])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.likely[q] = f
	return f, true
}

// surely is, for each number of free GPUs, the worst link of the best n of them, over
// all sets of that many.
func (s *Shape) surely(n int) (worst [MaxDevices + 1]Link) {
	// The best n of a set are the set itself, or the best n of one that lacks one.
	best := make([]Link, len(s.apart))
	for set := range best {
		size := Set(set).Len()
		switch {
		case size < n:
			continue
		case size == n:
			best[set] = s.apart[set]
		default:
			best[set] = Machine
			for i := range Set(set).Indices() {
				best[set] = min(best[set], best[set&^(1<<i)])
			}
		}
		worst[size] = max(worst[size], best[set])
	}
	return worst
}
