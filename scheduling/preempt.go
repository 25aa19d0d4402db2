package scheduling

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload"
)

// fruitless is what a search counts for at least whose victims could not be
// stopped.
const fruitless = time.Millisecond

// attempt is the try to start a job, as far as it has come.
type attempt struct {
	b *bucket
	e *entry
	// job is the entry's as of version: it may be read again meanwhile.
	job     *workload.Job
	version int
	seen    moves
	// options are the choices of flavors that were tried. For the first searched of
	// them jobs to stop were looked for. detours are the others, nil where there is no
	// choice.
	options  []*option
	searched int
	detours  *detours
	// sought is how long jobs to stop were looked for, hasSought says that they were.
	sought    time.Duration
	hasSought bool
	// took is how long it was planned for, final says that other flavors would not
	// help.
	took  time.Duration
	final bool
	// later: jobs to stop for it are to be looked for, and could not be yet.
	later bool
	// inPart is what can let the job start with fewer pods, nil where that was not
	// tried. unfinished: a plan for that has ended before all was tried.
	inPart     *cure
	unfinished bool
}

// makeRoom tries to have jobs stopped for one that was refused in a choice of flavors.
// done: it has a claim now, or is tried again at once; waits: it may have one when
// another job of its ClusterQueue has none any more. The Ledger's lock must not be held.
func (p *pass) makeRoom(t *attempt, o *option) (done, waits bool) {
	if o.why != nil && (o.why.Class != reason.NoPlacement || o.unfinished) {
		return false, false
	}
	l := p.ledger
	l.mu.Lock()
	s, waits := p.search(t, o)
	if s != nil && !o.fits {
		if o.quota == nil {
			_, o.quota = l.assign(t.e)
		}
		s.classes = prototypes(t.e, s.assignment, l.quota)
	}
	l.mu.Unlock()
	if s == nil {
		return false, waits
	}
	return p.stopFor(s), false
}

// stopFor looks for the jobs to stop, and has them stopped. The results are
// makeRoom's.
func (p *pass) stopFor(s *search) (done bool) {
	l, t := p.ledger, s.attempt
	started := l.clock.Now()
	s.ends = started.Add(searchFor)
	found, err := s.run()
	took := l.clock.Since(started)
	t.took += took

	l.mu.Lock()
	defer l.mu.Unlock()
	done = found && err == nil && s.commit()
	if found && !done {
		took = max(took, fruitless)
	}
	t.hasSought, t.sought = true, t.sought+took
	l.searched(t.b, s.seen, s.protected, t.sought, done)
	switch {
	case err != nil:
		klog.FromContext(p.ctx).Error(err, "Looking for jobs to stop for another one", "job", t.job.Owner.NamespacedName)
	case done:
		p.fresh = false
		return true
	case found:
		// What it looked at has changed, or a place cannot be claimed: then that
		// must not be tried all the time.
		l.searchLater(t.b)
		p.setAside(t.b)
		return true
	default:
		t.b.noteVain(s.option, s.inVain())
	}
	return false
}

// search is the search for a job that was refused in a choice of flavors, nil if none is
// to be made now. waits: that is so because another job of its ClusterQueue has a claim.
func (p *pass) search(t *attempt, o *option) (s *search, waits bool) {
	l := p.ledger
	now := l.clock.Now()
	if t.e.version != t.version || t.e.state != Pending {
		return nil, false
	}
	queue := t.b.head.queue
	over := l.overtaken(t.e, queue)
	if over == nil && !l.quota.MayPreempt(queue) {
		t.b.keepVain(nil)
		return nil, false
	}
	waits = over == nil && l.claimOf(queue) != nil
	if t.e.noClaimBefore.after(now) || waits || (!t.hasSought && l.searchRests(t.b, now)) {
		l.searchLater(t.b)
		t.later = !t.e.noClaimBefore.after(now)
		return nil, waits
	}
	return p.newSearch(t, o, over), false
}

