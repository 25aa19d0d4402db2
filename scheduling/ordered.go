package scheduling

import "slices"

// ordered is a list that is kept in order. compare must not change for what is
// in the list, and must be zero only for one and the same item. Insertion and
// removal are a binary search and one move of memory, which takes microseconds
// for tens of thousands of items.
type ordered[T any] struct {
	compare func(a, b T) int
	items   []T
}

func (o *ordered[T]) insert(x T) {
	if i, found := slices.BinarySearchFunc(o.items, x, o.compare); !found {
		o.items = slices.Insert(o.items, i, x)
	}
}

func (o *ordered[T]) remove(x T) {
	if i, found := slices.BinarySearchFunc(o.items, x, o.compare); found {
		o.items = slices.Delete(o.items, i, i+1)
	}
}
