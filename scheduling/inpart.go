package scheduling

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/klog/v2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/metrics"
	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// A job may say with how few pods it can do. If it neither fits whole nor finds
// others to stop, it is started with as many as fit, and keeps that number until it
// is stopped. Nobody is stopped for a part of a job.

// mayRunInPart says that a job can do with fewer pods than it asks for.
func mayRunInPart(job *workload.Job) bool {
	if len(job.PodSets) != 1 {
		return false
	}
	ps := &job.PodSets[0]
	return ps.Whole == 0 && ps.MinCount > 0 && leastPart(ps) < ps.Count
}

// partStep is what the number of pods of a part must be a multiple of: where there are
// slices within slices, the outer ones are whole.
func partStep(ps *workload.PodSet) int32 {
	if s := workload.SlicesOf(ps.Topology); len(s) > 1 {
		return s[0].Size
	}
	return 1
}

// leastPart is with how few pods a job can do.
func leastPart(ps *workload.PodSet) int32 {
	step := partStep(ps)
	return (ps.MinCount + step - 1) / step * step
}

// runsInPart says that a job has fewer pods than it asks for.
func runsInPart(job *workload.Job) bool {
	return len(job.PodSets) == 1 && job.PodSets[0].Whole > 0
}

// inPart is a job that may run in part with count pods.
func inPart(job *workload.Job, count int32) *workload.Job {
	out := withCounts(job, []int32{count})
	out.Elastic = false
	ps := &out.PodSets[0]
	ps.Whole = job.PodSets[0].Count
	if ps.SyncCompletions {
		ps.Completions = count
	}
	if ps.Ended != nil {
		ended := workload.Ended{Count: min(ps.Ended.Count, ps.Completions)}
		if ps.Ended.Indices != nil && ps.Completions == count {
			// Of the pods that are over, those with the numbers that it still has.
			ended.Indices = slices.DeleteFunc(slices.Clone(ps.Ended.Indices), func(i int32) bool { return i >= count })
			ended.Count = int32(len(ended.Indices))
		}
		ps.Ended = &ended
	}
	return out
}

// sameWhole says that a job is the whole of one which has fewer pods.
func sameWhole(had, job *workload.Job) bool {
	return runsInPart(had) && mayRunInPart(job) &&
		sameSize(withCounts(had, []int32{had.PodSets[0].Whole}), job)
}

// admittedPart is a job with the pods for which an admission is, if these are only
// some of them; otherwise nil.
func admittedPart(job *workload.Job, a *kueue.Admission) *workload.Job {
	counts := admittedCounts(job, a)
	if counts == nil || !mayRunInPart(job) || counts[0] < 1 || counts[0] >= job.PodSets[0].Count {
		return nil
	}
	return inPart(job, counts[0])
}

// wouldDo says with how few pods a job would start, as the end of the sentence that
// says why it waits.
func wouldDo(job *workload.Job) string {
	if !mayRunInPart(job) {
		return ""
	}
	return fmt.Sprintf("; it would start with %d of its %d pods", leastPart(&job.PodSets[0]), job.PodSets[0].Count)
}

// mayBePart says that a job which was refused is to be tried with fewer pods.
func (t *attempt) mayBePart() bool { return !t.later && mayRunInPart(t.job) }

// part is a plan for some of the pods of a job.
type part struct {
	job        *workload.Job
	assignment *quota.Assignment
	classes    []class
	plan       placement.Assignment
	close      *closeness
}

// tryPart tries to start a job, which was refused, with as many pods as there are
// quota and nodes for. done: it is started, or is tried again. Otherwise t.inPart
// is what can let it start. The Ledger's lock must not be held.
func (p *pass) tryPart(t *attempt) (done bool, err error) {
	l, queue := p.ledger, t.b.head.queue
	l.mu.Lock()
	if t.e.version != t.version || t.e.state != Pending {
		l.mu.Unlock()
		return false, nil
	}
	most, a := l.mostWithQuota(t)
	if a == nil {
		t.inPart = &cure{wait: forQuota, queue: queue}
		l.mu.Unlock()
		return false, nil
	}
	if l.givesWay(t, a) {
		p.tries--
		p.looks++
		l.mu.Unlock()
		return true, nil
	}
	l.mu.Unlock()

	if err := p.refresh(); err != nil {
		return false, err
	}
	if len(t.options) == 0 {
		t.seen.room = p.room
	}
	started := l.clock.Now()
	best, err := p.largestPart(t, most)
	took := l.clock.Since(started)
	t.took += took
	metrics.PlanSeconds.Observe(took.Seconds())

	l.mu.Lock()
	defer l.mu.Unlock()
	if t.inPart == nil {
		t.inPart = &cure{wait: forRoom, queue: queue}
	}
	switch {
	case errors.Is(err, placement.ErrStopped):
		p.setAside(t.b)
		return true, nil
	case err != nil:
		klog.FromContext(p.ctx).Error(err, "Planning a job with fewer pods", "job", t.job.Owner.NamespacedName)
		return false, nil
	case best == nil:
		t.b.rest(l.clock.Now(), t.took, p.budget)
		return false, nil
	}
	if err := l.chargePart(t, best); err != nil {
		klog.FromContext(p.ctx).V(2).Info("Plan not committed, it will be made again", "job", t.job.Owner.NamespacedName, "why", err.Error())
		p.setAside(t.b)
		return true, nil
	}
	p.fresh = false
	klog.FromContext(p.ctx).V(2).Info("Job planned and held in part", "job", t.job.Owner.NamespacedName, "pods", best.job.PodSets[0].Count, "nodes", t.e.nodes())
	l.effects.Write(t.job.Owner.UID)
	return true, nil
}

