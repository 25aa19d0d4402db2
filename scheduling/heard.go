package scheduling

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/workload"
)

const (
	// hearingPoll is how often it is looked whether the handlers have heard all
	// that was listed.
	hearingPoll = 20 * time.Millisecond
	// relistEvery is how long that may take before the API is listed anew: what
	// has gone since is not waited for.
	relistEvery = time.Second
	// unneededBound is how long the kinds that are not needed are waited for in all.
	unneededBound = 30 * time.Second
)

// heard is what the handlers of one kind of object have heard: later than the
// informer's own store has it.
type heard struct {
	mu    sync.Mutex
	known map[types.UID]metav1.Object
}

func newHeard() *heard { return &heard{known: map[types.UID]metav1.Object{}} }

// saw records that the handlers know obj as it is.
func (h *heard) saw(obj metav1.Object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known[obj.GetUID()] = obj
}

// lost records that the handlers know that obj is gone.
func (h *heard) lost(obj metav1.Object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.known, obj.GetUID())
}

// reset forgets everything and returns what was there: nobody tells of the kind
// any more.
func (h *heard) reset() []metav1.Object {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := slices.Collect(maps.Values(h.known))
	clear(h.known)
	return known
}

// behind says what of a list the handlers have not heard: an object, a newer
// version of one, or that one is gone; empty if nothing. The resource versions
// are those of one kind, so they can be compared.
func (h *heard) behind(list *metav1.PartialObjectMetadataList) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	listed := make(map[types.UID]struct{}, len(list.Items))
	for i := range list.Items {
		o := &list.Items[i]
		listed[o.UID] = struct{}{}
		if have, ok := h.known[o.UID]; !ok || olderVersion(have.GetResourceVersion(), o.ResourceVersion) {
			return fmt.Sprintf("%s at version %s", klog.KObj(o), o.ResourceVersion)
		}
	}
	for uid, have := range h.known {
		if _, there := listed[uid]; !there && !olderVersion(list.ResourceVersion, have.GetResourceVersion()) {
			return fmt.Sprintf("that %s is gone", uid)
		}
	}
	return ""
}

// olderVersion says that a resource version is older than another. Versions
// that cannot be compared are not: a wait for them would never end.
func olderVersion(a, b string) bool {
	c, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && c < 0
}

// handler passes on to to, and then remembers that it has heard.
func (h *heard) handler(to toolscache.ResourceEventHandler) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			to.OnAdd(obj, initial)
			if o, ok := obj.(metav1.Object); ok {
				h.saw(o)
			}
		},
		UpdateFunc: func(old, obj any) {
			to.OnUpdate(old, obj)
			if o, ok := obj.(metav1.Object); ok {
				h.saw(o)
			}
		},
		DeleteFunc: func(obj any) {
			to.OnDelete(obj)
			if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if o, ok := obj.(metav1.Object); ok {
				h.lost(o)
			}
		},
	}
}

// listened is a source of which it is known what its handler has heard.
type listened struct {
	source
	heard *heard
}

// counts says that a pod which is on a node takes up its room in the
// scheduler's cache, and that its job knows it.
func (l *Ledger) counts(pod *corev1.Pod) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	have, err := l.cache.GetPod(pod)
	if err != nil || olderVersion(have.ResourceVersion, pod.ResourceVersion) {
		return false
	}
	// Members are told after the cache; a pod that is not a member is not told.
	m, e, _ := l.jobOf(have)
	owner, _, _ := workload.SlotOf(have)
	switch m {
	case stray:
		p := l.strays[owner][pod.UID]
		return p != nil && p.Spec.NodeName != ""
	case member:
		s, seated := e.seats[pod.UID]
		p := e.unplaced[pod.UID]
		return (seated && s.bound) || (p != nil && p.Spec.NodeName != "")
	}
	return true
}

