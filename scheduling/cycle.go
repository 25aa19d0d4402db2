package scheduling

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/placement"
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

	sched *scheduler.Scheduler
	pods  chan popped
	// questions are run on the scheduling goroutine, between two pods.
	questions chan func(context.Context)
	// podWaits says that a popped pod waits.
	podWaits atomic.Bool
	once     sync.Once
	// measured is when the metrics of free GPUs were last told.
	measured time.Time
}

type popped struct {
	entity framework.QueuedEntityInfo
	err    error
}

// NewCycle returns a Cycle that plans for the Ledger's jobs. budget is how
// long one pass may keep pods waiting.
func NewCycle(l *Ledger, p *placement.Planner, budget time.Duration) *Cycle {
	l.sees = p.Mix().Observe
	return &Cycle{ledger: l, planner: p, budget: budget, wake: make(chan struct{}, 1), pods: make(chan popped), questions: make(chan func(context.Context))}
}

// Wake asks for an admission pass. It never blocks.
func (c *Cycle) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// leadersQueue is the scheduling queue, which the scheduler closes when it may
// not schedule any more: when it is to end, and when it has lost its lease. In
// the second case the process lives on for seconds, while another leads.
type leadersQueue struct {
	internalqueue.SchedulingQueue
	stop context.CancelFunc
}

// Close ends all that acts only while this process leads.
func (q leadersQueue) Close() {
	q.stop()
	q.SchedulingQueue.Close()
}

// Install puts the Cycle into the scheduler, which must not be running yet.
// lead runs once this process leads, and its context ends when it leads no
// more.
func (c *Cycle) Install(ctx context.Context, sched *scheduler.Scheduler, lead func(context.Context)) {
	c.sched, c.lead = sched, lead
	ctx, stop := context.WithCancel(ctx)
	sched.SchedulingQueue = leadersQueue{sched.SchedulingQueue, stop}
	sched.Cache = c.ledger.Attach(sched.Cache)
	c.ledger.nodeResized = func(old, node *corev1.Node) {
		logger := klog.FromContext(ctx)
		for _, event := range framework.NodeSchedulingPropertiesChange(node, old) {
			sched.SchedulingQueue.MoveAllToActiveOrBackoffQueue(logger, event, old, node, nil)
		}
	}
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
		c.podWaits.Store(true)
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
		case answer := <-c.questions:
			answer(ctx)
		case <-ctx.Done():
			// The scheduler stops when it is given nothing.
			return nil, nil
		}
	}
}

func (c *Cycle) take(p popped) (framework.QueuedEntityInfo, error) {
	c.podWaits.Store(false)
	if q, ok := p.entity.(*framework.QueuedPodInfo); ok && q != nil && q.Pod != nil {
		c.ledger.Take(q.Pod)
	}
	return p.entity, p.err
}

// refresh brings the snapshot, which all profiles share, up to the cache.
func (c *Cycle) refresh(ctx context.Context) error {
	snap, err := c.snapshot()
	if err != nil {
		return err
	}
	c.ledger.looked.Store(c.ledger.intrusions.Load())
	return c.sched.Cache.UpdateSnapshot(klog.FromContext(ctx), snap)
}

func (c *Cycle) snapshot() (*internalcache.Snapshot, error) {
	for _, fw := range c.sched.Profiles {
		return snapshotOf(fw)
	}
	return nil, errors.New("the scheduler has no profile")
}

func snapshotOf(fw framework.Framework) (*internalcache.Snapshot, error) {
	snap, ok := fw.SnapshotSharedLister().(*internalcache.Snapshot)
	if !ok {
		return nil, fmt.Errorf("profile %s has a snapshot of type %T", fw.ProfileName(), fw.SnapshotSharedLister())
	}
	return snap, nil
}

// framework is the profile that the job's pods name.
func (c *Cycle) framework(classes []class) (framework.Framework, *internalcache.Snapshot, *reason.Reason, error) {
	if len(classes) == 0 {
		return nil, nil, reason.New(reason.Misconfigured, "the job has no pods"), nil
	}
	name := classes[0].pod.Spec.SchedulerName
	fw := c.sched.Profiles[name]
	if fw == nil {
		return nil, nil, reason.New(reason.ForeignScheduler, "schedulerName %q is not served by Muster", name), nil
	}
	snap, err := snapshotOf(fw)
	return fw, snap, nil, err
}
