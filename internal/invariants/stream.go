package invariants

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// stream delivers every change of one resource, in order. It is the store of a
// reflector.
type stream struct {
	kind    schema.GroupVersionKind
	example client.Object
	client  client.WithWatch
	// push takes a change, advance that all changes up to a version were
	// delivered, and missed that those after one version and up to another were
	// not.
	push    func(Event)
	advance func(version string)
	missed  func(after, upTo string)

	mu    sync.Mutex
	known map[types.UID]client.Object
	// reached is the newest version that was delivered; empty until the
	// resource was listed.
	reached string
	changed chan struct{}
}

var (
	_ cache.ReflectorStore         = &stream{}
	_ cache.ReflectorBookmarkStore = &stream{}
)

func newStream(c client.WithWatch, kind schema.GroupVersionKind, example client.Object) *stream {
	return &stream{kind: kind, example: example, client: c, known: map[types.UID]client.Object{}, changed: make(chan struct{})}
}

func (s *stream) name() string { return s.kind.Kind }

// run watches until ctx is done.
func (s *stream) run(ctx context.Context) {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := s.newList()
			if err != nil {
				return nil, err
			}
			return list, s.client.List(ctx, list, &client.ListOptions{Raw: &o})
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			list, err := s.newList()
			if err != nil {
				return nil, err
			}
			return s.client.Watch(ctx, list, &client.ListOptions{Raw: &o})
		},
	}
	cache.NewNamedReflector("invariants/"+s.name(), lw, s.example, s, 0).RunWithContext(ctx)
}

// newList is an empty list of the resource, as typed as the example.
func (s *stream) newList() (client.ObjectList, error) {
	kind := s.kind.GroupVersion().WithKind(s.kind.Kind + "List")
	if _, ok := s.example.(*unstructured.Unstructured); ok {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		return list, nil
	}
	o, err := s.client.Scheme().New(kind)
	if err != nil {
		return nil, err
	}
	list, ok := o.(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("%T is no list", o)
	}
	return list, nil
}

// Add implements cache.ReflectorStore.
func (s *stream) Add(o any) error { return s.deliver(watch.Added, o) }

// Update implements cache.ReflectorStore.
func (s *stream) Update(o any) error { return s.deliver(watch.Modified, o) }

// Delete implements cache.ReflectorStore.
func (s *stream) Delete(o any) error { return s.deliver(watch.Deleted, o) }

// Resync implements cache.ReflectorStore.
func (s *stream) Resync() error { return nil }

// Bookmark implements cache.ReflectorBookmarkStore.
func (s *stream) Bookmark(version string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.come(version)
	s.advance(version)
	return nil
}

// Replace implements cache.ReflectorStore: the first list, or one after the
// watch was lost, as it is when the resource's definition changes. Then it says
// how things have become and not how they came to be so. What was deleted
// meanwhile is placed at the list's version.
func (s *stream) Replace(objects []any, version string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	missing, news := maps.Clone(s.known), false
	for _, o := range objects {
		obj, ok := o.(client.Object)
		if !ok {
			return fmt.Errorf("the list of %s holds a %T", s.name(), o)
		}
		before := s.known[obj.GetUID()]
		delete(missing, obj.GetUID())
		switch {
		case before == nil:
			news = true
			s.take(watch.Added, obj)
		case before.GetResourceVersion() != obj.GetResourceVersion():
			news = true
			s.take(watch.Modified, obj)
		}
	}
	if s.reached != "" && (news || len(missing) > 0) {
		s.missed(s.reached, version)
	}
	for _, obj := range missing {
		obj = obj.DeepCopyObject().(client.Object)
		obj.SetResourceVersion(version)
		s.take(watch.Deleted, obj)
	}
	s.come(version)
	s.advance(version)
	return nil
}

func (s *stream) deliver(kind watch.EventType, o any) error {
	obj, ok := o.(client.Object)
	if !ok {
		return fmt.Errorf("the watch of %s delivered a %T", s.name(), o)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take(kind, obj)
	s.come(obj.GetResourceVersion())
	return nil
}

func (s *stream) take(kind watch.EventType, obj client.Object) {
	obj.SetManagedFields(nil)
	if kind == watch.Deleted {
		delete(s.known, obj.GetUID())
	} else {
		s.known[obj.GetUID()] = obj
	}
	s.push(Event{Type: kind, Object: obj, Seen: time.Now()})
}

// come records how far the stream has come, and wakes who waits for it.
func (s *stream) come(version string) {
	if later(version, s.reached) {
		s.reached = version
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// synced waits until the resource was listed once, and returns how far the
// stream has come.
func (s *stream) synced(ctx context.Context) (version string, err error) {
	err = s.until(ctx, func() bool {
		version = s.reached
		return version != ""
	})
	return version, err
}

// catchUp waits until everything that has happened so far is delivered, and
// says so to the order of events. A watch of a resource that does not change
// is silent, so the API is asked once how things stand: what was delivered is
// complete when it has come past that answer, or is the same. (What was both
// created and deleted on its way here is missed by the second, and judged a
// little late.)
func (s *stream) catchUp(ctx context.Context) error {
	now := &metav1.PartialObjectMetadataList{}
	now.SetGroupVersionKind(s.kind.GroupVersion().WithKind(s.kind.Kind + "List"))
	// Without a resource version the answer is as new as the question.
	if err := s.client.List(ctx, now); err != nil {
		return fmt.Errorf("listing %s: %w", s.name(), err)
	}
	version := now.GetResourceVersion()
	err := s.until(ctx, func() bool { return !later(version, s.reached) || s.is(now.Items) })
	if err != nil {
		return fmt.Errorf("the watch of %s has not come to version %s: %w", s.name(), version, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance(version)
	return nil
}

// is says that what was delivered is exactly items.
func (s *stream) is(items []metav1.PartialObjectMetadata) bool {
	if len(items) != len(s.known) {
		return false
	}
	for i := range items {
		if o := s.known[items[i].UID]; o == nil || o.GetResourceVersion() != items[i].ResourceVersion {
			return false
		}
	}
	return true
}

// until waits until what is true; what is asked under the lock.
func (s *stream) until(ctx context.Context, what func() bool) error {
	for {
		s.mu.Lock()
		ok, changed := what(), s.changed
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// served says whether the API has the resource; a cluster without the Trainer
// has no TrainJobs.
func served(c client.Client, kind schema.GroupVersionKind) (bool, error) {
	_, err := c.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if apimeta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for %s: %w", kind, err)
	}
	return true, nil
}
