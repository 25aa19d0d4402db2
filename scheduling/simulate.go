package scheduling

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/api/inquiry"
	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/quota"
)

// simulate says what would become of a job that the Ledger does not know. Nothing is
// charged, held or written: plans leave the snapshot as it was. It must run on the
// scheduling goroutine.
func (c *Cycle) simulate(ctx context.Context, e *entry) (*inquiry.Simulation, error) {
	p := &pass{Cycle: c, ctx: ctx, start: c.ledger.clock.Now()}
	p.stop = p.simulatedLong
	out := &inquiry.Simulation{Outcome: inquiry.Waits, GPUs: gpusOf(e.job), Pods: podsOf(e.job)}
	err := p.simulateIn(e, out)
	if errors.Is(err, placement.ErrStopped) {
		out.Outcome = inquiry.Unknown
		because(out, reason.New(reason.PendingEvaluation, "not found out in time: %v", err))
		return out, nil
	}
	return out, err
}

const (
	// simulatesFor bounds how long one simulation may keep the scheduling goroutine,
	// simulatesBeside how long while a pod waits for it.
	simulatesFor    = 500 * time.Millisecond
	simulatesBeside = 50 * time.Millisecond
)

// simulatedLong says that a simulation is to be given up.
func (p *pass) simulatedLong() bool {
	took := p.ledger.clock.Since(p.start)
	return took > simulatesFor || (took > simulatesBeside && p.podWaits.Load())
}

// simulateIn fills in what would become of a job. It returns placement.ErrStopped if that
// takes too long.
func (p *pass) simulateIn(e *entry, out *inquiry.Simulation) error {
	l := p.ledger
	l.mu.Lock()
	if l.follows {
		l.mu.Unlock()
		because(out, reason.New(reason.AnotherScheduler, "Kueue decides which jobs start, Muster simulates none: quota.provider is kueue"))
		return nil
	}
	queue, known := l.quota.ClusterQueueOf(e.queue())
	if known {
		out.ClusterQueue = queue
		out.Position, out.Pending = l.placeIn(queue, e)
		out.Pending++
	}
	a, no := l.assign(e)
	t := &attempt{b: &bucket{head: &head{queue: queue}, rank: e.rank()}, e: e, job: e.job, version: e.version, seen: l.waits.seen}
	bar := l.bars(t, out.Position)
	choices := l.quota.HasChoice(queue)
	others := l.detours(e, e.job, queue)
	l.mu.Unlock()
	if bar != nil {
		because(out, bar)
		return nil
	}
	first := no
	for a != nil {
		o := &option{assignment: a, fits: no == nil, quota: no}
		if o.fits {
			if done, err := p.simulatePlan(t, o, out); done || err != nil {
				return err
			}
		}
		if p.stop() {
			return placement.ErrStopped
		}
		t.options = append(t.options, o)
		if !choices {
			break
		}
		l.mu.Lock()
		a, no = others.next(a)
		l.mu.Unlock()
	}
	because(out, t.firstReason(first))
	for _, o := range t.options {
		if p.stop() {
			return placement.ErrStopped
		}
		if done, err := p.simulateStops(t, o, out); done || err != nil {
			return err
		}
	}
	return nil
}

// bars is why a job would not be tried at all: its queue does not admit, or others of it
// go first whatever it asks for. nil if it would be.
func (l *Ledger) bars(t *attempt, position int) *reason.Reason {
	switch first := l.claimOf(t.b.head.queue); {
	case l.rival != nil:
		return l.rival
	case l.quota.Strict(t.b.head.queue) && position > 1:
		return reason.New(reason.PendingEvaluation, "%d jobs are before it in StrictFIFO queue %s", position-1, t.b.head.queue)
	case first != nil && l.quota.Strict(t.b.head.queue) && first.rank().compare(t.b.rank) < 0:
		return behindJob(first, t.b.head.queue)
	}
	return nil
}

// simulatePlan looks for nodes in a choice of flavors that has quota.
func (p *pass) simulatePlan(t *attempt, o *option, out *inquiry.Simulation) (done bool, err error) {
	l := p.ledger
	l.mu.Lock()
	o.classes = prototypes(t.e, o.assignment, l.quota)
	o.why = disagree(t.job, o.assignment, l.quota)
	l.mu.Unlock()
	if o.why != nil {
		return false, nil
	}
	if err := p.refresh(); err != nil {
		return false, err
	}
	plan, heard, why, err := p.plan(t, t.job, o.classes, nil)
	if err != nil || why != nil {
		o.why = why
		return false, err
	}
	out.Outcome, out.Closeness = inquiry.Starts, heard.String()
	chargeIn(out, o.assignment)
	putOn(out, t, bySets(len(t.job.PodSets), o.classes, plan))
	return true, nil
}

