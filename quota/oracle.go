package quota

import (
	"cmp"
	"container/heap"
	"slices"
)

// oracle finds out what Preemption.Victims would say of a single cell, without
// looking at more jobs than it takes: it is asked for every flavor that a
// waiting job could have.
type oracle struct {
	*finder
	fr   FlavorResource
	home *cell
	need amount
	*workshop
}

// workshop is what an oracle works with. The next one works with the same.
type workshop struct {
	// all are the sources of others as they are found, some as they are used.
	all, some    []source
	mine, theirs sources
	// gone are the jobs that are taken away for now: out of the use of the Tree
	// itself, which has it again when the oracle has spoken.
	gone []*taking
}

// clean forgets the jobs, which may end.
func (w *workshop) clean() {
	clear(w.all)
	clear(w.some)
	clear(w.mine[:cap(w.mine)])
	clear(w.theirs[:cap(w.theirs)])
	clear(w.gone[:cap(w.gone)])
}

// source is the jobs of one ClusterQueue, in the order in which they go.
type source struct {
	kind   kind
	ladder ladder
	jobs   []*taking
}

// sources is a heap of sources by their first jobs.
type sources []*source

func (s sources) Len() int      { return len(s) }
func (s sources) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s sources) Less(i, j int) bool {
	if s[i].kind != s[j].kind {
		return s[i].kind < s[j].kind
	}
	return s[i].jobs[0].compare(s[j].jobs[0]) < 0
}
func (s *sources) Push(x any) { *s = append(*s, x.(*source)) }
func (s *sources) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}

// compare is Kueue's order of victims: lower priority, newer charge, UID.
func (k *taking) compare(o *taking) int {
	if k.holder.Priority != o.holder.Priority {
		return cmp.Compare(k.holder.Priority, o.holder.Priority)
	}
	if newer := o.holder.Reserved.Compare(k.holder.Reserved); newer != 0 {
		return newer
	}
	return cmp.Compare(k.id, o.id)
}

// inOrder are the jobs that have a charge in a cell of a ClusterQueue, in the
// order in which they go. The slice is kept until a charge comes or goes.
func (c *cell) inOrder(fr FlavorResource) []*taking {
	if c.ordered == nil && !c.used[charged].zero() {
		for _, job := range c.node.queue.jobs {
			if job.usage[fr] > 0 {
				c.ordered = append(c.ordered, job)
			}
		}
		slices.SortFunc(c.ordered, (*taking).compare)
	}
	return c.ordered
}

// disorder says that a charge with this usage has come or gone.
func (q *clusterQueue) disorder(u Usage) {
	for fr := range u {
		q.cells[fr].ordered = nil
	}
}

// ask returns the chance of the cell by preemption, and the level from which
// the request would borrow afterwards. It is noVictims where nobody is enough.
func (o *oracle) ask() (chance, int) {
	o.home = o.finder.queue.cells[o.fr]
	ownJobs, attempts := o.sources()
	defer o.clean()
	for _, borrowing := range attempts {
		o.begin(ownJobs)
		c, level := noVictims, 0
		if borrowing {
			c, level = o.toBorrow()
		} else {
			c = o.toStay()
		}
		for _, job := range o.gone {
			o.use(job, 1)
		}
		o.gone = o.gone[:0]
		if c != noVictims {
			return c, level
		}
	}
	return noVictims, 0
}

// begin has everybody there again.
func (o *oracle) begin(ownJobs []*taking) {
	o.mine, o.theirs = o.mine[:0], o.theirs[:0]
	if ownJobs != nil {
		o.mine = append(o.mine, &source{kind: own, jobs: ownJobs})
	}
	o.some = append(o.some[:0], o.all...)
	for i := range o.some {
		o.theirs = append(o.theirs, &o.some[i])
	}
	heap.Init(&o.theirs)
}