// newSearch is a search with all who may be stopped; over is the job of the ClusterQueue
// whose claim is taken over, nil if there is none. It is nil if nobody can be. The Ledger's
// lock is held.
func (p *pass) newSearch(t *attempt, o *option, over *entry) *search {
	l, now := p.ledger, p.ledger.clock.Now()
	s := &search{
		pass: p, attempt: t, option: o, seen: t.seen, assignment: o.assignment, classes: o.classes,
		going: map[types.UID]bool{}, leaving: map[types.UID][]*corev1.Pod{}, reserved: l.reservedFrom(t.e),
	}
	if over != nil {
		defer l.liftClaim(over)()
		if !s.overtake(over) {
			return nil
		}
	}
	for e := range l.waits.charged {
		if e.state != Leaving {
			continue
		}
		// Quota and room must be of one mind about who is as good as gone.
		if l.stays(e, t.e, now) {
			l.quota.Stay(e.job.Owner.UID)
			continue
		}
		l.quota.Leave(e.job.Owner.UID)
		s.leaving[e.job.Owner.UID] = e.occupying()
		s.freed += e.gpus()
		s.stopped = s.stopped || (e.eviction != nil && e.eviction.reason == kueue.WorkloadEvictedByPreemption)
	}
	s.quota = l.quota.Preemption(t.e.request(l.namespaces[t.e.job.Owner.Namespace]), s.assignment)
	candidates := s.quota.Candidates()
	for _, c := range candidates {
		e := l.jobs[c.ID]
		if e == nil || (e.state != Admitted && e.state != Admitting) {
			continue
		}
		use := l.useOf(e, now)
		idle := l.reclaimable(e, use, now)
		if until := l.protectedUntil(e, c.Reserved); now.Before(until) && !(idle && l.idlePolicy(e).EvictWhenNeeded) {
			if s.protected.IsZero() || until.Before(s.protected) {
				s.protected = until
			}
			continue
		}
		s.freed += e.gpus()
		s.order = append(s.order, victim{
			Candidate: c, e: e, version: e.version, pods: e.occupying(),
			idle: idle, use: use, lost: e.lostWork(c.Reserved, now),
		})
	}
	sortVictims(s.order, s.quota.ByShares())
	return s
}

// commit stops the victims, if all is still as it was when they were chosen,
// and reports whether the job has its claim. The Ledger's lock is held.
func (s *search) commit() bool {
	l, e := s.ledger, s.e
	if e.version != s.version || e.state != Pending || !e.startable() || !s.mayClaim() {
		return false
	}
	if s.over != nil {
		defer l.liftClaim(s.over)()
	}
	request := e.request(l.namespaces[e.job.Owner.Namespace])
	a, _ := l.assignIn(e, s.assignment)
	if a == nil {
		return false
	}
	now := l.quota.Preemption(request, a)
	gone := map[types.UID][]*corev1.Pod{}
	for uid, pods := range s.leaving {
		if o := l.jobs[uid]; o != nil && o.state == Leaving {
			gone[uid] = pods
		}
	}
	var victims []victim
	var ids []types.UID
	for _, v := range s.order {
		if !s.going[v.ID] {
			continue
		}
		if l.jobs[v.ID] != v.e || v.e.version != v.version {
			return false
		}
		victims, ids, gone[v.ID] = append(victims, v), append(ids, v.ID), v.pods
	}
	if !now.RemoveAll(ids) || !now.Fits() {
		return false
	}
	if s.over != nil {
		l.handOver(s.over, e)
	}
	if err := l.promise(e, a, claimHolds(s.classes, s.plan), victims, gone); err != nil {
		l.logger.Error(err, "Claiming what jobs would leave", "job", e.job.Owner.NamespacedName)
		return false
	}
	l.logger.V(2).Info("Jobs are stopped for another one", "job", e.job.Owner.NamespacedName, "victims", len(victims), "nodes", e.claimedNodes())
	return true
}