// simulateStops looks for the jobs that would be stopped in a choice of flavors.
func (p *pass) simulateStops(t *attempt, o *option, out *inquiry.Simulation) (done bool, err error) {
	if o.why != nil && o.why.Class != reason.NoPlacement {
		return false, nil
	}
	l := p.ledger
	l.mu.Lock()
	over := l.overtaken(t.e, t.b.head.queue)
	var s *search
	if over != nil || (l.quota.MayPreempt(t.b.head.queue) && l.claimOf(t.b.head.queue) == nil) {
		marked := l.marks()
		s = p.newSearch(t, o, over)
		l.markAgain(marked)
	}
	if s != nil && over == nil && s.classes == nil {
		s.classes = prototypes(t.e, s.assignment, l.quota)
	}
	l.mu.Unlock()
	if s == nil {
		return false, nil
	}
	s.ends = l.clock.Now().Add(searchFor)
	found, err := s.run()
	if !found || err != nil {
		return false, err
	}
	out.Outcome = inquiry.Preempts
	chargeIn(out, s.assignment)
	putOn(out, t, bySets(len(t.job.PodSets), s.classes, s.plan))
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, v := range s.order {
		// Who has changed meanwhile is named no more than it would be stopped.
		if s.going[v.ID] && v.e.version == v.version {
			owner := v.e.job.Owner
			out.Preempted = append(out.Preempted, inquiry.Stopped{
				Kind: owner.Kind, Namespace: owner.Namespace, Name: owner.Name, GPUs: v.e.gpus(), Priority: v.e.priority, Reason: v.Reason,
			})
		}
	}
	return true, nil
}

// marks are whether the quota of the jobs that are leaving is expected to be free soon.
func (l *Ledger) marks() map[types.UID]bool {
	out := map[types.UID]bool{}
	for e := range l.waits.charged {
		if e.state == Leaving {
			out[e.job.Owner.UID] = l.quota.Leaves(e.job.Owner.UID)
		}
	}
	return out
}

// markAgain takes back what a search has changed in marks.
func (l *Ledger) markAgain(marks map[types.UID]bool) {
	for uid, leaves := range marks {
		if leaves {
			l.quota.Leave(uid)
		} else {
			l.quota.Stay(uid)
		}
	}
}

// firstReason is why the job would not start at once: what is missing of nodes goes before
// what is of quota, as with jobs that are there.
func (t *attempt) firstReason(first *reason.Reason) *reason.Reason {
	for _, o := range t.options {
		if o.why != nil {
			return o.why
		}
	}
	return first
}

func because(s *inquiry.Simulation, no *reason.Reason) {
	if no != nil {
		s.Reason, s.Message = string(no.Class), no.Message
	}
}

func chargeIn(s *inquiry.Simulation, a *quota.Assignment) {
	s.ClusterQueue, s.BorrowsFrom = a.ClusterQueue, a.Borrows
	for _, flavors := range a.Flavors {
		for _, f := range flavors {
			if !slices.Contains(s.Flavors, f) {
				s.Flavors = append(s.Flavors, f)
			}
		}
	}
	slices.Sort(s.Flavors)
}

func putOn(s *inquiry.Simulation, t *attempt, nodes [][]string) {
	for i, on := range nodes {
		at := map[string]int{}
		for _, node := range on {
			k, ok := at[node]
			if !ok {
				k = len(s.Nodes)
				at[node] = k
				s.Nodes = append(s.Nodes, inquiry.NodePods{PodSet: t.job.PodSets[i].Name, Node: node})
			}
			s.Nodes[k].Pods++
		}
	}
}

// ask has a question answered on the scheduling goroutine, and waits for that.
func (c *Cycle) ask(ctx context.Context, question func(context.Context)) error {
	done := make(chan struct{})
	select {
	case c.questions <- func(ctx context.Context) { defer close(done); question(ctx) }:
	case <-ctx.Done():
		return ctx.Err()
	}
	<-done
	return nil
}

// placeIn is the place that a job has among those that wait in a ClusterQueue, or would
// have, from 1 on, and how many wait there.
func (l *Ledger) placeIn(clusterQueue string, e *entry) (position, waiting int) {
	position = 1
	for queue, line := range l.waits.lines {
		if of, _ := l.quota.ClusterQueueOf(queue); of != clusterQueue {
			continue
		}
		before, _ := slices.BinarySearchFunc(line.items, e.rank(), func(o *entry, r rank) int { return o.filed().compare(r) })
		position, waiting = position+before, waiting+len(line.items)
		if l.waits.uncounted[queue] == 0 {
			continue
		}
		for i, o := range line.items {
			if o.spot.uncounted {
				waiting--
				if i < before {
					position--
				}
			}
		}
	}
	return position, waiting
}