// uncounted names the first pod of a list that does not count yet.
func (l *Ledger) uncounted(list *metav1.PartialObjectMetadataList) string {
	for i := range list.Items {
		if !l.counts(&corev1.Pod{ObjectMeta: list.Items[i].ObjectMeta}) {
			return fmt.Sprintf("that pod %s is on its node", klog.KObj(&list.Items[i]))
		}
	}
	return ""
}

// watchedKind is one kind of object whose watch must have come as far as the
// API is when this process begins to lead.
type watchedKind struct {
	gvk  schema.GroupVersionKind
	need need
	// of are the objects that matter; nil for all.
	of fields.Selector
	// behind says what of a list has not been heard.
	behind func(*metav1.PartialObjectMetadataList) string
}

// livePods are the pods that take up room.
var livePods = fields.AndSelectors(
	fields.OneTermNotEqualSelector("spec.nodeName", ""),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
)

// watchedKinds are all kinds that decisions rest on.
func (j *Jobs) watchedKinds() []watchedKind {
	core := corev1.SchemeGroupVersion.WithKind
	out := []watchedKind{
		{core("Pod"), needed, livePods, j.ledger.uncounted},
		{core("Node"), needed, nil, j.ledger.heardNodes.behind},
		{core("Namespace"), needed, nil, j.ledger.heardNamespaces.behind},
	}
	for _, s := range j.watched {
		out = append(out, watchedKind{s.gvk, s.need, nil, s.heard.behind})
	}
	return out
}

// catchUp returns when the handlers have heard all that the API had when it was
// called. A standby's watches may lag behind what the leader before it did last,
// and it would give away what that leader gave away. Of kinds that are not needed, what
// has not been heard in time is done without: an object that cannot be read may be there
// for ever.
func (j *Jobs) catchUp(ctx context.Context) error {
	var unneeded sync.WaitGroup
	defer unneeded.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	patient, over := j.withBound(ctx, unneededBound)
	defer over()
	for _, k := range j.watchedKinds() {
		if k.need == notNeeded {
			unneeded.Go(func() { j.tryToCatchUpWith(patient, k) })
			continue
		}
		if err := j.catchUpWith(ctx, k); err != nil {
			return fmt.Errorf("catching up with %s: %w", k.gvk.Kind, err)
		}
	}
	unneeded.Wait()
	return ctx.Err()
}

// withBound is a context that ends after a time.
func (j *Jobs) withBound(ctx context.Context, bound time.Duration) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancel(ctx)
	timer := j.clock.NewTimer(bound)
	go func() {
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C():
			end()
		}
	}()
	return ctx, end
}

// tryToCatchUpWith does so with a kind that is not needed, until ctx is done.
func (j *Jobs) tryToCatchUpWith(ctx context.Context, k watchedKind) {
	for {
		err := j.catchUpWith(ctx, k)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			klog.FromContext(ctx).Info("Not all of a kind has been heard, and it is not waited for", "kind", k.gvk.Kind, "err", err.Error())
			return
		case <-j.clock.After(relistEvery):
		}
	}
}

func (j *Jobs) catchUpWith(ctx context.Context, k watchedKind) error {
	logger := klog.FromContext(ctx)
	for first := true; ; first = false {
		// Without a resource version a list is as new as the API.
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(k.gvk.GroupVersion().WithKind(k.gvk.Kind + "List"))
		err := j.client.List(ctx, list, &client.ListOptions{FieldSelector: k.of})
		switch {
		case isGone(err):
			// Not served, so there is none.
			return nil
		case apierrors.IsForbidden(err) && k.need != needed:
			// It is not watched either.
			return nil
		case err != nil:
			return fmt.Errorf("listing: %w", err)
		}
		behind := k.behind(list)
		for end := j.clock.Now().Add(relistEvery); behind != "" && j.clock.Now().Before(end); behind = k.behind(list) {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-j.clock.After(hearingPoll):
			}
		}
		if behind == "" {
			return nil
		}
		if first {
			logger.Info("Nothing is admitted until the watch has come as far as the API", "kind", k.gvk.Kind, "missing", behind)
		}
	}
}
