package scheduling

import (
	"context"
	"slices"

	"k8s.io/klog/v2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/placement"
)

// replace finds new nodes for the slots of an admitted job that lost theirs.
func (p *pass) replace(e *entry, epoch int64) bool {
	c, ctx, l := p.Cycle, p.ctx, p.ledger
	logger := klog.FromContext(ctx)

	l.mu.Lock()
	version, job := e.version, e.job
	if e.state != Admitted || e.assignment == nil {
		l.mu.Unlock()
		return false
	}
	classes := prototypes(e, e.assignment, l.quota)
	gang := gangOf(job.Owner.Name, job.Owner.UID, classes, make([]int, len(classes)))
	lost := make([][]*slot, len(classes))
	stale := false
	// shunned nodes are away; others that are avoided have failed a pod, and are taken
	// where there is nothing else.
	shunned := make([][]string, len(classes))
	again := false
	for i, c := range classes {
		to := &gang.Classes[i]
		shunned[i] = l.shun(e, e.sets[c.set])
		to.Avoid = slices.Clone(shunned[i])
		for _, s := range e.slotsOf(c) {
			switch {
			case s.lost():
				lost[i] = append(lost[i], s)
				stale = stale || s.stale
				if s.was != "" {
					to.Fixed = append(to.Fixed, s.was)
				}
				if s.avoid != "" {
					to.Avoid = append(to.Avoid, s.avoid)
					again = true
				}
			case !s.done && !slices.Contains(to.Fixed, s.node):
				to.Fixed = append(to.Fixed, s.node)
			}
		}
		to.Count = len(lost[i])
		keepNear(to, e.slotsOf(c), c.size())
	}
	l.mu.Unlock()
	if stale {
		// A pod has come since the snapshot was made: its hold is still in it.
		l.effects.Admit()
		return false
	}

	plan, heard, no, err := c.planSome(ctx, gang, classes)
	if no != nil && again {
		for i := range gang.Classes {
			gang.Classes[i].Avoid = shunned[i]
		}
		plan, heard, no, err = c.planSome(ctx, gang, classes)
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if e.version != version || e.state != Admitted {
		l.effects.Admit()
		return false
	}
	e.tried, e.why = epoch, no
	if err != nil || no != nil {
		l.effects.Report()
		logger.V(2).Info("No new node for a part of a gang", "job", klog.KRef(job.Owner.Namespace, job.Owner.Name), "reason", no.String(), "err", err)
		return false
	}
	for i := range lost {
		nodes := plan[i]
		if t := classes[i].topology; t == nil || t.Unasked {
			nodes = home(lost[i], nodes)
		}
		for j, s := range lost[i] {
			if s.lost() {
				e.moveTo(s, nodes[j])
			}
		}
	}
	e.hears(heard)
	if err := l.holdAll(e, classes); err != nil {
		logger.Error(err, "Holding a part of a gang again")
	}
	for i := range lost {
		for _, s := range lost[i] {
			if s.hold != nil && !l.stillFits([]string{s.node}) {
				l.lose(e, s)
			}
		}
	}
	e.version++
	l.enqueue(e)
	logger.V(2).Info("Part of a gang planned anew", "job", klog.KRef(job.Owner.Namespace, job.Owner.Name), "nodes", e.nodes())
	l.effects.Write(job.Owner.UID)
	return true
}

// planSome plans some of a gang's pods, while the others stay where they are.
func (c *Cycle) planSome(ctx context.Context, gang placement.Gang, classes []class) (placement.Assignment, *closeness, *reason.Reason, error) {
	fw, snap, no, err := c.framework(classes)
	if err != nil || no != nil {
		return nil, nil, no, err
	}
	stayNear(&gang, classes)
	heard := hear(&gang)
	plan, no, err := c.planner.Plan(ctx, fw, snap, gang)
	return plan, heard, no, err
}

// home puts the nodes of a plan, whose order does not matter, into that of the slots: a
// slot gets the one that it was on, if that is among them.
func home(lost []*slot, plan []string) []string {
	rest, out := slices.Clone(plan), make([]string, len(lost))
	for i, s := range lost {
		if at := slices.Index(rest, s.was); at >= 0 {
			out[i] = s.was
			rest = slices.Delete(rest, at, at+1)
		}
	}
	for i := range out {
		if out[i] == "" {
			out[i], rest = rest[0], rest[1:]
		}
	}
	return out
}
