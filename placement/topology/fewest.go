package topology

import (
	"cmp"
	"slices"
)

// fewest are the fewest of some domains of one level that have need slots
// together, and if one of them is host room for what goes with them: one, if one is large enough, the one
// that fits best; else the largest, and in the place of the smallest of
// those the one that fits best. The domains must have that much room
// together.
func (t *Tree) fewest(ids []int32, need int, host bool) []share {
	if kept := t.kept(ids); len(kept) > 0 && t.holds(kept, need, host) {
		ids = kept
	}
	if best := t.bestFit(ids, need, host, false); best >= 0 {
		return []share{{best, need, host}}
	}
	ids = t.largestFirst(ids)
	most, at := 0, none
	if host {
		most, at = t.take(ids, need)
	} else {
		for left := need; left > 0 && most < len(ids); most++ {
			left -= t.domains[ids[most]].slots
		}
	}
	if at >= most {
		// It is further back than those that are large: it goes before the last.
		ids[at], ids[most-1] = ids[most-1], ids[at]
		at = most - 1
	}
	t.fitLast(ids, most, at, need)
	return t.divide(ids[:most], at, need)
}

// kept are the domains in which pods of the gang are already.
func (t *Tree) kept(ids []int32) []int32 {
	var kept []int32
	for _, id := range ids {
		if t.domains[id].kept > 0 {
			kept = append(kept, id)
		}
	}
	return kept
}

// none is the place of a host that there is not.
const none = -1

// holds says that domains have need slots together, and room for a host.
func (t *Tree) holds(ids []int32, need int, host bool) bool {
	slots, penalty := 0, noHost
	for _, id := range ids {
		slots += t.domains[id].slots
		penalty = min(penalty, t.domains[id].penalty)
	}
	return !host && slots >= need || penalty != noHost && slots-penalty >= need
}

func (t *Tree) largestFirst(ids []int32) []int32 {
	sorted := slices.Clone(ids)
	slices.SortFunc(sorted, func(a, b int32) int {
		x, y := &t.domains[a], &t.domains[b]
		if x.slots != y.slots {
			return cmp.Compare(y.slots, x.slots)
		}
		return cmp.Or(t.compareNodes(x, y, x.slots), cmp.Compare(x.room, y.room), cmp.Compare(x.free, y.free), t.compare(x.value, y.value), cmp.Compare(a, b))
	})
	return sorted
}

// take says how many domains are needed, and the place of the host among them.
// Those are the first of ids, largest first, except that a host behind them is in
// the place of the last. Any other set of that size has no more room.
func (t *Tree) take(ids []int32, need int) (most, host int) {
	at := func(i int) *domain { return &t.domains[ids[i]] }
	// behind has the best host from each place on.
	behind := make([]int, len(ids)+1)
	behind[len(ids)] = -1
	worth := func(i int) int { return at(i).slots - at(i).penalty }
	for i := len(ids) - 1; i >= 0; i-- {
		behind[i] = behind[i+1]
		if at(i).penalty != noHost && (behind[i] < 0 || worth(i) >= worth(behind[i])) {
			behind[i] = i
		}
	}
	slots, among := 0, -1
	for n := range ids {
		before := slots
		slots += at(n).slots
		if at(n).penalty != noHost && (among < 0 || at(n).penalty < at(among).penalty) {
			among = n
		}
		if among >= 0 && slots-at(among).penalty >= need {
			return n + 1, among
		}
		if h := behind[n+1]; h >= 0 && before+worth(h) >= need {
			return n + 1, h
		}
	}
	return len(ids), max(among, 0)
}

// fitLast puts, for the smallest of the first most that is not the host, the one
// that fits best.
func (t *Tree) fitLast(ids []int32, most, host, need int) {
	last := most - 1
	if last == host {
		last--
	}
	if last < 0 {
		return
	}
	rest := need
	if host != none {
		rest += t.domains[ids[host]].penalty
	}
	for i := range most {
		if i != last {
			rest -= t.domains[ids[i]].slots
		}
	}
	for i := most; i < len(ids) && t.domains[ids[i]].slots >= rest; i++ {
		if t.fitsBetter(ids[i], ids[last], rest) {
			ids[i], ids[last] = ids[last], ids[i]
		}
	}
}

// divide gives each domain its slots: all that they have, the smallest what is
// left.
func (t *Tree) divide(ids []int32, host, need int) []share {
	shares := make([]share, len(ids))
	over := -need
	for i, id := range ids {
		d := &t.domains[id]
		shares[i] = share{id: id, slots: d.slots, host: i == host}
		if i == host {
			shares[i].slots -= d.penalty
		}
		over += shares[i].slots
	}
	smallest := make([]int, len(ids))
	for i := range smallest {
		smallest[i] = i
	}
	slices.SortFunc(smallest, func(a, b int) int { return cmp.Or(cmp.Compare(shares[a].slots, shares[b].slots), cmp.Compare(b, a)) })
	for _, i := range smallest {
		less := min(over, shares[i].slots)
		shares[i].slots -= less
		over -= less
	}
	return slices.DeleteFunc(shares, func(s share) bool { return s.slots == 0 && !s.host })
}
