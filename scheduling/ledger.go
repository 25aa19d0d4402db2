package scheduling

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/utils/clock"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// Ledger is the process-wide record of charges and slots: one for all
// profiles. Its lock may be taken under the scheduling queue's lock and may
// take the scheduler cache's lock, never the queue's: waking a pod is handed
// to the effects.
type Ledger struct {
	clock   clock.PassiveClock
	effects Effects
	logger  klog.Logger

	mu    sync.Mutex
	cache internalcache.Cache
	quota *quota.Tree
	// jobs by the UID of their owner.
	jobs map[types.UID]*entry
	// podOwners maps the UID in a pod's label (its JobSet's) to the job; an
	// empty value marks an owner that Muster does not manage.
	podOwners map[types.UID]types.UID
	// sitters are the jobs that pods have a slot of, by the pods' UIDs.
	sitters map[types.UID]*entry
	// strays are gated pods whose owner is not known yet, by that owner's UID.
	strays map[types.UID]map[types.UID]*corev1.Pod
	// free are the pods not yet on nodes that were let go with their group, by the
	// group's UID.
	free       map[types.UID]map[types.UID]struct{}
	groupsTold groupsTold
	// lingering are the jobs that are being stopped, as of the last tick.
	lingering map[types.UID]*lingering
	nodes     nodeSizes
	// heldFor is what jobs are told that find no nodes; see noteHeld.
	heldFor string
	// namespaces are the labels of each namespace.
	namespaces map[string]map[string]string
	// waits is the jobs that wait, kept by enqueue.
	waits waitlist
	// growing are the admitted jobs that ask for more pods than they have.
	growing map[types.UID]*entry
	// kept are the jobs that are pods of a keeper, by it.
	kept map[workload.Keeper]map[types.UID]struct{}
	// away are the nodes that do not take pods for now; nodeMoves counts how
	// often one went away or came back.
	away      map[string]*absence
	nodeMoves int64
	// overfull are the nodes that have more on them than fits, as far as that
	// could not be cured, and why.
	overfull map[string]*breach
	// intrusions counts the pods that others put onto nodes; looked is how many
	// the snapshot shows on which jobs are planned.
	intrusions, looked atomic.Int64
	// epoch counts the events after which a lost slot may find a node.
	epoch int64
	// restored is set once the state of the API has been read at start; no
	// job is admitted before.
	restored bool
	// unread: jobs that wait are being read for the first time, see firstReads.
	unread bool
	// readings are the jobs that are being read.
	readings map[*reading]struct{}
	// early are the pods that left their nodes while the admitted jobs were
	// being read, by their owner's UID: how they ended is asked once it is known
	// whose they were. It is nil at other times.
	early map[types.UID][]*corev1.Pod
	// heardNodes and heardNamespaces are what the scheduler's informers have
	// told; they have locks of their own.
	heardNodes, heardNamespaces *heard
	// devices knows behind which extended resources there are devices; nil without
	// dynamic resource allocation.
	devices fwk.SharedDRAManager
	// claims are the jobs that have one.
	claims map[types.UID]*entry
	// queueHints are what a LocalQueue, or a ClusterQueue, which has no namespace, says
	// of its jobs.
	queueHints map[types.NamespacedName]workload.QueueHints
	// gpuNodes is what the agents say of GPUs; usesAt is when it was last looked at for
	// all jobs.
	gpuNodes *gpuNodes
	usesAt   time.Time
	shown    shownNodes
	// nodeResized is told of a node that has other numbers of GPUs than before because
	// of what agents say. It is set before the scheduler runs.
	nodeResized func(old, node *corev1.Node)
	// sees has the planner know what is asked for: by each job that is admitted
	// or taken over, and by the first of those that are alike and wait for room. It
	// is called under the Ledger's lock.
	sees func(placement.Gang)
	// searchRest is until when no search for victims is made again.
	searchRest time.Time
	// rival is why nothing may be admitted at all; nil normally.
	rival *reason.Reason
	// follows: Kueue decides by the configuration; topologies are the flavors
	// for whose pods it chooses domains.
	follows    bool
	topologies map[string]struct{}
	// reserved are the reservations, by ClusterQueue. reserveAfter and reserveFor
	// are set before the scheduler runs: see Timing.
	reserved                 map[string]*reservation
	reserveAfter, reserveFor time.Duration
	// holdUnqueued: GPU pods without a queue are not let in. It is set before
	// the scheduler runs.
	holdUnqueued bool
	// claimsGPU says of a pod that it may get GPUs by what it claims. It is called under
	// the scheduling queue's lock.
	claimsGPU func(*corev1.Pod) bool
}

