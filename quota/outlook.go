package quota

// look says what the outlook of one flavor is, which is that of its worst
// resource, and from how far away any of them is borrowed; it notes the
// resources of which there is too little, in the order of sortedResources.
// choice says that there are other flavors to choose from.
func (s *search) look(flavor string, asked []portion, before Usage, choice bool, miss *misfit) (worst outlook, level int) {
	worst.chance = fits
	var short []shortage
	var at barrier
	least := fits
	for _, a := range asked {
		fr := FlavorResource{flavor, a.resource}
		need := a.value
		if before != nil {
			need = saturatingAdd(before[fr], need)
		}
		c := s.queue.cells[fr]
		if c == nil || !c.listed {
			c = &cell{limits: limits{borrowing: noLimit, lending: noLimit}}
		}
		o := s.lookAt(fr, c, need, choice)
		if o.chance != fits {
			miss.lacks = true
			if !s.wordless {
				short = append(short, s.shortageOf(fr, c, a.value, before[fr]))
			}
		}
		if o.chance == waits && at.cell == nil {
			at = barrier{c, need}
		}
		if s.queue.spec.fungibility.better(worst, o) {
			worst = o
		}
		level = max(level, o.level)
		least = min(least, o.chance)
	}
	if worst.chance == fits {
		// Where to borrow is worse than to preempt, the worst resource may be free
		// although another one is not.
		worst.chance = least
	}
	if len(short) > 0 {
		miss.short = append(miss.short, short)
	}
	if s.wordless && worst.chance == waits {
		s.bar.barriers = append(s.bar.barriers, at)
	}
	return worst, level
}

// lookAt is the outlook of one cell. A queue in debt, its quota lowered under
// running jobs, has nothing free, and still takes a pod set that asks for zero.
func (s *search) lookAt(fr FlavorResource, c *cell, need int64, choice bool) outlook {
	v := amountOf(need)
	if c.potential().less(v) {
		return outlook{chance: never}
	}
	if s.empty {
		return outlook{chance: fits}
	}
	level, inside := s.queue.borrowLevel(c, v)
	sees := s.sight(fr, c, need)
	fairly := s.tree.SharesFairly() && !off(s.queue.spec.preemption.reclaim)
	switch {
	case !c.available(sees.afterwards).atLeastZero().less(v):
		if c.available(sees.now).atLeastZero().less(v) {
			return outlook{leaving, level}
		}
		return outlook{fits, level}
	case !fairly && s.queue.mustWait(c, need, inside):
		// It may not preempt to borrow.
		return outlook{waits, level}
	default:
		return s.withVictims(fr, need, level, choice)
	}
}

// sight is what the request sees of a cell of which it needs so much. What others
// have left for it is kept from it by nobody.
func (s *search) sight(fr FlavorResource, c *cell, need int64) sight {
	if k := s.tree.claims[s.request.ID]; k != nil && k.queue == s.queue && need <= k.usage[fr] {
		return leftFor
	}
	return c.sight(amountOf(need))
}

// borrowLevel is how high up the tree v more of a cell is found: 0 in the
// ClusterQueue's own quota, else the height of the Cohort whose quota, with all
// below it, is enough; and whether that leaves a larger tree outside of which
// the use of others can be reclaimed. It looks at the use after jobs that are
// leaving have left.
func (q *clusterQueue) borrowLevel(c *cell, v amount) (level int, inside bool) {
	if !c.exceeds(afterwards, v) || c.parent == nil {
		return 0, c.parent != nil
	}
	rest := v.minus(c.keptFree(afterwards))
	n := q.node
	for c.parent != nil {
		c, n = c.parent, n.parent
		if !c.exceeds(afterwards, rest) {
			return n.height, n.parent != nil
		}
		rest = rest.minus(c.keptFree(afterwards))
	}
	return n.height, false
}
