package placement

import (
	"cmp"
	"container/heap"
)

// tier ranks kinds of nodes: of those that are equal in rank a node of a lower tier is
// tried first.
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
	// rank goes before all else: how far the node is from others of the gang that it is
	// to be near, or chance where a search departs from packing; else 0.
	rank uint32
	// room is how many pods of the class the free resources hold: an upper
	// bound, Filter decides.
	room int
	// gpus are the node's free GPUs.
	gpus int64
	// remainder is what is free beside them.
	remainder remainder
}

// remainder is what a node has free beside GPUs, and the pools that it is in; zero
// where scores do not count.
type remainder struct {
	milliCPU, memory int64
	pools            uint64
}

// scoring says how well so many pods of the class go onto a candidate; nil if
// all candidates are as good.
type scoring func(c *candidate, pods int) Score

// of is the score of a candidate.
func (s scoring) of(c *candidate, pods int) Score {
	if s == nil {
		return Score{}
	}
	return s(c, pods)
}

// compareMostRoom orders candidates for a class that no single node can take:
// most pods first, so that few nodes are used. Of those with equal room that goes
// first which is best filled.
func compareMostRoom(a, b *candidate, aScore, bScore Score) int {
	if d := cmp.Or(compareWidth(a, b), aScore.Compare(bScore), cmp.Compare(a.gpus, b.gpus), cmp.Compare(a.order, b.order)); d != 0 {
		return d
	}
	return compareNatural(a.name, b.name)
}

// compareWidth is compareMostRoom where room is all that counts.
func compareWidth(a, b *candidate) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.tier, b.tier), cmp.Compare(b.room, a.room))
}

// compareBestFit orders candidates that can each take all the pods that are
// left: that first on which each has GPUs that are close to each other, then that of
// which the rest is of most use to others, then least left over, so that big holes stay
// big. What is left over is counted in GPUs, then
// in pods.
func compareBestFit(a, b *candidate, aScore, bScore Score) int {
	if d := cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.tier, b.tier), aScore.Compare(bScore), cmp.Compare(a.gpus, b.gpus), cmp.Compare(a.room, b.room), cmp.Compare(a.order, b.order)); d != 0 {
		return d
	}
	return compareNatural(a.name, b.name)
}

// comparePacking is the order in which nodes are tried while left pods remain.
func comparePacking(a, b *candidate, left int, score scoring) int {
	if d := cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.tier, b.tier)); d != 0 {
		return d
	}
	switch aAll, bAll := a.room >= left, b.room >= left; {
	case aAll && bAll:
		return compareBestFit(a, b, score.of(a, left), score.of(b, left))
	case aAll:
		return -1
	case bAll:
		return 1
	default:
		return compareMostRoom(a, b, score.of(a, a.room), score.of(b, b.room))
	}
}

// packing hands out candidates in the order of comparePacking while the
// number of pods left shrinks. That order changes with the number, but only
// between two fixed orders, so two heaps serve it: a class of thousands of
// pods costs one pass over the nodes, not one for each node it fills.
type packing struct {
	all   []candidate
	gone  []bool
	score scoring
	// widest is the index of a candidate that no other goes before in the order of
	// most, but for scores and names; -1 without candidates.
	widest int
	// most holds all candidates, once they are ordered; fits those that had room
	// for fitsFor pods when it was built. Both may contain candidates that have gone
	// since.
	most, fits queue
	ordered    bool
	fitsFor    int
}

func newPacking(candidates []candidate, score scoring) *packing {
	p := &packing{all: candidates, gone: make([]bool, len(candidates)), score: score, widest: -1}
	p.most = queue{all: &p.all, compare: compareMostRoom}
	p.fits = queue{all: &p.all, compare: compareBestFit}
	for i := range candidates {
		if p.widest < 0 || compareWidth(&candidates[i], &candidates[p.widest]) < 0 {
			p.widest = i
		}
	}
	return p
}

// peek returns the index in all of the candidate to try for left pods, which
// must not grow from call to call; false if there is none.
func (p *packing) peek(left int) (int, bool) {
	top := p.widest
	if p.ordered || top < 0 || p.gone[top] || p.all[top].room < left {
		// Where one node takes all pods, the order of the others does not matter.
		p.order()
		var ok bool
		if top, ok = p.most.first(p.gone); !ok || p.all[top].room < left {
			return top, ok
		}
	}
	if fit, ok := p.fits.first(p.gone); ok && p.fitsFor == left {
		return fit, true
	}
	p.fitsFor = left
	p.fits.index = p.fits.index[:0]
	for i := range p.all {
		if c := &p.all[i]; !p.gone[i] && c.room >= left && c.tier == p.all[top].tier {
			p.fits.add(i, p.score.of(c, left))
		}
	}
	heap.Init(&p.fits)
	return p.fits.first(p.gone)
}

// order builds most.
func (p *packing) order() {
	if p.ordered {
		return
	}
	p.ordered = true
	for i := range p.all {
		if !p.gone[i] {
			p.most.add(i, p.score.of(&p.all[i], p.all[i].room))
		}
	}
	heap.Init(&p.most)
}

// take removes the candidate from the packing.
func (p *packing) take(i int) { p.gone[i] = true }

// put adds a candidate, for instance one that was taken and has room again.
func (p *packing) put(c candidate) {
	p.all = append(p.all, c)
	p.gone = append(p.gone, false)
	p.fitsFor = 0
	if last := len(p.all) - 1; p.ordered {
		p.most.add(last, p.score.of(&c, c.room))
		heap.Fix(&p.most, p.most.Len()-1)
	}
}

// queue is a heap of indices of candidates.
type queue struct {
	all     *[]candidate
	compare func(a, b *candidate, aScore, bScore Score) int
	index   []int32
	// scores are those of the candidates in the heap, by their indices.
	scores []Score
}

// add appends a candidate; the heap is to be mended then.
func (q *queue) add(i int, score Score) {
	if len(q.scores) < len(*q.all) {
		q.scores = append(q.scores, make([]Score, len(*q.all)-len(q.scores))...)
	}
	q.index = append(q.index, int32(i))
	q.scores[i] = score
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
	a, b := q.index[i], q.index[j]
	return q.compare(&(*q.all)[a], &(*q.all)[b], q.scores[a], q.scores[b]) < 0
}
func (q *queue) Swap(i, j int) { q.index[i], q.index[j] = q.index[j], q.index[i] }
func (q *queue) Push(x any)    { q.index = append(q.index, x.(int32)) }
func (q *queue) Pop() any {
	last := len(q.index) - 1
	x := q.index[last]
	q.index = q.index[:last]
	return x
}
