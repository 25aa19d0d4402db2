package scheduling

// pile is a heap of which the first item is wanted most. Each item knows where
// in the pile it lies, so that insertion and removal take a few steps whatever
// the size. compare must not change for what is in the pile.
type pile[T any] struct {
	compare func(a, b T) int
	// at is where an item keeps its index.
	at    func(T) *int
	items []T
}

func (p *pile[T]) insert(x T) {
	*p.at(x) = len(p.items)
	p.items = append(p.items, x)
	p.up(len(p.items) - 1)
}

// remove takes out an item that is in the pile.
func (p *pile[T]) remove(x T) {
	i, last := *p.at(x), len(p.items)-1
	p.swap(i, last)
	var none T
	p.items[last] = none
	p.items = p.items[:last]
	if i < last {
		p.down(i)
		p.up(i)
	}
}

func (p *pile[T]) swap(i, j int) {
	p.items[i], p.items[j] = p.items[j], p.items[i]
	*p.at(p.items[i]), *p.at(p.items[j]) = i, j
}

func (p *pile[T]) up(i int) {
	for i > 0 {
		above := (i - 1) / 2
		if p.compare(p.items[above], p.items[i]) <= 0 {
			return
		}
		p.swap(i, above)
		i = above
	}
}

func (p *pile[T]) down(i int) {
	for {
		first := i
		for _, below := range []int{2*i + 1, 2*i + 2} {
			if below < len(p.items) && p.compare(p.items[below], p.items[first]) < 0 {
				first = below
			}
		}
		if first == i {
			return
		}
		p.swap(i, first)
		i = first
	}
}
