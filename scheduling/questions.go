package scheduling

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/inquiry"
	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload"
)

// Why a question is not answered.
var (
	// ErrBusy: another question is being answered, or one was a moment ago.
	ErrBusy = errors.New("another question is being answered")
	// ErrNotLeading: this process does not decide, or has not read yet what was decided.
	ErrNotLeading = errors.New("this scheduler does not lead, or has not read the admitted jobs yet")
	// ErrUnknownJob: no job has the Workload that was asked about.
	ErrUnknownJob = errors.New("no job with this Workload is known")
	// ErrInvalidJob: what was sent is no job in a queue.
	ErrInvalidJob = errors.New("this is no job in a queue")
)

const (
	// answerWithin is how long a question waits for the scheduling goroutine.
	answerWithin = 2 * time.Second
	// restsFor is for how many times as long as a simulation took none is made: they take
	// a tenth of the scheduling goroutine's time at most.
	restsFor = 9
)

// askers lets one question in at a time, and none while the last one is paid for.
type askers struct {
	mu    sync.Mutex
	clock clock.PassiveClock
	busy  bool
	until time.Time
}

// take reports whether it is the caller's turn, who then calls over with how long the
// scheduling goroutine was kept. What keeps it not at all is free, and waits for no rest.
func (t *askers) take(free bool) (over func(took time.Duration), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy || (!free && t.clock.Now().Before(t.until)) {
		return nil, false
	}
	t.busy = true
	return func(took time.Duration) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.busy = false
		if !free {
			t.until = t.clock.Now().Add(restsFor * took)
		}
	}, true
}

// Standing is how the job of a Workload stands. It returns ErrBusy, ErrNotLeading and
// ErrUnknownJob.
func (c *Core) Standing(ctx context.Context, name types.NamespacedName) (inquiry.Standing, error) {
	over, ok := c.askers.take(true)
	if !ok {
		return inquiry.Standing{}, ErrBusy
	}
	defer over(0)
	if !c.answers() {
		return inquiry.Standing{}, ErrNotLeading
	}
	wl := &kueue.Workload{}
	if err := c.jobs.reader.Get(ctx, name, wl); apierrors.IsNotFound(err) {
		return inquiry.Standing{}, ErrUnknownJob
	} else if err != nil {
		return inquiry.Standing{}, fmt.Errorf("reading Workload %s: %w", name, err)
	}
	owner, _ := workload.OwnerOf(wl)
	s, ok := c.Ledger.standingOf(owner.UID)
	if !ok {
		return s, ErrUnknownJob
	}
	return s, nil
}

// answers says that this process decides, and knows what was decided.
func (c *Core) answers() bool { return c.effects.leads.Load() && c.Ledger.isRestored() }

// Simulate says what would become of a job if it were created now. Nothing comes of it:
// the scheduling goroutine is kept for simulatesFor at most, and is let go sooner where a
// pod waits for it.
// The errors are ErrBusy, ErrNotLeading, ErrInvalidJob and those of the API server.
func (c *Core) Simulate(ctx context.Context, object *unstructured.Unstructured) (*inquiry.Simulation, error) {
	over, ok := c.askers.take(false)
	if !ok {
		return nil, ErrBusy
	}
	var took time.Duration
	defer func() { over(took) }()
	if !c.answers() {
		return nil, ErrNotLeading
	}
	e, no, err := c.jobs.imagine(ctx, object)
	if err != nil {
		return nil, err
	}
	if no != nil {
		out := &inquiry.Simulation{Outcome: inquiry.Waits, GPUs: gpusOf(e.job), Pods: podsOf(e.job)}
		because(out, no)
		return out, nil
	}
	ctx, stop := context.WithTimeout(ctx, answerWithin)
	defer stop()
	var out *inquiry.Simulation
	if asked := c.cycle.ask(ctx, func(ctx context.Context) {
		started := c.config.Clock.Now()
		out, err = c.cycle.simulate(ctx, e)
		took = c.config.Clock.Since(started)
	}); asked != nil {
		return nil, ErrBusy
	}
	return out, err
}

// imagine reads an object that does not exist as a job that waits. no is why it would not
// be tried. It makes dry runs of its pods, as for any job that waits.
func (j *Jobs) imagine(ctx context.Context, object *unstructured.Unstructured) (e *entry, no *reason.Reason, err error) {
	kind := j.kinds[object.GroupVersionKind().GroupKind()]
	if kind == nil {
		return nil, nil, fmt.Errorf("%w: Muster admits no %s", ErrInvalidJob, object.GetKind())
	}
	object = object.DeepCopy()
	object.SetUID(uuid.NewUUID())
	object.SetCreationTimestamp(metav1.NewTime(j.clock.Now()))
	object.SetOwnerReferences(nil)
	if _, assembled := kind.(workload.Assembler); assembled {
		return nil, nil, fmt.Errorf("%w: a %s alone says nothing of its pods", ErrInvalidJob, object.GetKind())
	}
	obj := kind.New()
	if u, ok := obj.(*unstructured.Unstructured); ok {
		u.Object = object.Object
	} else if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, obj, true); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrInvalidJob, err)
	}
	job, managed, no, err := kind.Read(ctx, j.reader, obj)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("reading %s %s: %w", object.GetKind(), object.GetName(), err)
	case !managed:
		return nil, nil, fmt.Errorf("%w: it has no label %s, or is left to another controller", ErrInvalidJob, workload.QueueLabel)
	}
	if err := bearable(job); err != nil {
		return nil, nil, err
	}
	if no == nil {
		no = workload.CheckTopology(job)
	}
	e = newEntry(job)
	if no != nil {
		return e, no, nil
	}
	job.Hints = hintsOf(job, obj)
	if e.priority, _, no, err = workload.Priority(ctx, j.reader, job); no != nil || err != nil {
		return e, no, err
	}
	no, err = j.renderer.Render(ctx, job)
	return e, no, err
}
