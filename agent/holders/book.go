package holders

import (
	"cmp"
	"slices"
)

// patience is how many lists in a row must lack an allocation before it is freed.
const patience = 3

// Book has the allocations as they are believed to be. After a restart of the kubelet
// its list may be empty or short until it has heard of its pods again, while they run
// with their devices. A Book is not safe for concurrent use.
type Book struct {
	entries map[hold]*entry
}

type entry struct {
	allocation Allocation
	// missing is how many lists in a row have lacked it.
	missing int
}

// NewBook has no allocations.
func NewBook() *Book { return &Book{entries: map[hold]*entry{}} }

// Take takes in a list that has come; calls that failed say nothing about holders, and
// are not to be taken. An allocation that the list lacks is freed after three lists,
// and not as long as the pod is known to run; but at once if another pod has the
// device and it cannot be shared.
func (b *Book) Take(list []Allocation, runs func(Pod) bool) {
	handedOn := map[ID]bool{}
	for _, a := range list {
		handedOn[a.ID] = handedOn[a.ID] || !a.Replicated
	}
	listed := map[hold]bool{}
	for _, a := range list {
		h := hold{a.ID, a.Pod}
		listed[h] = true
		b.entries[h] = &entry{allocation: a}
	}
	for h, e := range b.entries {
		if listed[h] {
			continue
		}
		e.missing++
		if handedOn[h.id] || e.missing >= patience && !runs(h.pod) {
			delete(b.entries, h)
		}
	}
}

// Allocations are those that are believed to be, sorted.
func (b *Book) Allocations() []Allocation {
	all := make([]Allocation, 0, len(b.entries))
	for _, e := range b.entries {
		all = append(all, e.allocation)
	}
	slices.SortFunc(all, compare)
	return all
}

// compare sorts by device, then by pod.
func compare(a, b Allocation) int {
	return cmp.Or(
		cmp.Compare(a.ID.String(), b.ID.String()),
		cmp.Compare(a.Pod.Namespace, b.Pod.Namespace),
		cmp.Compare(a.Pod.Name, b.Pod.Name),
	)
}
