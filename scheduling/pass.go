package scheduling

import (
	"context"
	"errors"
	"runtime"
	"time"

	"k8s.io/klog/v2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/metrics"
	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/quota"
)

const (
	// patience is how long jobs that were refused before give way to pods, and
	// how long at least until the next pass in which they do not.
	patience = time.Second
	// glance is how long a pass may look for jobs that are worth a plan.
	glance = time.Millisecond
)

// Pass tries the jobs that are due, in queue order, until none is left or the
// budget is spent; more reports that some are left. Between two jobs that were
// refused before it ends as soon as a pod waits, unless it has done so for a
// while. It must run on the scheduling goroutine.
func (c *Cycle) Pass(ctx context.Context) (more bool) {
	p := &pass{Cycle: c, ctx: ctx, start: c.ledger.clock.Now()}
	p.late = c.ledger.late(p.start)
	defer func() { metrics.PassSeconds.Observe(c.ledger.clock.Since(p.start).Seconds()) }()
	defer p.putBack()
	err := p.run()
	if err == nil {
		err = p.grow()
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Refreshing the snapshot for an admission pass")
		return true
	}
	c.ledger.mu.Lock()
	defer c.ledger.mu.Unlock()
	l := c.ledger
	return l.next() != nil || len(p.aside) > 0 || l.growthDue() || len(l.ripe()) > 0 ||
		(len(l.waits.renewals) > 0 && l.admits())
}

// pass is one admission pass.
type pass struct {
	*Cycle
	ctx   context.Context
	start time.Time
	// tries and looks count the jobs that were tried and those that were only
	// looked at.
	tries, looks int
	// late: those that were refused before have given way for long enough.
	late bool
	// fresh: the snapshot shows the cache as it was at room, a count of moves.
	fresh bool
	room  int64
	// aside are the buckets that were tried without a result.
	aside []*bucket
}

func (p *pass) run() error {
	l := p.ledger
	l.mu.Lock()
	lost, epoch := l.lostSlots(), l.epoch
	if !l.restored {
		// Their room may be that of a job which is still to be read.
		lost = nil
	}
	l.mu.Unlock()
	for _, e := range lost {
		if p.spent(false) {
			return nil
		}
		l.shed(e)
		if err := p.refresh(); err != nil {
			return err
		}
		p.tries++
		if p.replace(e, epoch) {
			p.fresh = false
		}
	}
	if err := p.redeem(); err != nil {
		return err
	}
	if err := p.findGPUs(); err != nil {
		return err
	}
	for {
		if p.tries > 0 {
			// Who brings the next pod must get to say so.
			runtime.Gosched()
		}
		l.mu.Lock()
		b := l.next()
		if b == nil {
			l.waits.allTried()
			if b = p.renewal(); b == nil {
				l.mu.Unlock()
				return nil
			}
		} else if p.spent(b.why != nil) || (b.cure.blind && p.podFirst()) {
			l.mu.Unlock()
			return nil
		} else if lack := b.cure.lack; lack != nil {
			l.mu.Unlock()
			if err := p.look(b, lack); err != nil {
				return err
			}
			continue
		}
		p.tries++
		if err := p.try(b); err != nil {
			return err
		}
	}
}

// renewal is a refused bucket to be tried again for its reason: one, in a pass
// that has nothing else to do.
func (p *pass) renewal() *bucket {
	if l := p.ledger; p.tries == 0 && l.admits() {
		return l.waits.nextRenewal()
	}
	return nil
}

// late says that jobs which were refused before have been due for long, and
// starts the time anew if so.
func (l *Ledger) late(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &l.waits
	if w.dueBuckets == 0 || now.Sub(w.dueSince) < patience {
		return false
	}
	w.dueSince = now
	return true
}

// spent says that the pass must end: its budget is spent, or a pod waits and
// the next job can wait longer, having been refused before.
func (p *pass) spent(again bool) bool {
	took := p.ledger.clock.Since(p.start)
	if p.tries == 0 && (p.looks == 0 || took < glance) {
		return false
	}
	return took > p.budget || (again && p.podFirst())
}

// podFirst says that a pod waits, and jobs which were refused before give way.
func (p *pass) podFirst() bool { return !p.late && p.podWaits.Load() }

