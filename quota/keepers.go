package quota

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// treeCell is a cell of a whole tree of Cohorts.
type treeCell struct {
	root *node
	cell FlavorResource
}

// keeper is a ClusterQueue for whose job some of a cell is withheld.
type keeper struct {
	id     types.UID
	queue  string
	strict bool
	amount int64
	// fromBorrowers says that it is withheld from those alone who borrow.
	fromBorrowers bool
}

// keepers are those for whose jobs some of a cell is withheld in a tree, the one
// with the most first. Many jobs are refused one after the other for the same, so
// it is remembered until something is withheld or the tree changes.
func (t *Tree) keepers(root *node, fr FlavorResource) []keeper {
	if len(t.withheld) == 0 {
		return nil
	}
	key := treeCell{root, fr}
	if known, ok := t.kept[key]; ok {
		return known
	}
	var out []keeper
	for id, k := range t.withheld {
		if v := k.usage[fr]; v > 0 && k.queue.root() == root {
			out = append(out, keeper{id, k.queue.name, k.queue.spec.strict, v, k.fromBorrowers})
		}
	}
	slices.SortFunc(out, func(a, b keeper) int {
		return cmp.Or(cmp.Compare(b.amount, a.amount), cmp.Compare(a.queue, b.queue), cmp.Compare(a.id, b.id))
	})
	t.kept[key] = out
	return out
}

// forgetKeepers is called when something is withheld, or no more, and when the
// tree changes.
func (t *Tree) forgetKeepers() { clear(t.kept) }

// keptFrom says of what is short how much is withheld for jobs of other
// ClusterQueues, or of the same: empty where that is nothing.
func (s shortage) keptFrom() string {
	if len(s.keepers) == 0 {
		return ""
	}
	first, rest := s.keepers[0], int64(0)
	for _, k := range s.keepers[1:] {
		rest = saturatingAdd(rest, k.amount)
	}
	out := fmt.Sprintf(", %s reserved for a job of ClusterQueue %s", value(s, first.amount), first.queue)
	if first.strict {
		out = fmt.Sprintf(", %s kept for the first job of ClusterQueue %s, which is StrictFIFO", value(s, first.amount), first.queue)
	}
	if rest > 0 {
		out += fmt.Sprintf(", and %s for jobs of others", value(s, rest))
	}
	return out
}