// Effects is what the Ledger asks of the world. The calls must not block and
// must not call back into the Ledger: they are made under its lock.
type Effects interface {
	// Activate wakes pods that may pass the gate now.
	Activate(pods []*corev1.Pod)
	// Return sends pods that wait at Permit back to the queue.
	Return(pods []types.UID, message string)
	// Admit asks for an admission pass.
	Admit()
	// Sync asks for the job to be reconciled with the API.
	Sync(key JobKey)
	// SyncLate asks for the same, a little later, so that more of what is going on
	// is reconciled at once.
	SyncLate(key JobKey)
	// Holds says whether a job holds capacity from now on.
	Holds(owner types.UID, holds bool)
	// Settle asks how the pod that has gone from its slot ended.
	Settle(owner types.UID, pod *corev1.Pod)
	// Report asks for the status of queues and waiting jobs to be written.
	Report()
	// Note asks for an event on the owner of a job.
	Note(job *workload.Job, why, message string)
	// Write asks for an admission to be written to the job's Workload: a new one,
	// or one whose nodes have changed.
	Write(owner types.UID)
}

// JobKey names one owner object; another one of the same name has another UID.
type JobKey struct {
	Group, Kind string
	types.NamespacedName
	UID types.UID
}

// NewLedger returns an empty Ledger. It must be attached to the scheduler's
// cache before anything is admitted.
func NewLedger(logger klog.Logger, c clock.PassiveClock, effects Effects) *Ledger {
	l := &Ledger{
		clock: c, effects: effects, logger: logger,
		quota:      quota.New(),
		jobs:       map[types.UID]*entry{},
		podOwners:  map[types.UID]types.UID{},
		sitters:    map[types.UID]*entry{},
		strays:     map[types.UID]map[types.UID]*corev1.Pod{},
		free:       map[types.UID]map[types.UID]struct{}{},
		nodes:      nodeSizes{gpus: map[string]int64{}},
		namespaces: map[string]map[string]string{},
		growing:    map[types.UID]*entry{},
		readings:   map[*reading]struct{}{},
		kept:       map[workload.Keeper]map[types.UID]struct{}{},
		away:       map[string]*absence{},
		overfull:   map[string]*breach{},
		topologies: map[string]struct{}{},
		reserved:   map[string]*reservation{},
		waits:      newWaitlist(),
		claims:     map[types.UID]*entry{},

		queueHints: map[types.NamespacedName]workload.QueueHints{},
		gpuNodes:   newGPUNodes(c),
		shown:      shownNodes{nodes: map[string]shownNode{}},

		nodeResized: func(_, _ *corev1.Node) {},
		sees:        func(placement.Gang) {},
		claimsGPU:   func(*corev1.Pod) bool { return false },
		heardNodes:  newHeard(), heardNamespaces: newHeard(),
	}
	l.gpuNodes.changed = append(l.gpuNodes.changed, l.reshow)
	return l
}

// UpdateQuota changes the quota tree under the lock and asks for a pass.
func (l *Ledger) UpdateQuota(change func(*quota.Tree)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l.quota)
	l.claimsRefused()
	l.touch()
}

// SetNamespace records the labels of a namespace.
func (l *Ledger) SetNamespace(name string, labels map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.namespaces[name] = labels
	l.claimsRefused()
	l.touch()
}

// SetRival stops all admissions for the reason given, or allows them (nil). It
// reports whether that is news: then other steps may be due for every job.
func (l *Ledger) SetRival(why *reason.Reason) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if (why == nil) == (l.rival == nil) || l.follows {
		return false
	}
	l.rival = why
	if why != nil {
		l.claimsEnd(why.Message)
	} else {
		// What Kueue admitted is written again with the nodes.
		for e := range l.waits.charged {
			if e.state == Admitted {
				e.replanned++
				l.effects.Write(e.job.Owner.UID)
			}
		}
	}
	l.waits.addAll()
	l.touch()
	return true
}