// refresh brings the snapshot up to the cache, unless it is. The moves are
// counted before: for what happens in between, jobs are tried again.
func (p *pass) refresh() error {
	p.ledger.mu.Lock()
	p.fresh = p.fresh && p.room == p.ledger.waits.seen.room
	p.room = p.ledger.waits.seen.room
	p.ledger.mu.Unlock()
	if p.fresh {
		return nil
	}
	if err := p.Cycle.refresh(p.ctx); err != nil {
		return err
	}
	p.fresh = true
	return nil
}

// findGPUs makes those due for which there are enough free GPUs now, if GPUs
// have become free since the last pass.
func (p *pass) findGPUs() error {
	l := p.ledger
	l.mu.Lock()
	var bites []placement.Bite
	if l.waits.gpusMoved && l.admits() {
		l.waits.gpusMoved = false
		for bite := range l.waits.gpus {
			bites = append(bites, bite)
		}
	}
	l.mu.Unlock()
	if len(bites) == 0 {
		return nil
	}
	if err := p.refresh(); err != nil {
		return err
	}
	snap, err := p.snapshot()
	if err != nil {
		return err
	}
	for _, bite := range bites {
		room, err := bite.Room(snap)
		if err != nil {
			return err
		}
		l.mu.Lock()
		l.gpusFound(bite, room)
		l.mu.Unlock()
	}
	return nil
}

// look has a bucket wait on whose lack lasts; else it is worth a plan.
func (p *pass) look(b *bucket, lack *placement.Lack) error {
	p.looks++
	if err := p.refresh(); err != nil {
		return err
	}
	snap, err := p.snapshot()
	if err != nil {
		return err
	}
	lasts, err := lack.Lasts(snap)
	if err != nil {
		return err
	}
	l := p.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.cure.wait != nothing || b.cure.lack != lack || len(b.jobs.items) == 0 {
		return nil
	}
	switch {
	case !lasts:
		b.cure.lack, b.cure.blind = nil, false
	case p.room != l.waits.seen.room:
		p.setAside(b)
	default:
		l.waits.put(b, cure{wait: forRoom, queue: b.cure.queue, root: b.cure.root, lack: lack}, p.start)
	}
	return nil
}

// putBack makes the buckets due again that were tried without a result.
func (p *pass) putBack() {
	if len(p.aside) == 0 {
		return
	}
	l := p.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range p.aside {
		if b.cure.wait == aside && len(b.jobs.items) > 0 {
			l.waits.put(b, cure{blind: b.cure.blind}, p.start)
		}
	}
}

