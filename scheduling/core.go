package scheduling

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/metrics"
	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/placement/islands"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/rendering"
	"github.com/muster-gpu/muster/workload"
)

// restoreBound is how long the scheduling goroutine waits, once, for the
// admitted jobs to be read from the API before it schedules other pods.
const restoreBound = 30 * time.Second

// Config is what a Core is built from.
type Config struct {
	// SchedulerNames are the profiles of this process.
	SchedulerNames []string
	// Unqueued says what happens to GPU pods without a queue.
	Unqueued workload.Unqueued
	// FollowKueue: a Kueue manager decides about quota.
	FollowKueue bool
	// FairSharing are the strategies of fair sharing in the order in which they
	// are tried, none where it is off.
	FairSharing []quota.FairStrategy
	Timing      Timing
	// Provisioning is how nodes are asked for that jobs without pods wait for.
	Provisioning Provisioning
	// PassBudget is how long one admission pass may keep pods waiting.
	PassBudget time.Duration
	// DryRun lets the API server render the pods of waiting jobs, so that what
	// webhooks inject is known before.
	DryRun bool
	Clock  clock.WithTicker
	// Levels are the topology levels of a flavor that names no Topology, and
	// PreferredLevel is that of pods that ask for none; nil for none.
	Levels         func(flavor string) []string
	PreferredLevel func(flavor string) string
	// DeviceClasses are the resources of quota as which claimed devices count, by
	// their DeviceClasses.
	DeviceClasses map[string]corev1.ResourceName
	// Islands is who chooses among the GPUs of a node, and Arranged how those of some
	// products are joined, by the names of the products.
	Islands  placement.Enforcement
	Arranged map[string]islands.Arrangement
	// Cache and Client reach the API: the Cache for Kueue's objects and the
	// jobs, the Client for writes and for reads that must be current.
	Cache  cache.Cache
	Client client.Client
	// Discovery tells which kinds the API serves.
	Discovery Discovery
}

// Core is the Ledger with all that moves it, ready to be put into one
// scheduler.
type Core struct {
	Ledger *Ledger

	config  Config
	effects *asyncEffects
	cycle   *Cycle
	jobs    *Jobs
	askers  askers
}

// NewCore returns a Core that does nothing until it is installed.
func NewCore(ctx context.Context, c Config) *Core {
	effects := newEffects()
	ledger := NewLedger(klog.FromContext(ctx), c.Clock, effects)
	cycle := NewCycle(ledger, placement.NewPlanner(gpu.Is), c.PassBudget)
	effects.admit = cycle.Wake
	if c.FollowKueue {
		ledger.follow()
	}
	if len(c.FairSharing) > 0 {
		ledger.shareFairly(c.FairSharing)
	}
	if c.Levels != nil {
		ledger.quota.SetDefaultLevels(c.Levels, c.PreferredLevel)
	}
	ledger.reserveAfter, ledger.reserveFor = c.Timing.ReservationAfter, c.Timing.ReservationFor
	api := newAPIKinds(c.Discovery, c.Clock)
	reader := presentReader{Reader: c.Cache, kinds: api, scheme: c.Client.Scheme()}
	renderer := rendering.NewRenderer(reader, c.Client, c.Clock, c.DryRun)
	ledger.holdUnqueued, ledger.claimsGPU = c.Unqueued == workload.UnqueuedHold, renderer.ClaimsGPU
	kinds := map[schema.GroupKind]workload.Kind{}
	for _, k := range workload.Kinds(workload.Options{SchedulerNames: sets.New(c.SchedulerNames...), Unqueued: c.Unqueued, ClaimsGPU: renderer.ClaimsGPU}) {
		kinds[k.GroupVersionKind().GroupKind()] = k
	}
	jobs := &Jobs{
		ledger: ledger, effects: effects, clock: c.Clock, reader: reader, client: c.Client, api: api, kinds: kinds, timing: c.Timing, provisioning: c.Provisioning,
		served:   sets.New(c.SchedulerNames...),
		renderer: renderer, gpuNodes: ledger.gpuNodes,
		writes: newQueue[types.UID](), deletions: newQueue[types.NamespacedName](), groups: newQueue[types.NamespacedName](),
	}
	effects.write, effects.tell = jobs.writes.Add, jobs.note
	return &Core{Ledger: ledger, config: c, effects: effects, cycle: cycle, jobs: jobs, askers: askers{clock: c.Clock}}
}

