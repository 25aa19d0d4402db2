package quota

import (
	"cmp"
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// finder collects the candidates of a Preemption. The rules are Kueue's
// classical ones.
type finder struct {
	request *Request
	queue   *clusterQueue
	usage   Usage
	short   map[FlavorResource]bool
	cells   copied
	// fair and members are nil without fair sharing.
	fair    *fairness
	members members
}

// kind is where a candidate stands to the request, in the order in which Kueue
// takes them.
type kind int

const (
	// entitled: the request's part of the tree has quota enough for it, and the
	// candidate sits on it from outside of that part.
	entitled kind = iota
	// reclaimed: the candidate's queue is above its nominal quota, as is the
	// request's part of the tree.
	reclaimed
	// own: both are of one ClusterQueue.
	own
)

func (f *finder) find() []*victim {
	p := f.queue.spec.preemption
	var all []*victim
	if !off(p.within) {
		for _, job := range f.queue.jobs {
			if f.mayAsk(p.within, job) {
				if v := f.victim(job, own, nil); v != nil {
					all = append(all, v)
				}
			}
		}
	}
	if !off(p.reclaim) {
		entitledFrom := f.entitledFrom()
		below := f.queue.node
		for n := f.queue.parent; n != nil; below, n = n, n.parent {
			k := reclaimed
			if f.fair == nil && entitledFrom != nil && n.height >= entitledFrom.height {
				k = entitled
			}
			f.others(n, below, func(q *clusterQueue) {
				for _, job := range q.jobs {
					if f.mayAsk(p.reclaim, job) {
						if v := f.victim(job, k, n); v != nil {
							all = append(all, v)
						}
					}
				}
			})
		}
	}
	slices.SortFunc(all, func(a, b *victim) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), a.job.compare(b.job))
	})
	return all
}

// attempts are the ways in which a set of these is looked for, in Kueue's order.
func (f *finder) attempts(all []*victim) []bool {
	if f.fair != nil {
		return []bool{true}
	}
	others := slices.ContainsFunc(all, func(v *victim) bool { return v.kind != own })
	entitles := slices.ContainsFunc(all, func(v *victim) bool { return v.kind == entitled })
	return attemptsOf(f.queue.spec.preemption.borrowing, others, entitles, f.belowNominal())
}

// attemptsOf says in which order a set is looked for, with the request allowed
// to borrow after it (true) or not: mayBorrow is what borrowWithinCohort says,
// others and entitles whether there are candidates of other ClusterQueues, and
// such as the request is entitled to, below whether the request's ClusterQueue
// uses less than its nominal quota.
func attemptsOf(mayBorrow, others, entitles, below bool) []bool {
	switch {
	case !others || (!mayBorrow && !below):
		return []bool{true}
	case !mayBorrow && !entitles:
		return []bool{false, true}
	default:
		return []bool{true, false}
	}
}

func (f *finder) mayAsk(p kueue.PreemptionPolicy, job *taking) bool {
	return !job.leaving && job.id != f.request.ID && allows(p, f.request.Priority, f.request.Created, job.holder)
}

// entitledFrom is the lowest Cohort whose members outside of the request's own
// branch sit on quota that the request's branch has for it: the first one above
// a node that takes the request within its quota. It is nil where even the whole
// tree does not.
func (f *finder) entitledFrom() *node {
	rest := make(map[FlavorResource]amount, len(f.usage))
	for fr, v := range f.usage {
		rest[fr] = amountOf(v)
	}
	for n := f.queue.node; n != nil; n = n.parent {
		enough := true
		for fr, v := range rest {
			c := n.cells[fr]
			if c == nil || c.exceeds(afterwards, v) {
				enough = false
			}
			if c != nil {
				rest[fr] = v.minus(c.keptFree(afterwards)).atLeastZero()
			}
		}
		if enough {
			return n.parent
		}
	}
	return nil
}

// others calls do for the ClusterQueues below n, but not below skip, that are
// above their quota in a cell that is short, with all Cohorts between.
func (f *finder) others(n, skip *node, do func(*clusterQueue)) {
	for child := range n.children {
		switch {
		case child == skip || !f.above(child):
		case child.queue != nil:
			do(child.queue)
		default:
			f.others(child, nil, do)
		}
	}
}

func (f *finder) above(n *node) bool {
	for fr := range f.short {
		if c := n.cells[fr]; c != nil && c.exceeds(afterwards, amount{}) {
			return true
		}
	}
	return false
}

// victim makes a candidate of a job whose ClusterQueue has the Cohort common in
// common with the request. It is nil where its leaving would not help, or where
// the rules forbid it whatever else leaves.
func (f *finder) victim(job *taking, k kind, common *node) *victim {
	v := &victim{
		Candidate: Candidate{ID: job.id, ClusterQueue: job.queue.name, Holder: job.holder},
		job:       job,
		kind:      k,
		home:      f.members[job.queue.node],
		homebound: f.fair == nil && k == reclaimed && !f.mayReclaimToBorrow(job.holder.Priority),
	}
	if v.homebound && !f.queue.spec.preemption.borrowing && !f.belowNominal() {
		return nil
	}
	helps := false
	for fr, used := range job.usage {
		if _, asked := f.usage[fr]; !asked && f.fair == nil {
			continue
		}
		from := job.queue.cells[fr]
		v.usage = append(v.usage, wanted{f.cells.of(from), amountOf(used)})
		if !f.short[fr] {
			continue
		}
		helps = true
		if common != nil {
			v.ladders = append(v.ladders, ladder{f.cells.of(from), f.cells.of(common.cells[fr])})
		}
	}
	switch k {
	case own:
		v.Reason = kueue.InClusterQueueReason
	case reclaimed:
		if f.fair != nil {
			v.Reason = f.fair.reason()
			break
		}
		v.Reason = kueue.InCohortReclaimWhileBorrowingReason
		if v.homebound {
			v.Reason = kueue.InCohortReclamationReason
		}
	case entitled:
		v.Reason = kueue.InCohortReclamationReason
	}
	if !helps || (common != nil && !v.onLadder()) {
		return nil
	}
	return v
}

// mayReclaimToBorrow says whether borrowWithinCohort lets the request take the
// quota of a job of this priority although it will borrow itself.
func (f *finder) mayReclaimToBorrow(priority int32) bool {
	p := f.queue.spec.preemption
	return p.borrowing && priority < f.request.Priority && (p.threshold == nil || priority <= *p.threshold)
}

// staysWithin says whether the request stays within its ClusterQueue's nominal
// quota of everything that is short.
func (f *finder) staysWithin() bool {
	for fr := range f.short {
		if c := f.queue.cells[fr]; c == nil || c.exceeds(afterwards, amountOf(f.usage[fr])) {
			return false
		}
	}
	return true
}

// belowNominal says whether the request's ClusterQueue uses less than its
// nominal quota of everything that is short.
func (f *finder) belowNominal() bool {
	for fr := range f.short {
		if c := f.queue.cells[fr]; c == nil || !c.used[afterwards].less(c.quota) {
			return false
		}
	}
	return true
}
