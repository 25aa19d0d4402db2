package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/workload"
)

// gangWatch sees when pods come, and when they are bound: one clock for everybody.
type gangWatch struct {
	mu     sync.Mutex
	pods   map[string]bool
	bound  map[string]time.Time
	gangOf map[string]string
	// changed is closed, and made anew, when a pod has come or was bound.
	changed chan struct{}
}

func newGangWatch() *gangWatch {
	return &gangWatch{pods: map[string]bool{}, bound: map[string]time.Time{}, gangOf: map[string]string{}, changed: make(chan struct{})}
}

// see takes in what a pod says now.
func (w *gangWatch) see(o *corev1.Pod) error {
	seen := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	_, before := w.bound[o.Name]
	now := o.Spec.NodeName != ""
	if w.pods[o.Name] && before == now {
		return nil
	}
	w.pods[o.Name], w.gangOf[o.Name] = true, o.Labels[workload.PodGroupLabel]
	if now {
		w.bound[o.Name] = seen
	}
	close(w.changed)
	w.changed = make(chan struct{})
	return nil
}

// await waits until so many pods are there, and so many of them bound.
func (w *gangWatch) await(ctx context.Context, pods, bound int) error {
	for {
		w.mu.Lock()
		havePods, haveBound, changed := len(w.pods), len(w.bound), w.changed
		w.mu.Unlock()
		if havePods >= pods && haveBound >= bound {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d pods are there, %d of %d bound: %w", havePods, pods, haveBound, bound, context.Cause(ctx))
		}
	}
}

// since are the times from began to the bindings of the pods of each gang that was
// bound after it, in order.
func (w *gangWatch) since(began time.Time) map[string][]time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string][]time.Duration{}
	for pod, at := range w.bound {
		if at.After(began) {
			out[w.gangOf[pod]] = append(out[w.gangOf[pod]], at.Sub(began))
		}
	}
	for _, times := range out {
		slices.Sort(times)
	}
	return out
}