// Mix is what the jobs ask for.
func (c *Core) Mix() *placement.Mix { return c.cycle.planner.Mix() }

// Install puts the Core into a scheduler that is not running yet.
func (c *Core) Install(ctx context.Context, sched *scheduler.Scheduler, handle fwk.Handle, f informers.SharedInformerFactory, recorder record.EventRecorder) error {
	c.jobs.recorder, c.jobs.pods, c.jobs.nodes = recorder, f.Core().V1().Pods().Lister(), f.Core().V1().Nodes().Lister()
	c.jobs.apps = appOwners{f.Apps().V1().ReplicaSets().Lister(), f.Apps().V1().StatefulSets().Lister()}
	c.jobs.podsSeen = f.Core().V1().Pods().Informer().LastSyncResourceVersion
	var err error
	if c.jobs.groupPods, err = watchGroupPods(f.Core().V1().Pods().Informer()); err != nil {
		return err
	}
	go c.jobs.groupPods.learnEnded(ctx, c.config.Client, c.config.Clock)
	if err := c.cycle.planner.PlanClaims(ctx, handle); err != nil {
		return err
	}
	c.Ledger.devices = handle.SharedDRAManager()
	if err := c.useIslands(f); err != nil {
		return err
	}
	if err := watchCluster(c.Ledger, f); err != nil {
		return err
	}
	if err := c.jobs.watchGroups(f); err != nil {
		return err
	}
	if err := c.jobs.watchClaims(f, c.config.DeviceClasses); err != nil {
		return err
	}
	// What a job owns is watched from the start, so that a standby is warm.
	go func() {
		if err := c.config.Cache.Start(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "The cache of queues and jobs has stopped")
		}
	}()
	for _, s := range c.jobs.sources(ctx) {
		h := newHeard()
		s.handler = h.handler(s.handler)
		c.jobs.watched = append(c.jobs.watched, listened{source: s, heard: h})
	}
	watched := make(chan struct{})
	go c.watchJobs(ctx, watched)
	c.cycle.Install(ctx, sched, func(ctx context.Context) { c.lead(ctx, watched) })
	go c.effects.run(ctx, handle)
	return nil
}

// watchJobs watches each kind while it is served, and closes watched when all
// that is needed for an admission has been read.
func (c *Core) watchJobs(ctx context.Context, watched chan<- struct{}) {
	var unknown sync.WaitGroup
	for _, s := range c.jobs.watched {
		unknown.Add(1)
		go c.jobs.watchKind(ctx, c.config.Cache, s, unknown.Done)
	}
	unknown.Wait()
	close(watched)
}

// lead starts the parts that act, when this process leads. It returns once
// the holds of admitted jobs are in place, or after a bound, so that other
// pods are not kept waiting by an API that is away; and at once where the API
// has no Workloads, since no job can be admitted there.
func (c *Core) lead(ctx context.Context, watched <-chan struct{}) {
	logger := klog.FromContext(ctx)
	done, unserved := make(chan struct{}), make(chan struct{})
	c.jobs.run(ctx)
	c.effects.leads.Store(true)
	metrics.Leading.Set(1)
	context.AfterFunc(ctx, func() {
		c.effects.leads.Store(false)
		metrics.Leading.Set(0)
	})
	go func() {
		if !c.jobs.isServed(ctx, kueue.SchemeGroupVersion.WithKind("Workload")) {
			close(unserved)
		}
	}()
	go func() {
		select {
		case <-ctx.Done():
			return
		case <-watched:
		}
		for {
			err := c.jobs.catchUp(ctx)
			if err == nil {
				// Whose the admitted jobs are depends on who decides.
				err = c.jobs.lookForRival(ctx)
			}
			if err == nil {
				err = c.jobs.restore(ctx)
			}
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
		c.Ledger.reading()
		c.effects.first.begin(c.config.Clock.Now())
		close(done)
		c.Ledger.Restored()
		context.AfterFunc(ctx, metrics.Leads(c.Ledger.figures))
		go (&reporter{Jobs: c.jobs}).run(ctx)
		go newProvisioner(c.jobs).run(ctx)
		c.effects.first.wait(ctx, c.config.Clock)
		c.Ledger.allRead()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	case <-unserved:
		logger.Info("Scheduling pods of no queue: Kueue's API is not served, so no job can be admitted")
	case <-c.config.Clock.After(restoreBound):
		logger.Info("Scheduling pods of no queue before the admitted jobs are known", "after", restoreBound)
	}
}
