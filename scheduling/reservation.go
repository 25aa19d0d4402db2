package scheduling

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// reservation keeps nodes and quota for a job that has quota, and has waited for
// a place for long: so that smaller jobs, which find one more easily, do not
// pass it for ever. There is one for each ClusterQueue at most.
//
// It binds the jobs that come after the reserved one in queue order. One that
// is known to end before the reserved job is expected to start may pass it, and
// any other as far as it needs neither the nodes nor the quota. The job itself
// may start anywhere.
type reservation struct {
	e       *entry
	version int
	queue   string
	// assignment is the quota that is kept.
	assignment *quota.Assignment
	nodes      []string
	// since is when it was made, until when it ends, zero if it does not by
	// itself, and planned when its nodes were chosen.
	since, until, planned time.Time
	// start is when the jobs will have ended that are in the job's way; zero if
	// nothing says when one of them will.
	start time.Time
}

const (
	// noteReserved and noteReservationOver are the reasons of events.
	noteReserved        = "Reserved"
	noteReservationOver = "ReservationOver"
	// foreseeEvery is the shortest time between two choices of the nodes of one
	// reservation.
	foreseeEvery = 30 * time.Second
)

// String says what is kept for the job.
func (r *reservation) String() string {
	expected := "when jobs end of which nothing says when"
	if !r.start.IsZero() {
		expected = "by " + r.start.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("%s reserved for it since %s, it is expected to start %s", nodesAre(r.nodes), r.since.UTC().Format(time.RFC3339), expected)
}

// nodesAre counts nodes, and names a few.
func nodesAre(nodes []string) string {
	switch {
	case len(nodes) == 1:
		return "node " + nodes[0] + " is"
	case len(nodes) <= 3:
		return fmt.Sprintf("%d nodes (%s) are", len(nodes), strings.Join(nodes, ", "))
	}
	return fmt.Sprintf("%d nodes (%s, ...) are", len(nodes), strings.Join(nodes[:3], ", "))
}

// passes says that a job need not mind a reservation. One that runs and asks for
// more comes after all that wait.
func (l *Ledger) passes(e *entry, r *reservation) bool {
	if e == r.e || (e.unadmitted() && e.before(r.e) < 0) {
		return true
	}
	now := l.clock.Now()
	end, bounded := e.ends(now)
	return bounded && !r.start.IsZero() && !end.After(r.start)
}

// reservedFrom are the nodes that are kept from a job.
func (l *Ledger) reservedFrom(e *entry) []string {
	var out []string
	for _, r := range l.reserved {
		if !l.passes(e, r) {
			out = append(out, r.nodes...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// assign asks for the quota of a job.
func (l *Ledger) assign(e *entry) (*quota.Assignment, *reason.Reason) {
	return l.ask(e, e.request(l.namespaces[e.job.Owner.Namespace]))
}

// ask asks for the quota of a job by a request of it. What is withheld for
// reservations that it passes counts as free.
func (l *Ledger) ask(e *entry, request quota.Request) (a *quota.Assignment, no *reason.Reason) {
	l.passing(e, func() bool {
		a, no = l.quota.Assign(request)
		return no == nil
	})
	return a, no
}

// look is assign without the words.
func (l *Ledger) look(e *entry) (a *quota.Assignment, no reason.Class, bar quota.Bar) {
	request := e.request(l.namespaces[e.job.Owner.Namespace])
	l.passing(e, func() bool {
		a, no, bar = l.quota.Look(request)
		return no == ""
	})
	return a, no, bar
}

// passing asks whether a job has quota, and where it has none, asks once more
// with what is free to a job that passes reservations.
func (l *Ledger) passing(e *entry, has func() bool) {
	if has() || len(l.reserved) == 0 {
		return
	}
	var passed []*reservation
	cq, _ := l.quota.ClusterQueueOf(e.queue())
	root := l.quota.Root(cq)
	for _, r := range l.reserved {
		if r.e != e && l.passes(e, r) && l.quota.Root(r.queue) == root {
			l.quota.Unwithhold(r.e.job.Owner.UID)
			passed = append(passed, r)
		}
	}
	if len(passed) > 0 {
		has()
	}
	for _, r := range passed {
		l.keep(r.e.job.Owner.UID, r.queue, r.assignment.Usage, r.assignment.Borrows > 0)
	}
}

// starved says that it is time to choose nodes for a job that has quota and no
// place: it has waited for long, and nothing is reserved in its queue, or for a
// job after it, or what is reserved for it serves no more.
func (l *Ledger) starved(e *entry) bool {
	now := l.clock.Now()
	if l.reserveAfter <= 0 || now.Sub(waitsSince(admission{job: e.job, workload: e.workload})) < l.reserveAfter || e.noReservation.after(now) {
		return false
	}
	r := l.reserved[e.spot.bucket.head.queue]
	switch {
	case r == nil:
		return true
	case r.e != e:
		return e.before(r.e) < 0
	}
	return l.serves(r, now) != nil && now.Sub(r.planned) >= foreseeEvery
}

// serves says why a reservation serves no more as it is, nil if it does.
func (l *Ledger) serves(r *reservation, now time.Time) error {
	if !r.start.IsZero() && now.After(r.start) {
		return fmt.Errorf("the jobs in its way have not ended in time")
	}
	for _, name := range r.nodes {
		if node, err := l.cache.GetNode(name); err != nil || node.Node() == nil || l.away[name] != nil {
			return fmt.Errorf("node %s is away", name)
		}
	}
	return nil
}

// reserve chooses nodes for a starved job, in the first of the choices of flavors in
// which it would find some if jobs had ended that hold capacity: as few as possible,
// those first that end first. It runs without the Ledger's lock, on the snapshot on
// which there was no plan.
func (p *pass) reserve(t *attempt, placeless []*option) {
	l, e := p.ledger, t.e
	l.mu.Lock()
	busy, reserved := l.departures(), l.reservedFrom(e)
	l.mu.Unlock()
	var nodes []string
	var last departure
	var a *quota.Assignment
	for _, o := range placeless {
		a = o.assignment
		var err error
		nodes, last, err = p.foresee(t.job, o.classes, reserved, busy)
		if err != nil {
			klog.FromContext(p.ctx).Error(err, "Choosing nodes to reserve", "job", e.job.Owner.NamespacedName)
		}
		if len(nodes) > 0 {
			break
		}
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if e.version != t.version || e.spot.bucket == nil {
		return
	}
	now := l.clock.Now()
	if len(nodes) == 0 {
		// Not even an end of all jobs would help. That is asked again later.
		e.noReservation = instantOf(now.Add(l.reserveAfter))
		if r := e.reservation; r != nil {
			l.unreserve(r)
		}
		return
	}
	r := &reservation{e: e, version: t.version, queue: a.ClusterQueue, assignment: a, nodes: nodes, since: now, planned: now}
	if l.reserveFor > 0 {
		r.until = now.Add(l.reserveFor)
	}
	if last.bounded {
		r.start = last.at
	}
	if old := e.reservation; old != nil {
		r.since, r.until = old.since, old.until
	}
	if old := l.reserved[r.queue]; old != nil {
		l.unreserve(old)
	}
	l.reserved[r.queue], e.reservation = r, r
	e.spot.bucket.head.withheld = ""
	l.keep(e.job.Owner.UID, r.queue, r.assignment.Usage, r.assignment.Borrows > 0)
	l.waits.untold.add(e)
	l.effects.Note(e.job, noteReserved, "it has waited for long: "+r.String())
	l.logger.V(2).Info("Nodes reserved", "job", e.job.Owner.NamespacedName, "nodes", nodes, "start", r.start)
	l.effects.Report()
}

// foresee finds nodes for a job, and the last of the jobs that must have ended
// until then; no nodes if they are too few even then.
func (p *pass) foresee(job *workload.Job, classes []class, reserved []string, busy []departure) (nodes []string, last departure, err error) {
	fw, snap, no, err := p.framework(classes)
	if err != nil || no != nil {
		return nil, last, err
	}
	gang, whole := gangOf(job.Owner.Name, job.Owner.UID, classes, sizes(classes)), wholeSets(job, classes)
	keepOff(&gang, reserved)
	without, err := p.planner.Without(klog.FromContext(p.ctx), snap)
	if err != nil {
		return nil, last, err
	}
	defer func() {
		if endErr := without.End(); err == nil {
			err = endErr
		}
		// The snapshot is refreshed before it is used again.
		p.fresh = false
	}()
	gone := 0
	plan := func(n int) (placement.Assignment, error) {
		for ; gone < n; gone++ {
			if err := without.Remove(busy[gone].pods); err != nil {
				return nil, err
			}
		}
		for ; gone > n; gone-- {
			if err := without.Restore(busy[gone-1].pods); err != nil {
				return nil, err
			}
		}
		if lack, err := p.planner.Lack(snap, whole); err != nil || lack != nil {
			return nil, err
		}
		a, _, err := p.planner.Plan(p.ctx, fw, snap, gang)
		return a, err
	}
	found, err := plan(len(busy))
	if err != nil || found == nil {
		return nil, last, err
	}
	// Without the first few there is no plan, without the first enough there is.
	few, enough := 0, len(busy)
	for enough-few > 1 {
		middle := (few + enough) / 2
		a, err := plan(middle)
		switch {
		case err != nil:
			return nil, last, err
		case a != nil:
			found, enough = a, middle
		default:
			few = middle
		}
	}
	for _, class := range found {
		nodes = append(nodes, class...)
	}
	slices.SortFunc(nodes, compareNodes)
	if enough == 0 {
		return nil, last, nil
	}
	return slices.Compact(nodes), busy[enough-1], nil
}

// unreserve ends a reservation. What was kept is there for others.
func (l *Ledger) unreserve(r *reservation) {
	r.e.reservation = nil
	delete(l.reserved, r.queue)
	root := l.quota.Root(r.queue)
	l.quota.Unwithhold(r.e.job.Owner.UID)
	if r.e.spot.waits {
		l.waits.untold.add(r.e)
	}
	l.released(root)
	l.roomCame()
	l.effects.Report()
}

// tendReservations ends those that have lasted for long enough, and has the
// jobs tried that are starved, or whose nodes are to be chosen anew.
func (l *Ledger) tendReservations() {
	if l.reserveAfter <= 0 {
		return
	}
	now := l.clock.Now()
	for _, r := range l.reserved {
		switch {
		case !r.until.IsZero() && !now.Before(r.until):
			r.e.noReservation = instantOf(now.Add(l.reserveAfter))
			l.effects.Note(r.e.job, noteReservationOver, fmt.Sprintf("%s no more reserved for it: it did not start within %s", nodesAre(r.nodes), l.reserveFor))
			l.unreserve(r)
		case l.waits.heads[r.queue] != r.e.spot.bucket.head || r.e.spot.bucket.cure.wait == behind:
			l.unreserve(r)
		}
	}
	for _, h := range l.waits.heads {
		for i, b := range h.placeless.items {
			if i == exactReasons {
				break
			}
			if b.why != nil && b.why.Class == reason.NoPlacement && l.starved(b.jobs.items[0]) {
				l.waits.put(b, cure{}, now)
				l.effects.Admit()
				break
			}
		}
	}
}
