package scheduling

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/workload"
)

const (
	// discoverEvery is how often it is asked whether a kind is served.
	discoverEvery = 5 * time.Second
	// answerLasts is how long one answer serves all kinds of its group and
	// version.
	answerLasts = discoverEvery - time.Second
	// askBound ends a question that the API does not answer.
	askBound = 10 * time.Second
	// absences is how often in a row a kind must be missing before it counts as
	// gone.
	absences = 2
)

// Discovery tells which resources the API has of one group and version.
type Discovery interface {
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// apiKinds knows which kinds the API serves. Kinds come and go with their
// definitions, while the process runs.
type apiKinds struct {
	discovery Discovery
	clock     clock.PassiveClock

	// asking guards answers, and is held while the API is asked.
	asking  sync.Mutex
	answers map[schema.GroupVersion]answer

	mu sync.Mutex
	// absent are the kinds that were found missing when it was last asked.
	absent sets.Set[schema.GroupVersionKind]
}

// answer is the kinds of one group and version, as of a time.
type answer struct {
	at    time.Time
	kinds sets.Set[string]
}

func newAPIKinds(d Discovery, c clock.PassiveClock) *apiKinds {
	return &apiKinds{
		discovery: d, clock: c,
		answers: map[schema.GroupVersion]answer{}, absent: sets.New[schema.GroupVersionKind](),
	}
}

// serves asks the API whether it has a kind. An error means that it did not
// say. The document of one group and version is asked for, because the API
// server answers that it does not exist only once it knows all definitions.
func (k *apiKinds) serves(ctx context.Context, gvk schema.GroupVersionKind) (bool, error) {
	k.asking.Lock()
	defer k.asking.Unlock()
	gv := gvk.GroupVersion()
	a, ok := k.answers[gv]
	if !ok || k.clock.Since(a.at) > answerLasts {
		ctx, cancel := context.WithTimeout(ctx, askBound)
		defer cancel()
		list, err := k.discovery.ServerResourcesForGroupVersionWithContext(ctx, gv.String())
		if err != nil && !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("asking which kinds of %s are served: %w", gv, err)
		}
		a = answer{at: k.clock.Now(), kinds: sets.New[string]()}
		if err == nil {
			for i := range list.APIResources {
				a.kinds.Insert(list.APIResources[i].Kind)
			}
		}
		k.answers[gv] = a
	}
	if !a.kinds.Has(gvk.Kind) {
		return false, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.absent.Delete(gvk)
	return true, nil
}

// lost records that a kind is not served, as seen by whoever watches it.
func (k *apiKinds) lost(gvk schema.GroupVersionKind) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.absent.Insert(gvk)
}

// lacks says that a kind was found not to be served. Before it was asked for,
// it is not known to be missing.
func (k *apiKinds) lacks(gvk schema.GroupVersionKind) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.absent.Has(gvk)
}

// watchKind watches the objects of one kind whenever it is served. known is
// called once, when enough is known of the kind for an admission. A needed kind,
// once watched, is watched for good: its objects are deleted with its
// definition, and jobs without queues do not start.
func (j *Jobs) watchKind(ctx context.Context, c cache.Cache, s listened, known func()) {
	known = sync.OnceFunc(known)
	logger := klog.FromContext(ctx).WithValues("kind", s.gvk.GroupKind(), "version", s.gvk.Version)
	for {
		absent := func() {
			j.api.lost(s.gvk)
			if s.need != needed {
				known()
			}
		}
		if !j.awaitKind(ctx, s, absent) {
			return
		}
		if s.need == notNeeded {
			known()
		}
		if err := j.beginWatch(ctx, c, s); err != nil {
			if ctx.Err() != nil {
				return
			}
			logger.Error(err, "Watching a kind failed, trying again")
			if !j.pause(ctx) {
				return
			}
			continue
		}
		known()
		if s.need == needed {
			return
		}
		logger.V(2).Info("Watching a kind")
		if !j.awaitAbsence(ctx, s.gvk) {
			return
		}
		logger.Info("A kind is no longer served; its jobs end")
		j.endWatch(ctx, c, s)
	}
}

