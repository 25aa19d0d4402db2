package bench

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// watcher watches one resource from a resource version on.
type watcher struct {
	client client.WithWatch
	list   client.ObjectList
}

// WatchWithContext implements cache.WatcherWithContext.
func (w watcher) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return w.client.Watch(ctx, w.list.DeepCopyObject().(client.ObjectList), &client.ListOptions{Raw: &o})
}

// follow has every version of every object of a resource seen, in their order,
// from now on until ctx is done. There must be none yet.
func follow[T client.Object](ctx context.Context, group *errgroup.Group, c client.WithWatch, list client.ObjectList, see func(T) error) error {
	if err := c.List(ctx, list); err != nil {
		return fmt.Errorf("listing %T: %w", list, err)
	}
	w, err := watchtools.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), watcher{c, list})
	if err != nil {
		return fmt.Errorf("watching %T: %w", list, err)
	}
	group.Go(func() error {
		for event := range w.ResultChan() {
			o, ok := event.Object.(T)
			if !ok {
				return fmt.Errorf("watching %T: %w", list, apierrors.FromObject(event.Object))
			}
			if event.Type == watch.Deleted {
				return fmt.Errorf("somebody has deleted %T %s", o, client.ObjectKeyFromObject(o))
			}
			if err := see(o); err != nil {
				return err
			}
		}
		if ctx.Err() == nil {
			return fmt.Errorf("the watch of %T has ended", list)
		}
		return nil
	})
	return nil
}
