package scheduling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/metrics"
	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/workload"
)

// Cycle admits jobs on the scheduler's goroutine, between two pods. It
// replaces the scheduler's NextEntity and wraps its FailureHandler.
type Cycle struct {
	ledger  *Ledger
	planner *placement.Planner
	// budget bounds one pass; it is checked between jobs.
	budget time.Duration
	// wake has room for one signal: there may be jobs to admit.
	wake chan struct{}
	// lead is run once, when the scheduler first asks for work: the process
	// leads from then on.
	lead func(ctx context.Context)
	// write hands an admission over to be written to the API.
	write func(owner types.UID)

	sched *scheduler.Scheduler
	pods  chan popped
	once  sync.Once
}

type popped struct {
	entity framework.QueuedEntityInfo
	err    error
}

// NewCycle returns a Cycle that plans for the Ledger's jobs. budget is how
// long one pass may keep pods waiting.
func NewCycle(l *Ledger, p *placement.Planner, budget time.Duration) *Cycle {
	return &Cycle{ledger: l, planner: p, budget: budget, wake: make(chan struct{}, 1), pods: make(chan popped)}
}

// Wake asks for an admission pass. It never blocks.
func (c *Cycle) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Install puts the Cycle into the scheduler, which must not be running yet.
// lead runs once this process leads; write is called for each admission.
func (c *Cycle) Install(ctx context.Context, sched *scheduler.Scheduler, lead func(context.Context), write func(types.UID)) {
	c.sched, c.lead, c.write = sched, lead, write
	sched.Cache = c.ledger.Attach(sched.Cache)
	pop := sched.NextEntity
	sched.NextEntity = func(logger klog.Logger) (framework.QueuedEntityInfo, error) {
		c.once.Do(func() {
			c.lead(ctx)
			go c.feed(ctx, logger, pop)
		})
		return c.next(ctx, logger)
	}
	sched.FailureHandler = c.failureHandler(sched.FailureHandler)
}

// feed pops pods so that next can wait for a pod and for admission work at
// the same time. At most one popped pod waits.
func (c *Cycle) feed(ctx context.Context, logger klog.Logger, pop func(klog.Logger) (framework.QueuedEntityInfo, error)) {
	for {
		e, err := pop(logger)
		select {
		case c.pods <- popped{e, err}:
		case <-ctx.Done():
			return
		}
		if e == nil && err == nil {
			// The queue is closed.
			return
		}
	}
}

func (c *Cycle) next(ctx context.Context, logger klog.Logger) (framework.QueuedEntityInfo, error) {
	for {
		select {
		case <-c.wake:
			// One pass, then one pod: neither starves the other.
			if c.Pass(ctx) {
				c.Wake()
			}
			select {
			case p := <-c.pods:
				return c.take(p)
			default:
				continue
			}
		case p := <-c.pods:
			return c.take(p)
		case <-ctx.Done():
			// The scheduler stops when it is given nothing.
			return nil, nil
		}
	}
}

func (c *Cycle) take(p popped) (framework.QueuedEntityInfo, error) {
	if q, ok := p.entity.(*framework.QueuedPodInfo); ok && q != nil && q.Pod != nil {
		c.ledger.Take(q.Pod)
	}
	return p.entity, p.err
}

// Pass tries the jobs that wait, in queue order, until all were tried or the
// budget is spent; more reports that some are left. It must run on the
// scheduling goroutine.
func (c *Cycle) Pass(ctx context.Context) (more bool) {
	start := c.ledger.clock.Now()
	defer func() { metrics.PassSeconds.Observe(c.ledger.clock.Since(start).Seconds()) }()

	c.ledger.mu.Lock()
	lost, heads, epoch := c.ledger.lostSlots(), c.ledger.heads(), c.ledger.epoch
	c.ledger.mu.Unlock()
	if len(lost)+len(heads) == 0 {
		return false
	}
	fresh := false
	for i, e := range append(lost, heads...) {
		if i > 0 && c.ledger.clock.Since(start) > c.budget {
			return true
		}
		if !fresh {
			if err := c.refresh(ctx); err != nil {
				klog.FromContext(ctx).Error(err, "Refreshing the snapshot for an admission pass")
				return true
			}
			fresh = true
		}
		var changed bool
		if i < len(lost) {
			changed = c.replace(ctx, e, epoch)
		} else {
			changed = c.try(ctx, e, epoch)
		}
		if changed {
			fresh = false
		}
	}
	return false
}

// refresh brings the snapshot, which all profiles share, up to the cache.
func (c *Cycle) refresh(ctx context.Context) error {
	for _, fw := range c.sched.Profiles {
		snap, err := snapshotOf(fw)
		if err != nil {
			return err
		}
		return c.sched.Cache.UpdateSnapshot(klog.FromContext(ctx), snap)
	}
	return errors.New("the scheduler has no profile")
}

func snapshotOf(fw framework.Framework) (*internalcache.Snapshot, error) {
	snap, ok := fw.SnapshotSharedLister().(*internalcache.Snapshot)
	if !ok {
		return nil, fmt.Errorf("profile %s has a snapshot of type %T", fw.ProfileName(), fw.SnapshotSharedLister())
	}
	return snap, nil
}

