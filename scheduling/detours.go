package scheduling

import (
	"cmp"
	"maps"
	"slices"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

const (
	// mostOptions bounds in how many choices of flavors nodes are looked for in one
	// try, mostAsks how often quota is asked for one.
	mostOptions, mostAsks = 8, 64
)

// detours finds the choices of flavors that are left for a job, one after the other, as
// those are refused that came before. Each is what quota would rather give, with a
// flavor ruled out for one of the pod sets that had it. The larger pod sets go
// elsewhere first: it is they that find no nodes.
type detours struct {
	// ask asks for quota, with flavors ruled out by pod set.
	ask func(without [][]string) (*quota.Assignment, *reason.Reason)
	// order is that of the pod sets.
	order []int
	// without is ruled out in the choice that was found last, open are the sets that
	// were not asked for yet.
	without [][]string
	open    [][][]string
	asks    int
	refused []*quota.Assignment
	// short is why there is no quota in the first of those that have none, nil if
	// there is none of those.
	short *reason.Reason
}

// detours are those of a job, or a part of it, in a ClusterQueue, to be asked for with
// the Ledger's lock.
func (l *Ledger) detours(e *entry, job *workload.Job, queue string) *detours {
	d := &detours{without: make([][]string, len(job.PodSets))}
	size := func(i int) int64 { return job.PodSets[i].GPUs() }
	for i := range job.PodSets {
		d.order = append(d.order, i)
	}
	slices.SortStableFunc(d.order, func(i, j int) int { return cmp.Compare(size(j), size(i)) })
	d.ask = func(without [][]string) (*quota.Assignment, *reason.Reason) {
		had := e.job
		e.job = job
		defer func() { e.job = had }()
		request := e.request(l.namespaces[job.Owner.Namespace])
		for i := range request.PodSets {
			request.PodSets[i].Without = without[i]
		}
		a, no := l.ask(e, request)
		if no != nil && !l.quota.MayPreempt(queue) {
			// Nobody can be stopped for it: it is no choice.
			return nil, no
		}
		return a, no
	}
	return d
}

// next is another choice of flavors than those that were refused, of which the last is
// given. The results are those of quota.Tree.Assign; nil and nil if there is none.
func (d *detours) next(refused *quota.Assignment) (*quota.Assignment, *reason.Reason) {
	d.refused = append(d.refused, refused)
	if len(d.refused) >= mostOptions {
		return nil, nil
	}
	d.branch(refused, d.without)
	for len(d.open) > 0 && d.asks < mostAsks {
		d.without, d.open = d.open[0], d.open[1:]
		d.asks++
		a, no := d.ask(d.without)
		switch {
		case a != nil && !d.knows(a):
			return a, no
		case a != nil:
			d.branch(a, d.without)
		case d.short == nil && no.Class != reason.NoMatchingFlavor:
			d.short = no
		}
	}
	return nil, nil
}

// nextFree is the next one in which quota is free, nil if there is none.
func (d *detours) nextFree(refused *quota.Assignment) *quota.Assignment {
	for {
		a, no := d.next(refused)
		if a == nil || no == nil {
			return a
		}
		refused = a
	}
}

func (d *detours) knows(a *quota.Assignment) bool {
	return slices.ContainsFunc(d.refused, func(r *quota.Assignment) bool { return sameFlavors(a, r) })
}

// branch opens what is left beside a choice: any other one differs from it in at least
// one flavor of one pod set.
func (d *detours) branch(from *quota.Assignment, without [][]string) {
	for _, i := range d.order {
		flavors := slices.Compact(slices.Sorted(maps.Values(from.Flavors[i])))
		for _, flavor := range flavors {
			more := slices.Clone(without)
			more[i] = append(slices.Clip(more[i]), flavor)
			d.open = append(d.open, more)
		}
	}
}