// awaitKind returns when a kind is served; false if ctx is done. absent is
// called each time that it is found missing.
func (j *Jobs) awaitKind(ctx context.Context, s listened, absent func()) bool {
	logger := klog.FromContext(ctx)
	for first := true; ; first = false {
		served, err := j.api.serves(ctx, s.gvk)
		switch {
		case served:
			return true
		case err != nil && ctx.Err() == nil:
			logger.Error(err, "It is not known whether a kind is served, asking again", "kind", s.gvk.GroupKind())
		case err == nil:
			if first {
				logger.Info("Waiting for a kind to be served", "kind", s.gvk.GroupKind(), "version", s.gvk.Version, "needed", s.need == needed)
			}
			absent()
		}
		if !j.pause(ctx) {
			return false
		}
	}
}

// awaitAbsence returns when a kind is served no longer; false if ctx is done.
func (j *Jobs) awaitAbsence(ctx context.Context, gvk schema.GroupVersionKind) bool {
	for missing := 0; missing < absences; {
		if !j.pause(ctx) {
			return false
		}
		served, err := j.api.serves(ctx, gvk)
		switch {
		case served:
			missing = 0
		case err == nil:
			missing++
		}
	}
	return true
}

func (j *Jobs) pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-j.clock.After(discoverEvery):
		return true
	}
}

// beginWatch watches a kind that is served, and returns when all that exists of
// it has been told.
func (j *Jobs) beginWatch(ctx context.Context, c cache.Cache, s listened) error {
	informer, err := c.GetInformer(ctx, s.obj, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching %s: %w", s.gvk.GroupKind(), err)
	}
	told, err := informer.AddEventHandler(s.handler)
	if err != nil {
		return fmt.Errorf("watching %s: %w", s.gvk.GroupKind(), err)
	}
	for !told.HasSynced() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("watching %s: %w", s.gvk.GroupKind(), ctx.Err())
		case <-j.clock.After(hearingPoll):
		}
		if informer.IsStopped() {
			return fmt.Errorf("watching %s: the watch was stopped", s.gvk.GroupKind())
		}
	}
	return nil
}

// endWatch ends the watch of a kind that is served no longer. Its objects have
// gone with it, whether or not the watch could tell of it: every job is looked
// at again, since others may have been made up of them.
func (j *Jobs) endWatch(ctx context.Context, c cache.Cache, s listened) {
	j.api.lost(s.gvk)
	if err := c.RemoveInformer(ctx, s.obj); err != nil {
		klog.FromContext(ctx).Error(err, "Ending a watch failed", "kind", s.gvk.GroupKind())
	}
	for _, gone := range s.heard.reset() {
		s.handler.OnDelete(gone)
		j.ledger.ForgetPodOwner(gone.GetUID())
	}
	j.ledger.syncAll()
}

// isServed says whether the API has a kind; unknown counts as yes.
func (j *Jobs) isServed(ctx context.Context, gvk schema.GroupVersionKind) bool {
	if j.api == nil {
		return true
	}
	served, err := j.api.serves(ctx, gvk)
	return served || err != nil
}

// find reads an object of a kind with get. Where the kind has several versions,
// it is looked for in each that may be served: a cluster may be about to change
// from one to another.
func (j *Jobs) find(kind workload.Kind, get func(client.Object) error) (client.Object, error) {
	v, ok := kind.(workload.Versioned)
	if !ok {
		obj := kind.New()
		return obj, get(obj)
	}
	obj := kind.New()
	var err error = &apimeta.NoKindMatchError{GroupKind: kind.GroupVersionKind().GroupKind()}
	for _, gvk := range v.Versions() {
		if j.api != nil && j.api.lacks(gvk) {
			continue
		}
		obj = kind.New()
		obj.GetObjectKind().SetGroupVersionKind(gvk)
		if err = get(obj); !isGone(err) {
			break
		}
	}
	return obj, err
}