// try admits the first job of a bucket, whole, or records why not. It takes
// over the Ledger's lock and gives it back.
func (p *pass) try(b *bucket) error {
	l := p.ledger
	logger := klog.FromContext(p.ctx)
	e := b.jobs.items[0]
	version, job := e.version, e.job
	queue := b.head.queue
	verbose := logger.V(4)
	no := func(c cure, seen moves, why *reason.Reason) {
		if verbose.Enabled() {
			verbose.Info("Job stays pending", "job", klog.KRef(job.Owner.Namespace, job.Owner.Name), "class", why.Class, "reason", why.Message)
		}
		if !l.refuse(e, version, seen, c, why) {
			p.setAside(b)
		}
	}

	if why := l.behindClaim(b); why != nil {
		no(cure{wait: forQuota, queue: queue}, l.waits.seen, why)
		l.mu.Unlock()
		return nil
	}
	assignment, class, bar := l.look(e)
	b.bar = bar
	if mayRunInPart(job) {
		// That is of the whole job.
		b.bar = quota.Bar{}
	}
	if assignment != nil && b.cure.wait == nothing && l.givesWay(b, assignment) {
		p.tries--
		p.looks++
		l.mu.Unlock()
		return nil
	}
	seen := l.waits.seen
	t := &attempt{b: b, e: e, job: job, version: version, seen: seen, assignment: assignment}
	if class != "" {
		worded := class != reason.WaitingForQuota || verbose.Enabled()
		if worded {
			_, t.why = l.assign(e)
		} else {
			t.why = b.unworded()
		}
		if assignment == nil && (class != reason.WaitingForQuota || l.overtaken(e, queue) == nil) {
			b.also = ""
		} else if s := p.search(t); s != nil {
			_, t.why = l.assign(e)
			worded = true
			t.classes = prototypes(e, t.assignment, l.quota)
			l.mu.Unlock()
			if p.stopFor(s) {
				return nil
			}
			l.mu.Lock()
		}
		cured := cure{wait: forQuota, queue: queue}
		if t.mayBePart() {
			l.mu.Unlock()
			if done, err := p.tryPart(t); done || err != nil {
				return err
			}
			l.mu.Lock()
			if t.inPart != nil {
				cured, seen = *t.inPart, t.seen
			}
		}
		if e.version == version && e.spot.bucket == b {
			l.withhold(b.head, e, assignment)
			if r := e.reservation; r != nil {
				// Who comes before it has taken the quota.
				l.unreserve(r)
			}
		}
		no(cured, seen, t.why)
		if !worded {
			b.whyUsed = unworded
		}
		l.mu.Unlock()
		return nil
	}
	classes, blind := prototypes(e, assignment, l.quota), b.cure.blind
	reserved := l.reservedFrom(e)
	l.mu.Unlock()

	if err := p.refresh(); err != nil {
		return err
	}
	seen.room = p.room
	gang := gangOf(job.Owner.Name, job.Owner.UID, classes, sizes(classes))
	if blind {
		gang.Stop = p.podFirst
	}
	keepOff(&gang, reserved)
	fw, snap, why, err := p.framework(classes)
	var plan placement.Assignment
	c := cure{wait: forRoom, queue: queue}
	var took time.Duration
	if err == nil && why == nil {
		started := l.clock.Now()
		plan, why, err = p.planner.Plan(p.ctx, fw, snap, gang)
		if why != nil {
			c.lack, err = p.planner.Lack(snap, wholeSets(job, classes))
			if c.lack != nil && c.lack.Bite.Resource != "" {
				c.wait = forGPUs
			}
		}
		took = l.clock.Since(started)
		metrics.PlanSeconds.Observe(took.Seconds())
	}

	if err == nil && refusedWhole(why) {
		t.classes, t.why, t.seen, t.took = classes, why, seen, took
		if why.Class == reason.NoPlacement && p.makeRoom(t) {
			return nil
		}
		if t.mayBePart() {
			if done, err := p.tryPart(t); done || err != nil {
				return err
			}
			if t.inPart != nil {
				c, seen = *t.inPart, t.seen
			}
		}
		why, took = t.why, t.took
	}

	l.mu.Lock()
	if err == nil && why != nil && why.Class == reason.NoPlacement && e.version == version && e.spot.bucket == b && l.starved(e) {
		l.mu.Unlock()
		gang.Stop = nil
		p.reserve(e, version, assignment, fw, snap, gang, wholeSets(job, classes))
		l.mu.Lock()
	}
	defer l.mu.Unlock()
	if errors.Is(err, placement.ErrStopped) {
		p.setAside(b)
		return nil
	}
	if err != nil {
		logger.Error(err, "Planning a job", "job", klog.KRef(job.Owner.Namespace, job.Owner.Name))
		why = reason.New(reason.NoPlacement, "planning failed: %v", err)
	}
	if why != nil {
		b.rest(l.clock.Now(), took, p.budget)
		if e.version == version && e.spot.bucket == b {
			l.withhold(b.head, e, assignment)
		}
		no(c, seen, why)
		return nil
	}
	if err := l.charge(e, version, assignment, bySets(len(job.PodSets), classes, plan), classes); err != nil {
		logger.V(2).Info("Plan not committed, it will be made again", "job", klog.KRef(job.Owner.Namespace, job.Owner.Name), "why", err.Error())
		p.setAside(b)
		return nil
	}
	p.fresh = false
	logger.V(2).Info("Job planned and held", "job", klog.KRef(job.Owner.Namespace, job.Owner.Name), "queue", job.Queue, "nodes", e.nodes())
	l.effects.Write(job.Owner.UID)
	return nil
}

// setAside keeps a bucket out of the rest of the pass.
func (p *pass) setAside(b *bucket) {
	if len(b.jobs.items) > 0 {
		p.ledger.waits.put(b, cure{wait: aside, blind: b.cure.blind}, p.start)
		p.aside = append(p.aside, b)
	}
}
