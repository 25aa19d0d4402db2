package invariants

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Watcher feeds a Checker from the watches of a cluster. Nothing is polled:
// the API is read once at the start, and once in each Check. Changes wait in
// memory for the Check that judges them.
type Watcher struct {
	streams []*stream
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	order   *order
	checker *Checker
	// missed are the parts of the history that a watch did not see.
	missed []span
	// err is the first event that could not be placed in the history.
	err error
	// reported is how many violations Check has returned.
	reported int
}

// syncWithin bounds how long Start waits for the first lists.
const syncWithin = time.Minute

// watched are the resources that are watched where they are served.
func watched() []client.Object {
	trainJob := &unstructured.Unstructured{}
	trainJob.SetGroupVersionKind(schema.GroupVersionKind{Group: "trainer.kubeflow.org", Version: "v1alpha1", Kind: "TrainJob"})
	return append([]client.Object{
		&corev1.Pod{}, &corev1.Node{}, &resourceapi.ResourceSlice{}, &kueue.Workload{}, &kueue.ClusterQueue{}, &kueue.Cohort{}, &jobset.JobSet{}, &batchv1.Job{}, trainJob,
	}, slices.Concat(trainingJobs(), rayKinds())...)
}

// Start begins to watch a cluster, and returns when it knows how things stand
// there. What is so at the start is taken as given; what happens after that is
// judged. Options.After is set by it.
func Start(ctx context.Context, config *rest.Config, options Options) (*Watcher, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), kueue.AddToScheme(scheme), jobset.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	// The configuration's time limit would end the watches.
	config.QPS, config.Burst, config.Timeout = 100, 200, 0
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("building a client: %w", err)
	}
	w := &Watcher{}
	for _, example := range watched() {
		s, err := w.stream(c, example)
		if err != nil {
			return nil, err
		}
		if s != nil {
			w.streams = append(w.streams, s)
		}
	}
	names := make([]string, len(w.streams))
	for i, s := range w.streams {
		names[i] = s.name()
	}
	w.order = newOrder(names...)
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w.cancel = cancel
	for _, s := range w.streams {
		w.running.Go(func() { s.run(background) })
	}
	if err := w.begin(ctx, options); err != nil {
		w.Stop()
		return nil, err
	}
	return w, nil
}

// stream returns a stream of an object's resource; nil if it is not served.
func (w *Watcher) stream(c client.WithWatch, example client.Object) (*stream, error) {
	kind, err := c.GroupVersionKindFor(example)
	if err != nil {
		return nil, fmt.Errorf("naming %T: %w", example, err)
	}
	if ok, err := served(c, kind); !ok || err != nil {
		return nil, err
	}
	s := newStream(c, kind, example)
	s.push = func(e Event) { w.push(kind.Kind, e) }
	s.advance = func(version string) { w.advance(kind.Kind, version) }
	s.missed = w.miss
	return s, nil
}

// begin waits for the first lists. They are from different moments, so events
// are judged from the latest of them on.
func (w *Watcher) begin(ctx context.Context, options Options) error {
	ctx, cancel := context.WithTimeoutCause(ctx, syncWithin, errors.New("it was not listed in "+syncWithin.String()))
	defer cancel()
	options.After = ""
	for _, s := range w.streams {
		version, err := s.synced(ctx)
		if err != nil {
			return fmt.Errorf("watching %s: %w", s.name(), err)
		}
		if later(version, options.After) {
			options.After = version
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checker = NewChecker(options)
	return nil
}

func (w *Watcher) push(stream string, e Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.order.push(stream, e); err != nil && w.err == nil {
		w.err = err
	}
}

func (w *Watcher) advance(stream, version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.order.advance(stream, version)
}

func (w *Watcher) miss(after, upTo string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.missed = append(w.missed, span{after, upTo})
}

// Check judges everything that has happened up to now. The error holds every
// violation that no Check has returned before, each with its history, or says
// why the history is not complete.
func (w *Watcher) Check(ctx context.Context) error {
	for _, s := range w.streams {
		if err := s.catchUp(ctx); err != nil {
			return fmt.Errorf("checking what must always hold: %w", err)
		}
	}
	return w.judge()
}

// judge judges what the streams have delivered.
func (w *Watcher) judge() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return fmt.Errorf("checking what must always hold: %w", w.err)
	}
	w.checker.missed = w.missed
	for _, e := range w.order.ready() {
		w.checker.Observe(e)
	}
	w.checker.Advance(time.Now())
	found := w.checker.Violations()
	var errs []error
	for _, v := range found[w.reported:] {
		errs = append(errs, v)
	}
	w.reported = len(found)
	return errors.Join(errs...)
}

// Foreign says what others than Muster did to the nodes, as far as it was
// checked; see Checker.Foreign.
func (w *Watcher) Foreign() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.checker.Foreign()
}

// Stop ends the watches.
func (w *Watcher) Stop() {
	w.cancel()
	w.running.Wait()
}
