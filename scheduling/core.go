package scheduling

import (
	"context"
	"fmt"
	"time"

	corelisters "k8s.io/client-go/listers/core/v1"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/workload"
)

// restoreBound is how long the scheduling goroutine waits, once, for the
// admitted jobs to be read from the API before it schedules other pods.
const restoreBound = 30 * time.Second

// Config is what a Core is built from.
type Config struct {
	// SchedulerNames are the profiles of this process.
	SchedulerNames []string
	Timing         Timing
	// PassBudget is how long one admission pass may keep pods waiting.
	PassBudget time.Duration
	Clock      clock.WithTicker
	// Cache and Client reach the API: the Cache for Kueue's objects and the
	// jobs, the Client for writes and for reads that must be current.
	Cache  cache.Cache
	Client client.Client
}

// Core is the Ledger with all that moves it, ready to be put into one
// scheduler.
type Core struct {
	Ledger *Ledger

	config  Config
	effects *asyncEffects
	cycle   *Cycle
	jobs    *Jobs
	nodes   corelisters.NodeLister
}

// NewCore returns a Core that does nothing until it is installed.
func NewCore(ctx context.Context, c Config) *Core {
	effects := newEffects()
	ledger := NewLedger(klog.FromContext(ctx), c.Clock, effects)
	cycle := NewCycle(ledger, placement.NewPlanner(workload.IsGPU), c.PassBudget)
	effects.admit = cycle.Wake
	kinds := map[schema.GroupKind]workload.Kind{}
	for _, k := range workload.Kinds(workload.Options{SchedulerNames: sets.New(c.SchedulerNames...)}) {
		kinds[k.GroupVersionKind().GroupKind()] = k
	}
	return &Core{
		Ledger: ledger, config: c, effects: effects, cycle: cycle,
		jobs: &Jobs{
			ledger: ledger, effects: effects, clock: c.Clock, reader: c.Cache, client: c.Client, kinds: kinds, timing: c.Timing,
			writes: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](20*time.Millisecond, 30*time.Second)),
		},
	}
}

// Install puts the Core into a scheduler that is not running yet.
func (c *Core) Install(ctx context.Context, sched *scheduler.Scheduler, handle fwk.Handle, f informers.SharedInformerFactory, recorder events.EventRecorder) error {
	c.jobs.recorder = recorder
	c.nodes = f.Core().V1().Nodes().Lister()
	if err := watchCluster(c.Ledger, f); err != nil {
		return err
	}
	// What a job owns is watched from the start, so that a standby is warm.
	go func() {
		if err := c.config.Cache.Start(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "The cache of queues and jobs has stopped")
		}
	}()
	watched := make(chan struct{})
	go c.watchJobs(ctx, watched)
	c.cycle.Install(ctx, sched, func(ctx context.Context) { c.lead(ctx, watched) }, c.jobs.writes.Add)
	go c.effects.run(ctx, handle)
	return nil
}

// watchJobs watches Kueue's objects and the jobs, as soon as their CRDs exist.
func (c *Core) watchJobs(ctx context.Context, watched chan<- struct{}) {
	logger := klog.FromContext(ctx)
	for {
		absent, err := c.jobs.missing(c.config.Client.RESTMapper())
		if err == nil && len(absent) == 0 {
			break
		}
		logger.Info("No job is admitted before these kinds are served; pods of no queue are scheduled meanwhile", "kinds", absent, "err", err)
		select {
		case <-ctx.Done():
			return
		case <-c.config.Clock.After(5 * time.Second):
		}
	}
	if err := c.jobs.watchJobs(ctx, c.config.Cache); err != nil {
		logger.Error(err, "Jobs are not watched")
		return
	}
	if c.config.Cache.WaitForCacheSync(ctx) {
		close(watched)
	}
}

// lead starts the parts that act, when this process leads. It returns once
// the holds of admitted jobs are in place, or after a bound, so that other
// pods are not kept waiting by an API that is away.
func (c *Core) lead(ctx context.Context, watched <-chan struct{}) {
	logger := klog.FromContext(ctx)
	done := make(chan struct{})
	go func() {
		select {
		case <-ctx.Done():
			return
		case <-watched:
		}
		nodeExists := func(name string) bool { _, err := c.nodes.Get(name); return err == nil }
		for {
			err := c.jobs.restore(ctx, nodeExists)
			if err == nil {
				break
			}
			logger.Error(err, "Reading the admitted jobs failed, trying again")
			select {
			case <-ctx.Done():
				return
			case <-c.config.Clock.After(time.Second):
			}
		}
		close(done)
		c.Ledger.Restored()
		c.jobs.run(ctx)
		(&reporter{Jobs: c.jobs, said: map[types.UID]said{}}).run(ctx)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	case <-c.config.Clock.After(restoreBound):
		logger.Info("Scheduling pods of no queue before the admitted jobs are known", "after", restoreBound)
	}
}

// missing are the kinds that the API does not serve.
func (j *Jobs) missing(mapper apimeta.RESTMapper) ([]string, error) {
	var absent []string
	for _, gvk := range j.watched() {
		_, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		switch {
		case err == nil:
		case apimeta.IsNoMatchError(err):
			absent = append(absent, gvk.GroupKind().String())
		default:
			return absent, fmt.Errorf("discovering %s: %w", gvk, err)
		}
	}
	return absent, nil
}
