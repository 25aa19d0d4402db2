package topology

import (
	"cmp"
	"slices"
)

// outside are the fewest domains of the preferred level inside a domain further out, which
// is the innermost that is large enough: of the domains between, those are left out, the
// smallest first, without which it takes no more.
func (t *Tree) outside(id int32, level, need int) []share {
	ids := t.largestFirst(t.within(id, level, nil))
	most, _ := t.take(ids, need)
	for between := t.domains[id].level + 1; between < level; between++ {
		outer := t.within(id, between, nil)
		slices.SortFunc(outer, func(a, b int32) int {
			return cmp.Or(cmp.Compare(t.domains[a].slots, t.domains[b].slots), cmp.Compare(b, a))
		})
		for _, out := range outer {
			rest := slices.DeleteFunc(slices.Clone(ids), func(id int32) bool { return t.up(id, between) == out })
			if !t.holds(rest, need, true) {
				continue
			}
			if n, _ := t.take(rest, need); n == most {
				ids = rest
			}
		}
	}
	return t.fewest(ids, need, true)
}
