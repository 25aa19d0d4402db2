package scheduling

import (
	"errors"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// redeem makes charges and holds of the claims whose victims have left. One that
// may be overtaken is left for the next pass.
func (p *pass) redeem() error {
	l := p.ledger
	l.mu.Lock()
	ripe := l.ripe()
	l.mu.Unlock()
	for _, e := range ripe {
		if p.spent() {
			return nil
		}
		if l.overtakes(e) {
			continue
		}
		p.tries++
		if err := p.redeemOne(e); err != nil {
			return err
		}
	}
	return nil
}

// redeemOne plans the job of a claim once more, without its own phantoms, and
// admits it. If that cannot be, the claim goes on waiting for those of whom the
// plan thought as gone, or for the devices of those that have left, and ends if it has
// neither to wait for.
func (p *pass) redeemOne(e *entry) error {
	l := p.ledger
	l.mu.Lock()
	if e.claim == nil {
		l.mu.Unlock()
		return nil
	}
	version, job, c, reserved := e.version, e.job, e.claim, l.reservedFrom(e)
	seen := l.waits.seen
	a, why := l.assignIn(e, c.assignment)
	var classes []class
	if why == nil {
		classes = prototypes(e, a, l.quota)
	}
	l.mu.Unlock()

	var plan placement.Assignment
	var heard *closeness
	var err error
	if why == nil {
		if err := p.refresh(); err != nil {
			return err
		}
		plan, heard, why, err = p.planWithout(job, classes, c, reserved)
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	p.fresh = false
	if e.claim != c {
		return nil
	}
	if err == nil && why == nil {
		err = l.chargeClaim(e, version, a, plan, classes)
	}
	switch {
	case err == nil && why == nil:
		e.close = heard
		klog.FromContext(p.ctx).V(2).Info("Claim redeemed", "job", e.job.Owner.NamespacedName, "nodes", e.nodes())
	case e.claim == c && len(c.gone) > 0 && err == nil:
		for uid := range c.gone {
			c.awaits[uid] = struct{}{}
		}
		c.tried = seen
	case e.claim == c && err == nil && why.Class == reason.NoPlacement && l.takesDevices(e.job):
		c.tried = seen
		if last := l.clock.Now().Add(devicesFreed); last.Before(c.until) {
			c.until = last
		}
		l.effects.Report()
	case e.claim == c:
		l.failClaim(e, fmt.Sprintf("there is no place for it now (%s)", errors.Join(err, asError(why))))
	}
	return nil
}

// planWithout plans a job as if the phantoms of its claim were not there, off
// the nodes that are reserved for others.
func (p *pass) planWithout(job *workload.Job, classes []class, c *claim, reserved []string) (plan placement.Assignment, heard *closeness, why *reason.Reason, err error) {
	fw, snap, why, err := p.framework(classes)
	if err != nil || why != nil {
		return nil, nil, why, err
	}
	without, err := p.planner.Without(klog.FromContext(p.ctx), snap)
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() { err = errors.Join(err, without.End()) }()
	if err := without.Remove(c.holds); err != nil {
		return nil, nil, nil, err
	}
	gang := gangOf(job.Owner.Name, job.Owner.UID, classes, sizes(classes))
	keepOff(&gang, reserved)
	heard = hear(&gang)
	plan, why, err = p.planner.Plan(p.ctx, fw, snap, gang)
	return plan, heard, why, err
}

// chargeClaim charges the job of a claim. Should that fail, the claim's phantoms may
// be gone already, and then it ends.
func (l *Ledger) chargeClaim(e *entry, version int, a *quota.Assignment, plan placement.Assignment, classes []class) error {
	queue, c := e.claim.assignment.ClusterQueue, e.claim
	err := l.charge(e, version, a, bySets(len(e.job.PodSets), classes, plan), classes)
	if err == nil {
		// Those behind it in a StrictFIFO queue have waited for that.
		l.released(l.quota.Root(queue))
		l.effects.Write(e.job.Owner.UID)
		return nil
	}
	if e.claim == nil {
		e.claim = &claim{assignment: c.assignment}
		l.failClaim(e, err.Error())
	}
	return fmt.Errorf("taking what was claimed in ClusterQueue %s: %w", queue, err)
}

func asError(why *reason.Reason) error {
	if why == nil {
		return nil
	}
	return why
}
