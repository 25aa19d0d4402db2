package scheduling

import (
	"errors"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/metrics"
	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// A job that has quota in a flavor and no place there is tried in the next one, as if
// the flavor had no quota for the pod set: in the same pass, until there are quota and
// nodes, or nothing is left to try.

// option is one choice of flavors for a job, and what came of it.
type option struct {
	assignment *quota.Assignment
	// name names its flavors, as far as the ClusterQueue has others in their place.
	name string
	// fits: the quota is free. Else others would have to leave.
	fits bool
	// quota is why it is not free, nil where nobody has asked for the words.
	quota *reason.Reason
	// classes are what nodes were looked for, why they were not found, and lack what
	// there was too little of; all are zero where nodes were not looked for.
	classes []class
	why     *reason.Reason
	lack    *placement.Lack
	// unfinished: the plan has ended before all was tried.
	unfinished bool
}

// tryFlavors tries to start a job in the first choice of flavors, and then in the
// others. Others are stopped for it when no flavor is left in which it would start
// at once, in the first one in which that helps; where the ClusterQueue rather has
// others stopped than take the next flavor, before the next one is tried. done: it is
// started, has a claim, or is tried again. The Ledger's lock must not be held.
func (p *pass) tryFlavors(t *attempt, first *option) (done bool, err error) {
	l := p.ledger
	l.mu.Lock()
	preemptsFirst := l.quota.PreemptsFirst(t.b.head.queue)
	if t.b.head.choice && first.assignment != nil && first.assignment.Flavors != nil {
		t.detours = l.detours(t.e, t.job, t.b.head.queue)
		first.name = l.nameOf(first.assignment)
	}
	l.mu.Unlock()
	for o := first; o != nil; {
		if o.fits {
			if done, err := p.planIn(t, o); done || err != nil {
				return done, err
			}
		}
		t.options = append(t.options, o)
		if t.final {
			return false, nil
		}
		if preemptsFirst {
			if done, waits := p.makeRooms(t); done || waits {
				return done, nil
			}
		}
		if o, done = p.detour(t, o); done {
			return true, nil
		}
	}
	done, _ = p.makeRooms(t)
	return done, nil
}

// makeRooms looks for jobs to stop in the choices of flavors in which that was not done
// yet. waits: that is to be done before the next flavor is tried, and cannot be now.
func (p *pass) makeRooms(t *attempt) (done, waits bool) {
	for ; t.searched < len(t.options); t.searched++ {
		if done, waits := p.makeRoom(t, t.options[t.searched]); done || waits {
			return done, waits
		}
	}
	return false, false
}

// detour is the next choice of flavors to try, nil if there is none. done: others
// come first because of what it would borrow.
func (p *pass) detour(t *attempt, refused *option) (next *option, done bool) {
	l := p.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.detours == nil || t.e.version != t.version || t.e.state != Pending {
		return nil, false
	}
	a, no := t.detours.next(refused.assignment)
	if a == nil {
		return nil, false
	}
	if no == nil && l.givesWay(t, a) {
		p.tries--
		p.looks++
		return nil, true
	}
	return &option{assignment: a, name: l.nameOf(a), fits: no == nil, quota: no}, false
}

// nameOf names the flavors of an assignment, as far as the ClusterQueue has others in
// their place; it is empty where it has none.
func (l *Ledger) nameOf(a *quota.Assignment) string {
	var names []string
	for _, flavors := range a.Flavors {
		for _, f := range flavors {
			if !slices.Contains(names, f) && l.quota.HasOthers(a.ClusterQueue, f) {
				names = append(names, f)
			}
		}
	}
	slices.Sort(names)
	switch n := len(names); n {
	case 0:
		return ""
	case 1:
		return "flavor " + names[0]
	default:
		return "flavors " + strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
}

// planIn looks for nodes in a choice of flavors in which there is quota. done: the job
// is started, or is tried again.
func (p *pass) planIn(t *attempt, o *option) (done bool, err error) {
	l := p.ledger
	l.mu.Lock()
	if t.e.version != t.version || t.e.spot.bucket != t.b {
		p.setAside(t.b)
		l.mu.Unlock()
		return true, nil
	}
	o.classes = prototypes(t.e, o.assignment, l.quota)
	o.why = disagree(t.job, o.assignment, l.quota)
	way := wayOf(t.job, o.assignment)
	progress := t.b.progressIn(way, t.seen.queues)
	l.mu.Unlock()
	if o.why != nil {
		return false, nil
	}

	if err := p.refresh(); err != nil {
		return false, err
	}
	if len(t.options) == 0 {
		// What has come since then may be of use in this choice.
		t.seen.room = p.room
	}
	progress.begins(p.room)
	started := l.clock.Now()
	plan, heard, why, err := p.plan(t, t.job, o.classes, &progress.Progress)
	metrics.PlanSeconds.Observe(l.clock.Since(started).Seconds())
	if o.unfinished = progress.Unfinished(); !o.unfinished {
		t.seen.room = min(t.seen.room, progress.room)
	}
	if err == nil && missesNodes(why) && !o.unfinished {
		why = p.explain(t, o, why)
	}
	t.took += l.clock.Since(started)

	l.mu.Lock()
	defer l.mu.Unlock()
	t.b.keepProgress(way, t.seen.queues, progress)
	logger := klog.FromContext(p.ctx)
	switch {
	case errors.Is(err, placement.ErrStopped):
		p.setAside(t.b)
		return true, nil
	case err != nil:
		logger.Error(err, "Planning a job", "job", t.job.Owner.NamespacedName)
		o.why, o.lack, t.final = reason.New(reason.NoPlacement, "planning failed: %v", err), nil, true
		return false, nil
	case why != nil:
		o.why, t.final = why, !missesNodes(why)
		return false, nil
	}
	if err := l.charge(t.e, t.version, o.assignment, bySets(len(t.job.PodSets), o.classes, plan), o.classes); err != nil {
		logger.V(2).Info("Plan not committed, it will be made again", "job", t.job.Owner.NamespacedName, "why", err.Error())
		p.setAside(t.b)
		return true, nil
	}
	t.e.close = heard
	p.fresh = false
	logger.V(2).Info("Job planned and held", "job", t.job.Owner.NamespacedName, "queue", t.job.Queue, "nodes", t.e.nodes())
	l.effects.Write(t.job.Owner.UID)
	return true, nil
}

// plan looks for nodes for a job, or a part of it, on the snapshot, off those that are
// reserved for others, and hears how close they are to each other. It goes on from
// progress.
func (p *pass) plan(t *attempt, job *workload.Job, classes []class, progress *placement.Progress) (placement.Assignment, *closeness, *reason.Reason, error) {
	p.ledger.mu.Lock()
	reserved, blind := p.ledger.reservedFrom(t.e), t.b.cure.blind
	p.ledger.mu.Unlock()
	fw, snap, why, err := p.framework(classes)
	if err != nil || why != nil {
		return nil, nil, why, err
	}
	gang := gangOf(job.Owner.Name, job.Owner.UID, classes, sizes(classes))
	gang.Progress = progress
	switch {
	case p.stop != nil:
		gang.Stop = p.stop
	case blind:
		gang.Stop = p.podFirst
	}
	keepOff(&gang, reserved)
	heard := hear(&gang)
	plan, why, err := p.planner.Plan(p.ctx, fw, snap, gang)
	return plan, heard, why, err
}

// explain adds to why a job has found no nodes in a choice of flavors what there is too
// little of, and, for the first choice, which job is in the way. What cannot be found
// out is not told.
func (p *pass) explain(t *attempt, o *option, why *reason.Reason) *reason.Reason {
	var err error
	relief := ""
	if o.lack, err = p.lackOf(t.job, o.classes); err == nil && o.lack != nil && why.Class == reason.NoPlacement && len(t.options) == 0 {
		relief, err = p.relief(t, o.classes)
	}
	if err != nil {
		klog.FromContext(p.ctx).Error(err, "Looking for what there is too little of", "job", t.job.Owner.NamespacedName)
	}
	return why.And(relief)
}

// lackOf is what there is too little of for a job that was refused, nil if that is not
// known.
func (p *pass) lackOf(job *workload.Job, classes []class) (*placement.Lack, error) {
	snap, err := p.snapshot()
	if err != nil {
		return nil, err
	}
	return p.planner.Lack(snap, wholeSets(job, classes))
}

// cure is what can let a job start that was refused in all its choices of flavors.
// Quota that is released anywhere in its tree has those tried again that have a choice,
// whatever else they wait for.
func (t *attempt) cure() cure {
	if t.inPart != nil {
		return *t.inPart
	}
	var lacks []*placement.Lack
	for _, o := range t.options {
		if o.why != nil {
			lacks = append(lacks, o.lack)
		}
	}
	if len(lacks) == 0 {
		return cure{wait: forQuota, queue: t.b.head.queue}
	}
	return curedByRoom(t.b.head.queue, lacks...)
}

// placeless are the choices of flavors in which the job had quota and no nodes.
func (t *attempt) placeless() []*option {
	return slices.DeleteFunc(slices.Clone(t.options), func(o *option) bool { return o.why == nil })
}

// giveUp records why a job was not started; first is what it would rather have had.
func (p *pass) giveUp(t *attempt, first *option) error {
	l := p.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	current := func() bool { return t.e.version == t.version && t.e.spot.bucket == t.b }
	placeless := t.placeless()
	if !first.fits && first.quota == nil && (len(placeless) > 0 || klog.FromContext(p.ctx).V(4).Enabled()) {
		_, first.quota = l.assign(t.e)
	}
	t.b.keepVain(t.options)
	why := t.reason(first)
	if !t.final && len(placeless) > 0 && why.Class == reason.NoPlacement && current() && l.starved(t.e) {
		l.mu.Unlock()
		p.reserve(t, placeless)
		l.mu.Lock()
	}
	if len(placeless) > 0 {
		if t.b.why == nil {
			// What waits for room counts, too.
			l.sees(wholeSets(t.job, placeless[0].classes))
		}
		t.b.rest(l.clock.Now(), t.took, p.budget)
	}
	if current() {
		l.withhold(t.b.head, t.e, first.assignment)
		if r := t.e.reservation; r != nil {
			if _, no := l.assignIn(t.e, r.assignment); no != nil {
				// Who comes before it has taken the quota.
				l.unreserve(r)
			}
		}
	}
	p.refuse(t, t.cure(), why)
	if current() && (t.unfinished || slices.ContainsFunc(t.options, func(o *option) bool { return o.unfinished })) {
		t.b.goesOn()
	}
	if first.quota == nil && len(placeless) == 0 {
		t.b.whyUsed = unworded
	}
	return nil
}

// refuse records why a job was not started, and what can let it. The Ledger's lock is
// held.
func (p *pass) refuse(t *attempt, c cure, why *reason.Reason) {
	if verbose := klog.FromContext(p.ctx).V(4); verbose.Enabled() {
		verbose.Info("Job stays pending", "job", t.job.Owner.NamespacedName, "class", why.Class, "reason", why.Message)
	}
	if !p.ledger.refuse(t.e, t.version, t.seen, c, why) {
		p.setAside(t.b)
	}
}