// chargePart commits a plan for some pods of a job.
func (l *Ledger) chargePart(t *attempt, best *part) error {
	if t.e.version != t.version {
		return fmt.Errorf("%s changed while it was planned", t.e)
	}
	had := t.e.job
	t.e.setJob(best.job)
	err := l.charge(t.e, t.version, best.assignment, bySets(1, best.classes, best.plan), best.classes)
	if err != nil {
		t.e.setJob(had)
		return err
	}
	t.e.close = best.close
	return nil
}

// assignPart asks for the quota of a job with fewer pods.
func (l *Ledger) assignPart(e *entry, some *workload.Job) *quota.Assignment {
	had := e.job
	e.job = some
	defer func() { e.job = had }()
	if a, no := l.assign(e); no == nil {
		return a
	}
	return nil
}

// mostWithQuota is the largest number of pods, fewer than all, that a job has quota
// for, with the assignment; that is nil if there is none for the least.
func (l *Ledger) mostWithQuota(t *attempt) (most int32, a *quota.Assignment) {
	ps := &t.job.PodSets[0]
	step := partStep(ps)
	most = step * largest(leastPart(ps)/step, (ps.Count-1)/step, func(n int32) bool {
		some := l.assignPart(t.e, inPart(t.job, n*step))
		if some != nil {
			a = some
		}
		return some != nil
	})
	return most, a
}

// largest is the largest number of [from, to] that fits, if those below one that
// fits do too; from if none does. The last of which fits says true is the result.
func largest(from, to int32, fits func(int32) bool) int32 {
	if fits(to) {
		return to
	}
	low, high := from, to
	if from == to || !fits(from) {
		return from
	}
	for high-low > 1 {
		if middle := low + (high-low)/2; fits(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// largestPart plans a job with the largest number of pods, up to most, that have nodes;
// nil if the least have none.
func (p *pass) largestPart(t *attempt, most int32) (best *part, err error) {
	ps := &t.job.PodSets[0]
	step := partStep(ps)
	largest(leastPart(ps)/step, most/step, func(n int32) bool {
		if err != nil {
			return false
		}
		var some *part
		some, err = p.planPart(t, inPart(t.job, n*step))
		if some != nil {
			best = some
		}
		return some != nil
	})
	if err != nil {
		return nil, err
	}
	return best, nil
}

// planPart plans a job with fewer pods, nil if these have no quota or no nodes, in
// whatever flavors.
func (p *pass) planPart(t *attempt, some *workload.Job) (*part, error) {
	l := p.ledger
	l.mu.Lock()
	if t.e.version != t.version {
		l.mu.Unlock()
		return nil, nil
	}
	a, d := l.assignPart(t.e, some), l.detours(t.e, some, t.b.head.queue)
	choice := t.b.head.choice
	l.mu.Unlock()
	var lacks []*placement.Lack
	for a != nil {
		out := &part{job: some, assignment: a}
		l.mu.Lock()
		if t.e.version != t.version {
			l.mu.Unlock()
			return nil, nil
		}
		had := t.e.job
		t.e.job = some
		out.classes = prototypes(t.e, a, l.quota)
		t.e.job = had
		way := wayOf(some, a)
		progress := t.b.progressIn(way, t.seen.queues)
		l.mu.Unlock()

		progress.begins(p.room)
		var no *reason.Reason
		var err error
		out.plan, out.close, no, err = p.plan(t, some, out.classes, &progress.Progress)
		l.mu.Lock()
		t.b.keepProgress(way, t.seen.queues, progress)
		l.mu.Unlock()
		if progress.Unfinished() {
			t.unfinished = true
		} else {
			t.seen.room = min(t.seen.room, progress.room)
		}
		switch {
		case err != nil:
			return nil, err
		case no == nil:
			return out, nil
		}
		if ps := &some.PodSets[0]; ps.Count == leastPart(ps) {
			lack, err := p.lackOf(some, out.classes)
			if err != nil {
				return nil, err
			}
			lacks = append(lacks, lack)
			t.inPart = new(curedByRoom(t.b.head.queue, lacks...))
		}
		refused := a
		if a = nil; choice {
			l.mu.Lock()
			a = d.nextFree(refused)
			l.mu.Unlock()
		}
	}
	return nil, nil
}
