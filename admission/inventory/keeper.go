package inventory

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/admission/typed"
	"github.com/muster-gpu/muster/api/v1alpha1"
)

const (
	// settle is how long changes are gathered: queues change with each job.
	settle = time.Second
	// agesEvery is how often it is looked at when the nodes were heard of last, which alone
	// is no change: many nodes say each minute that all is as it was.
	agesEvery = time.Minute
	// unreadAfter is how long a kind may fail to be read before the rest is handed over
	// without it. The API server may need this program to read it: what was stored in an
	// older version is converted here, and only who is ready is asked.
	unreadAfter = 10 * time.Second
)

// Catalog is who reads namespaces and RuntimeDefaults already: *defaults.Catalog.
type Catalog interface {
	// Ready returns nil once all are read.
	Ready() error
	Namespaces() map[string]labels.Set
	All() []*v1alpha1.RuntimeDefaults
	// OnChange has f called at each change. It may not be called once the catalog runs.
	OnChange(f func())
}

// Keeper hands an inventory over whenever it has changed.
type Keeper struct {
	catalog Catalog
	set     func(inventory any) error
	clock   clock.Clock
	// sources are the informers of Kueue's kinds and of GPUNodes, by resource. A kind that
	// the cluster does not have, or does not give out, is absent, and has no objects until it
	// is read.
	sources map[string]*source
	changed chan struct{}
	filled  atomic.Bool
}

type source struct {
	informer cache.SharedIndexInformer
	absent   atomic.Bool
	// failing is since when it could not be read; for the informer's goroutine alone.
	failing time.Time
}

func (s *source) known() bool { return s.informer.HasSynced() || s.absent.Load() }

// NewKeeper returns a Keeper that hands over to set, which may keep what it gets
// (policy.Engine.SetInventory).
func NewKeeper(catalog Catalog, objects dynamic.Interface, set func(any) error, clock clock.Clock) *Keeper {
	k := &Keeper{catalog: catalog, set: set, clock: clock, sources: map[string]*source{}, changed: make(chan struct{}, 1)}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(objects, 0)
	for resource, transform := range map[schema.GroupVersionResource]cache.TransformFunc{
		kueue.SchemeGroupVersion.WithResource(localQueues):   typed.Of[kueue.LocalQueue],
		kueue.SchemeGroupVersion.WithResource(clusterQueues): typed.Of[kueue.ClusterQueue],
		kueue.SchemeGroupVersion.WithResource(cohorts):       typed.Of[kueue.Cohort],
		v1alpha1.GroupVersion.WithResource(gpuNodes):         typed.Of[v1alpha1.GPUNode],
	} {
		s := &source{informer: factory.ForResource(resource).Informer()}
		k.sources[resource.Resource] = s
		_, err := s.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { k.touch() }, UpdateFunc: k.update, DeleteFunc: func(any) { k.touch() },
		})
		if err := errors.Join(err, s.informer.SetTransform(transform), s.informer.SetWatchErrorHandlerWithContext(k.lost(s))); err != nil {
			panic(err) // only an informer that runs refuses these
		}
	}
	catalog.OnChange(k.touch)
	return k
}

// The resources of Kueue's kinds, and of the nodes' agents.
const (
	localQueues   = "localqueues"
	clusterQueues = "clusterqueues"
	cohorts       = "cohorts"
	gpuNodes      = "gpunodes"
)

// update takes in that an object was changed.
func (k *Keeper) update(before, after any) {
	was, read := before.(*v1alpha1.GPUNode)
	is, reads := after.(*v1alpha1.GPUNode)
	if read && reads && sameFacts(was, is) {
		return
	}
	k.touch()
}

// lost notes that the cluster does not have the kind, or does not give it out.
func (k *Keeper) lost(s *source) cache.WatchErrorHandlerWithContext {
	return func(ctx context.Context, r *cache.Reflector, err error) {
		if apierrors.IsNotFound(err) {
			s.absent.Store(true)
			k.touch()
			return
		}
		cache.DefaultWatchErrorHandler(ctx, r, err)
		now := k.clock.Now()
		if s.failing.IsZero() {
			s.failing = now
		}
		if !s.known() && now.Sub(s.failing) >= unreadAfter {
			klog.FromContext(ctx).Error(err, "Policies do without a kind that cannot be read")
			s.absent.Store(true)
			k.touch()
		}
	}
}

func (k *Keeper) touch() {
	select {
	case k.changed <- struct{}{}:
	default: // it is due already
	}
}

// Ready returns nil once an inventory was handed over.
func (k *Keeper) Ready() error {
	if !k.filled.Load() {
		return errors.New("the cluster's queues and nodes are not read yet")
	}
	return nil
}

// Run hands inventories over until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for _, s := range k.sources {
		running.Go(func() { s.informer.RunWithContext(ctx) })
	}
	wait := 10 * time.Millisecond
	for {
		if k.known() {
			if err := k.set(Build(k.objects(), k.clock.Now())); err != nil {
				klog.FromContext(ctx).Error(err, "Policies see an old inventory")
			} else {
				k.filled.Store(true)
			}
			wait = settle
			if !k.due(ctx) {
				return
			}
		}
		// What is not read yet is looked for soon.
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// due waits until there may be something new. It is false if ctx ends first.
func (k *Keeper) due(ctx context.Context) bool {
	var aged <-chan time.Time
	if len(k.sources[gpuNodes].informer.GetStore().ListKeys()) > 0 {
		timer := k.clock.NewTimer(agesEvery)
		defer timer.Stop()
		aged = timer.C()
	}
	select {
	case <-ctx.Done():
		return false
	case <-k.changed:
	case <-aged:
	}
	return true
}

func (k *Keeper) known() bool {
	return k.catalog.Ready() == nil && !slices.ContainsFunc(slices.Collect(maps.Values(k.sources)), func(s *source) bool { return !s.known() })
}

func (k *Keeper) objects() Objects {
	return Objects{
		Namespaces: k.catalog.Namespaces(), Defaults: k.catalog.All(),
		LocalQueues: list[kueue.LocalQueue](k, localQueues), ClusterQueues: list[kueue.ClusterQueue](k, clusterQueues),
		Cohorts: list[kueue.Cohort](k, cohorts), Nodes: list[v1alpha1.GPUNode](k, gpuNodes),
	}
}

func list[T any](k *Keeper, resource string) []*T {
	return typed.List[T](k.sources[resource].informer.GetStore())
}