// try admits one job, whole, or records why not. It reports whether holds
// were taken.
func (c *Cycle) try(ctx context.Context, e *entry, epoch int64) bool {
	l := c.ledger
	logger := klog.FromContext(ctx)

	l.mu.Lock()
	version, job := e.version, e.job
	if e.state != Pending || !e.startable() {
		l.mu.Unlock()
		return false
	}
	assignment, no := l.quota.Assign(e.request(l.namespaces[job.Owner.Namespace]))
	if no != nil {
		l.refuse(e, version, epoch, no)
		l.mu.Unlock()
		logger.V(4).Info("Job stays pending", "job", klog.KRef(job.Owner.Namespace, job.Owner.Name), "class", no.Class, "reason", no.Message)
		return false
	}
	protos := prototypes(e, assignment, l.quota)
	l.mu.Unlock()

	fw, snap, no, err := c.framework(protos)
	var plan placement.Assignment
	if err == nil && no == nil {
		started := l.clock.Now()
		plan, no, err = c.planner.Plan(ctx, fw, snap, gangOf(job.Owner.Name, job.Owner.UID, protos, podCounts(job)))
		metrics.PlanSeconds.Observe(l.clock.Since(started).Seconds())
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		logger.Error(err, "Planning a job", "job", klog.KRef(job.Owner.Namespace, job.Owner.Name))
		l.refuse(e, version, epoch, reason.New(reason.NoPlacement, "planning failed: %v", err))
		return false
	case no != nil:
		l.refuse(e, version, epoch, no)
		logger.V(4).Info("Job stays pending", "job", klog.KRef(job.Owner.Namespace, job.Owner.Name), "class", no.Class, "reason", no.Message)
		return false
	}
	if err := l.charge(e, version, assignment, plan, protos); err != nil {
		logger.V(2).Info("Plan not committed, it will be made again", "job", klog.KRef(job.Owner.Namespace, job.Owner.Name), "why", err.Error())
		l.touch()
		return false
	}
	logger.V(2).Info("Job planned and held", "job", klog.KRef(job.Owner.Namespace, job.Owner.Name), "queue", job.Queue, "nodes", e.nodes())
	c.write(job.Owner.UID)
	return true
}

// replace finds new nodes for the slots of an admitted job that lost theirs.
func (c *Cycle) replace(ctx context.Context, e *entry, epoch int64) bool {
	l := c.ledger
	logger := klog.FromContext(ctx)

	l.mu.Lock()
	version, job := e.version, e.job
	if e.state != Admitted || e.assignment == nil {
		l.mu.Unlock()
		return false
	}
	protos := prototypes(e, e.assignment, l.quota)
	lost := make([][]*slot, len(e.sets))
	missing := make([]int, len(e.sets))
	kept := make([][]string, len(e.sets))
	for i, set := range e.sets {
		for _, s := range set.slots {
			switch {
			case s.lost():
				lost[i] = append(lost[i], s)
			case !s.done && !slices.Contains(kept[i], s.node):
				kept[i] = append(kept[i], s.node)
			}
		}
		missing[i] = len(lost[i])
	}
	l.mu.Unlock()

	fw, snap, no, err := c.framework(protos)
	var plan placement.Assignment
	if err == nil && no == nil {
		gang := gangOf(job.Owner.Name, job.Owner.UID, protos, missing)
		for i := range gang.Classes {
			gang.Classes[i].Fixed = kept[i]
		}
		plan, no, err = c.planner.Plan(ctx, fw, snap, gang)
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if e.version != version || e.state != Admitted {
		l.touch()
		return false
	}
	e.tried, e.why = epoch, no
	if err != nil || no != nil {
		l.effects.Report()
		logger.V(2).Info("No new node for a part of a gang", "job", klog.KRef(job.Owner.Namespace, job.Owner.Name), "reason", no.String(), "err", err)
		return false
	}
	for i := range lost {
		for j, s := range lost[i] {
			if s.lost() {
				e.moveTo(s, plan[i][j])
			}
		}
	}
	if err := l.holdAll(e, protos); err != nil {
		logger.Error(err, "Holding a part of a gang again")
	}
	e.version++
	logger.V(2).Info("Part of a gang planned anew", "job", klog.KRef(job.Owner.Namespace, job.Owner.Name), "nodes", e.nodes())
	c.write(job.Owner.UID)
	return true
}

// framework is the profile that the job's pods name.
func (c *Cycle) framework(protos []*corev1.Pod) (framework.Framework, *internalcache.Snapshot, *reason.Reason, error) {
	if len(protos) == 0 {
		return nil, nil, reason.New(reason.Misconfigured, "the job has no pods"), nil
	}
	name := protos[0].Spec.SchedulerName
	fw := c.sched.Profiles[name]
	if fw == nil {
		return nil, nil, reason.New(reason.ForeignScheduler, "schedulerName %q is not served by Muster", name), nil
	}
	snap, err := snapshotOf(fw)
	return fw, snap, nil, err
}

func podCounts(job *workload.Job) []int {
	out := make([]int, len(job.PodSets))
	for i := range job.PodSets {
		out[i] = int(job.PodSets[i].Count)
	}
	return out
}

// gangOf describes what is to be planned: counts[i] pods of each prototype.
func gangOf(name string, uid types.UID, protos []*corev1.Pod, counts []int) placement.Gang {
	g := placement.Gang{Name: name, UID: uid}
	for i, p := range protos {
		g.Classes = append(g.Classes, placement.Class{Name: p.Name, Pod: p, Count: counts[i]})
	}
	return g
}
