package topology

// Quality says how close to each other the pods of a gang are.
type Quality struct {
	// Level is that of which domains are counted: the one asked for, else the
	// innermost that has labels.
	Level int
	// Domains is how many domains of that level the gang is in, Fewest how many it
	// would need with all the room there was, 0 if nobody has counted that.
	Domains, Fewest int
	// Crossed is the number of levels with labels at which the gang is in several
	// domains: 0 if all of it shares a domain of the innermost.
	Crossed int
}

// Quality is that of a gang on the nodes that are given. The Tree must have the
// room that it had before the gang.
func (t *Tree) Quality(r Request, nodes []int) Quality {
	t.count(&r)
	q := Quality{Level: r.Level}
	if q.Level == None {
		q.Level = t.levels - 1
	}
	q.Domains = t.used(nodes, q.Level)
	for level := range t.levels {
		if t.used(nodes, level) > 1 {
			q.Crossed++
		}
	}
	outer, _ := r.outermost(t.levels)
	q.Fewest = q.Domains
	if level := min(q.Level, outer.Level); level > None && t.holds(t.byLevel[level], t.need(&r), true) {
		q.Fewest = min(q.Domains, len(t.fewest(t.byLevel[level], t.need(&r), true)))
	}
	return q
}

// used is in how many domains of a level the nodes are.
func (t *Tree) used(nodes []int, level int) int {
	seen := map[int32]struct{}{}
	for _, node := range nodes {
		seen[t.at(node, level)] = struct{}{}
	}
	return len(seen)
}

// Best is a node of the domain of a level that has the most room, and for how many
// pods of the request that is; -1 and 0 if there is none with room. all is for how
// many pods there is room in the whole tree.
func (t *Tree) Best(r Request) (node, room, all int) {
	t.count(&r)
	outer, rest := r.outermost(t.levels)
	pods := func(d *domain) int {
		n := d.slots * outer.Size
		if d.penalty == noHost {
			return 0
		}
		if rest > 0 && d.penalty == 0 {
			n += rest
		}
		if r.Leader {
			n -= d.penalty
		}
		return n
	}
	best := int32(-1)
	for _, id := range t.byLevel[max(r.Level, 0)] {
		d := &t.domains[id]
		if d.alone && r.Required {
			continue
		}
		if n := pods(d); n > 0 && (best < 0 || n > room || (n == room && t.compare(d.value, t.domains[best].value) < 0)) {
			best, room = id, n
		}
	}
	all = pods(&t.domains[0])
	if best < 0 {
		return -1, 0, all
	}
	for t.domains[best].node < 0 {
		best = t.domains[best].children[0]
	}
	return int(t.domains[best].node), room, all
}

// Value is the value of a level that a node has.
func (t *Tree) Value(node, level int) string { return t.domains[t.at(node, level)].value }
