package scheduling

import (
	"context"
	"runtime"
	"slices"
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
	if err == nil {
		err = p.measure()
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
	// stop, if it is set, gives up what is planned, with placement.ErrStopped.
	stop func() bool
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
		if p.spent() {
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
		} else if p.spent() || (b.why != nil && p.yields()) || (b.cure.blind && p.podFirst()) {
			l.mu.Unlock()
			return nil
		} else if lacks := b.cure.lacks; lacks != nil {
			l.mu.Unlock()
			if err := p.look(b, lacks); err != nil {
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

// begun says that the pass has done what each may do.
func (p *pass) begun() bool {
	return p.tries > 0 || (p.looks > 0 && p.ledger.clock.Since(p.start) >= glance)
}

// spent says that the pass must end.
func (p *pass) spent() bool { return p.begun() && p.ledger.clock.Since(p.start) > p.budget }

// yields says that the pass must end before jobs which can wait longer, having been
// refused before: a pod waits.
func (p *pass) yields() bool { return p.begun() && p.podFirst() }

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

// look has a bucket wait on whose lacks all last; else it is worth a plan.
func (p *pass) look(b *bucket, lacks []*placement.Lack) error {
	p.looks++
	if err := p.refresh(); err != nil {
		return err
	}
	snap, err := p.snapshot()
	if err != nil {
		return err
	}
	last := true
	for i := 0; i < len(lacks) && last; i++ {
		if last, err = lacks[i].Lasts(snap); err != nil {
			return err
		}
	}
	l := p.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.cure.wait != nothing || !slices.Equal(b.cure.lacks, lacks) || len(b.jobs.items) == 0 {
		return nil
	}
	switch {
	case !last:
		b.cure.lacks, b.cure.blind = nil, false
	case p.room != l.waits.seen.room:
		p.setAside(b)
	default:
		l.waits.put(b, cure{wait: forRoom, queue: b.cure.queue, root: b.cure.root, lacks: lacks}, p.start)
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

// try admits the first job of a bucket, whole or in part, or records why not. It
// takes over the Ledger's lock and gives it back.
func (p *pass) try(b *bucket) error {
	l := p.ledger
	e := b.jobs.items[0]
	t := &attempt{b: b, e: e, job: e.job, version: e.version, seen: l.waits.seen}
	if why := l.behindClaim(b); why != nil {
		p.refuse(t, cure{wait: forQuota, queue: b.head.queue}, why)
		l.mu.Unlock()
		return nil
	}
	assignment, class, bar := l.look(e)
	b.bar = bar
	if mayRunInPart(t.job) {
		// That is of the whole job.
		b.bar = quota.Bar{}
	}
	if assignment != nil && l.givesWay(t, assignment) {
		p.tries--
		p.looks++
		l.mu.Unlock()
		return nil
	}
	first := &option{assignment: assignment, fits: class == ""}
	if class == "" || (class == reason.WaitingForQuota && (assignment != nil || l.overtaken(e, b.head.queue) != nil)) {
		l.mu.Unlock()
		if done, err := p.tryFlavors(t, first); done || err != nil {
			return err
		}
		l.mu.Lock()
	} else {
		b.keepVain(nil)
	}
	if class != "" && class != reason.WaitingForQuota {
		_, first.quota = l.assign(e)
	}
	l.mu.Unlock()
	if t.mayBePart() {
		if done, err := p.tryPart(t); done || err != nil {
			return err
		}
	}
	return p.giveUp(t, first)
}

// setAside keeps a bucket out of the rest of the pass.
func (p *pass) setAside(b *bucket) {
	if len(b.jobs.items) > 0 {
		p.ledger.waits.put(b, cure{wait: aside, blind: b.cure.blind}, p.start)
		p.aside = append(p.aside, b)
	}
}