// Restored says that the jobs which the API knew as admitted are all in.
func (l *Ledger) Restored() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.restored, l.early = true, nil
	l.touch()
}

// restoring says that the jobs which the API knows as admitted are being read.
func (l *Ledger) restoring() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.early == nil {
		l.early = map[types.UID][]*corev1.Pod{}
	}
}

func (l *Ledger) isRestored() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.restored
}

// next is the bucket whose first job is to be tried now, nil if there is none.
func (l *Ledger) next() *bucket {
	if !l.admits() || len(l.waits.turn.items) == 0 {
		return nil
	}
	return l.first(l.waits.turn.items[0]).due.items[0]
}

// startable says that nothing but quota and nodes stands against the job: it
// can be read, and has been as it is now, has a Workload to write to, and no pod of an earlier life is
// still on a node. One that was created running is suspended first: it is
// resumed with what its flavors inject, and its pods are made anew.
func (e *entry) startable() bool {
	return e.workload != nil && e.blocked == nil && !e.stale && !e.ended && !e.occupied() && (e.job.Suspended || e.job.Gated)
}

// refuse records why a job cannot start, and with it its bucket, and what can
// cure that. seen is what had happened when the try began to look. It reports
// whether that settles the bucket for now: not if the job changed while it was
// tried, or if something has happened since that may be the cure.
func (l *Ledger) refuse(e *entry, version int, seen moves, c cure, why *reason.Reason) bool {
	w := &l.waits
	b := e.spot.bucket
	if e.version != version || b == nil {
		return false
	}
	if b.why == nil || *b.why != *why {
		if b.why == nil || b.why.Class != why.Class {
			w.untold.addBucket(b)
		}
		b.why = why
		l.effects.Report()
	}
	b.whyUsed = w.seen.quota
	now := l.clock.Now()
	missed := c.wait == forRoom && seen.room != w.seen.room
	if seen.queues != w.seen.queues || seen.quota != w.seen.quota || (missed && !b.rests(now)) {
		return false
	}
	if stepsOut(why.Class) {
		w.stepOut(b, now)
	}
	c.root = l.quota.Root(c.queue)
	w.put(b, c, now)
	b.missed = missed
	return true
}

// charge commits a plan, which has the nodes of each pod set: quota, slots and
// holds, in one step. version guards against a job that changed while it was planned.
func (l *Ledger) charge(e *entry, version int, want *quota.Assignment, plan placement.Assignment, classes []class) error {
	if e.version != version || !e.unadmitted() || !e.startable() {
		return fmt.Errorf("%s changed while it was planned", e)
	}
	a, no := l.assignIn(e, want)
	if no != nil {
		return fmt.Errorf("quota changed while %s was planned: %w", e, no)
	}
	if err := l.commit(e, a, plan, classes); err != nil {
		return err
	}
	l.sees(wholeSets(e.job, classes))
	return nil
}

// commit charges a job and holds its slots on the nodes given.
func (l *Ledger) commit(e *entry, a *quota.Assignment, plan placement.Assignment, classes []class) error {
	e.assignment, e.close = a, nil
	l.unseat(e)
	for i, ps := range e.job.PodSets {
		e.sets = append(e.sets, newSet(ps, plan[i]))
	}
	l.setTolerations(e)
	// A job that ran before may have less to do than its pod sets say.
	l.endSlots(e)
	l.dropClaim(e)
	err := l.holdAll(e, classes)
	if err == nil && !l.stillFits(e.nodes()) {
		err = fmt.Errorf("the nodes that were planned for %s have other pods now", e)
	}
	if err != nil {
		l.dropHolds(e)
		e.sets, e.assignment = nil, nil
		return err
	}
	l.place(e)
	l.quota.Charge(e.job.Owner.UID, a.ClusterQueue, a.Usage, e.holder(l.clock.Now()))
	e.move(evPlanned)
	e.claimsFailed, e.noClaimBefore = 0, 0
	e.lateSince, e.why, e.eviction, e.stopSent, e.resumed = 0, nil, nil, false, false
	l.enqueue(e)
	l.taken(a)
	l.podsCame(e.gpus() > 0)
	l.cured(func(b *bucket) bool { return b.needsOthers }, forRoom)
	l.effects.Report()
	return nil
}
