package placement

import (
	"cmp"
	"container/heap"
)

// tier ranks kinds of nodes: a node of a lower tier is always tried first.
type tier uint8

const (
	// tierFixed: siblings run there already, so it costs the gang no new node.
	tierFixed tier = iota
	// tierPlain: any other node.
	tierPlain
	// tierSpared: a node with GPUs, for pods that ask for none.
	tierSpared
)

// candidate is a node with room for at least one pod of a class.
type candidate struct {
	name string
	// node is the caller's index of the node.
	node int
	tier tier
	// order goes before the names of nodes that are equal else.
	order uint16
	// rank goes before all else where a search departs from packing, else 0.
	rank uint32
	// room is how many pods of the class the free resources hold: an upper
	// bound, Filter decides.
	room int
	// gpus are the node's free GPUs.
	gpus int64
}

// compareMostRoom orders candidates for a class that no single node can take:
// most pods first, so that few nodes are used.
func compareMostRoom(a, b *candidate) int {
	if d := cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.tier, b.tier), cmp.Compare(b.room, a.room), cmp.Compare(a.gpus, b.gpus), cmp.Compare(a.order, b.order)); d != 0 {
		return d
	}
	return compareNatural(a.name, b.name)
}

// compareBestFit orders candidates that can each take all the pods that are
// left: least left over first, so that big holes stay big. What is left over
// is counted in GPUs, then in pods.
func compareBestFit(a, b *candidate) int {
	if d := cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.tier, b.tier), cmp.Compare(a.gpus, b.gpus), cmp.Compare(a.room, b.room), cmp.Compare(a.order, b.order)); d != 0 {
		return d
	}
	return compareNatural(a.name, b.name)
}

// comparePacking is the order in which nodes are tried while left pods remain.
func comparePacking(a, b *candidate, left int) int {
	if d := cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.tier, b.tier)); d != 0 {
		return d
	}
	switch aAll, bAll := a.room >= left, b.room >= left; {
	case aAll && bAll:
		return compareBestFit(a, b)
	case aAll:
		return -1
	case bAll:
		return 1
	default:
		return compareMostRoom(a, b)
	}
}

// packing hands out candidates in the order of comparePacking while the
// number of pods left shrinks. That order changes with the number, but only
// between two fixed orders, so two heaps serve it: a class of thousands of
// pods costs one pass over the nodes, not one for each node it fills.
type packing struct {
	all  []candidate
	gone []bool
	// most holds all candidates, fits those that had room for fitsFor pods
	// when it was built; both may contain candidates that have gone since.
	most, fits queue
	fitsFor    int
}

func newPacking(candidates []candidate) *packing {
	p := &packing{all: candidates, gone: make([]bool, len(candidates))}
	p.most = queue{all: &p.all, compare: compareMostRoom, index: make([]int32, len(candidates))}
	for i := range candidates {
		p.most.index[i] = int32(i)
	}
	heap.Init(&p.most)
	p.fits = queue{all: &p.all, compare: compareBestFit}
	return p
}

// peek returns the index in all of the candidate to try for left pods, which
// must not grow from call to call; false if there is none.
func (p *packing) peek(left int) (int, bool) {
	top, ok := p.most.first(p.gone)
	if !ok || p.all[top].room < left {
		return top, ok
	}
	if fit, ok := p.fits.first(p.gone); ok && p.fitsFor == left {
		return fit, true
	}
	p.fitsFor = left
	p.fits.index = p.fits.index[:0]
	for i := range p.all {
		if c := &p.all[i]; !p.gone[i] && c.room >= left && c.tier == p.all[top].tier {
			p.fits.index = append(p.fits.index, int32(i))
		}
	}
	heap.Init(&p.fits)
	return p.fits.first(p.gone)
}

// take removes the candidate from the packing.
func (p *packing) take(i int) { p.gone[i] = true }

// put adds a candidate, for instance one that was taken and has room again.
func (p *packing) put(c candidate) {
	p.all = append(p.all, c)
	p.gone = append(p.gone, false)
	heap.Push(&p.most, int32(len(p.all)-1))
	p.fitsFor = 0
}

// queue is a heap of indices of candidates.
type queue struct {
	all     *[]candidate
	compare func(a, b *candidate) int
	index   []int32
}

// first returns the first index that has not gone.
func (q *queue) first(gone []bool) (int, bool) {
	for len(q.index) > 0 {
		if i := int(q.index[0]); !gone[i] {
			return i, true
		}
		last := len(q.index) - 1
		q.index[0] = q.index[last]
		q.index = q.index[:last]
		if last > 0 {
			heap.Fix(q, 0)
		}
	}
	return 0, false
}

func (q *queue) Len() int { return len(q.index) }
func (q *queue) Less(i, j int) bool {
	return q.compare(&(*q.all)[q.index[i]], &(*q.all)[q.index[j]]) < 0
}
func (q *queue) Swap(i, j int) { q.index[i], q.index[j] = q.index[j], q.index[i] }
func (q *queue) Push(x any)    { q.index = append(q.index, x.(int32)) }
func (q *queue) Pop() any {
	last := len(q.index) - 1
	x := q.index[last]
	q.index = q.index[:last]
	return x
}