// toBorrow takes others' jobs and then those of the own queue.
func (o *oracle) toBorrow() (chance, int) {
	enough := func() bool { return o.fits(true) }
	o.take(&o.theirs, true, enough)
	if !enough() {
		o.take(&o.mine, true, enough)
	}
	if !enough() {
		return noVictims, 0
	}
	// Whoever need not go is put back, the last one excepted.
	for i := len(o.gone) - 2; i >= 0; i-- {
		if o.use(o.gone[i], 1); enough() {
			o.gone = slices.Delete(o.gone, i, i+1)
		} else {
			o.use(o.gone[i], -1)
		}
	}
	level, _ := o.finder.queue.borrowLevel(o.home, o.need)
	if slices.ContainsFunc(o.gone, func(k *taking) bool { return k.queue == o.finder.queue }) {
		return preempts, level
	}
	return reclaims, level
}

// toStay has the ClusterQueue stay within its nominal quota. If jobs of its own
// have to go for that, Kueue would have all others go first and put them back;
// here the own ones go first, which comes to the same.
func (o *oracle) toStay() chance {
	stays := func() bool { return !o.home.exceeds(afterwards, o.need) }
	enough := func() bool { return o.fits(false) }
	mine := 0
	if !stays() {
		mine = o.take(&o.mine, false, stays)
	}
	if stays() && !enough() {
		o.take(&o.theirs, false, enough)
	}
	if stays() && !enough() {
		mine += o.take(&o.mine, false, enough)
	}
	switch {
	case !enough():
		return noVictims
	case mine > 0:
		return preempts
	default:
		return reclaims
	}
}

// sources finds the own jobs, those of others, and the attempts as in attemptsOf.
func (o *oracle) sources() (mine []*taking, attempts []bool) {
	q := o.finder.queue
	p := q.spec.preemption
	o.all = o.all[:0]
	if !off(p.within) {
		mine = o.home.inOrder(o.fr)
	}
	entitles := false
	if !off(p.reclaim) {
		from := o.entitledFrom()
		below := o.home
		for c := below.parent; c != nil; below, c = c, c.parent {
			k := reclaimed
			if from != nil && c.node.height >= from.height {
				k = entitled
			}
			if k == reclaimed && !p.borrowing && !o.belowNominal() {
				continue
			}
			c.above(below, func(from *cell) {
				jobs := from.inOrder(o.fr)
				first := slices.IndexFunc(jobs, func(job *taking) bool { return o.mayAsk(p.reclaim, job) })
				if first < 0 {
					return
				}
				entitles = entitles || k == entitled
				o.all = append(o.all, source{k, ladder{from, c}, jobs[first:]})
			})
		}
	}
	return mine, attemptsOf(p.borrowing, len(o.all) > 0, entitles, o.belowNominal())
}

// above calls do for the cells of ClusterQueues below c, but not below skip,
// that are above their quota with all Cohorts between.
func (c *cell) above(skip *cell, do func(*cell)) {
	for _, child := range c.children {
		switch {
		case child == skip || !child.exceeds(afterwards, amount{}):
		case child.node.queue != nil:
			do(child)
		default:
			child.above(nil, do)
		}
	}
}

// take takes jobs away until it is enough, or there are none left. It returns
// how many.
func (o *oracle) take(from *sources, borrowing bool, enough func() bool) (n int) {
	p := o.finder.queue.spec.preemption
	for len(*from) > 0 {
		s := (*from)[0]
		job := s.jobs[0]
		policy := p.within
		gone := false
		if s.kind != own {
			policy = p.reclaim
			// Its ClusterQueue will not be above its quota again.
			gone = !s.ladder.above()
		}
		if s.jobs = s.jobs[1:]; gone || len(s.jobs) == 0 {
			heap.Pop(from)
		} else {
			heap.Fix(from, 0)
		}
		homebound := s.kind == reclaimed && !o.mayReclaimToBorrow(job.holder.Priority)
		if gone || !o.mayAsk(policy, job) || (homebound && borrowing) {
			continue
		}
		o.use(job, -1)
		o.gone = append(o.gone, job)
		n++
		if enough() {
			break
		}
	}
	return n
}

// use takes a job away (sign -1), or puts it back.
func (o *oracle) use(job *taking, sign int64) {
	job.queue.cells[o.fr].use(amountOf(sign*job.usage[o.fr]), rightsToBorrow...)
}

func (o *oracle) fits(borrowing bool) bool {
	return !o.home.lacks(o.need) && (borrowing || !o.home.exceeds(afterwards, o.need))
}
