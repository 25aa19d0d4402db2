package scheduling

import (
	"context"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// eventsAtOnce is how many events about pods are written at a time: few, compared with
// the bindings, since the gang waits for these.
const eventsAtOnce = 4

// PaceEvents has the events that a scheduler, which is not running yet, records about
// its pods written to sink a few at a time: one for each pod that is bound would else be
// sent beside the bindings of those that come after it. They say when they happened,
// whenever they are written. They are written from when the returned broadcaster
// is started. What plugins record is not among them.
func PaceEvents(sched *scheduler.Scheduler, sink events.EventSink) events.EventBroadcaster {
	b := events.NewBroadcaster(pacedSink{sink: sink, turns: make(chan struct{}, eventsAtOnce)})
	for name, fw := range sched.Profiles {
		sched.Profiles[name] = pacedProfile{Framework: fw, recorder: b.NewRecorder(scheme.Scheme, name)}
	}
	return b
}

// pacedProfile is a profile whose events the scheduler records with another recorder.
type pacedProfile struct {
	framework.Framework
	recorder events.EventRecorderLogger
}

// EventRecorder implements framework.Framework.
func (p pacedProfile) EventRecorder() events.EventRecorderLogger { return p.recorder }

// pacedSink does as much at a time as there are turns. A broadcaster waits for each
// event on a goroutine of its own.
type pacedSink struct {
	sink  events.EventSink
	turns chan struct{}
}

var _ events.EventSink = pacedSink{}

// Create implements events.EventSink.
func (s pacedSink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	return s.inTurn(ctx, func() (*eventsv1.Event, error) { return s.sink.Create(ctx, e) })
}

// Update implements events.EventSink.
func (s pacedSink) Update(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	return s.inTurn(ctx, func() (*eventsv1.Event, error) { return s.sink.Update(ctx, e) })
}

// Patch implements events.EventSink.
func (s pacedSink) Patch(ctx context.Context, old *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	return s.inTurn(ctx, func() (*eventsv1.Event, error) { return s.sink.Patch(ctx, old, data) })
}

func (s pacedSink) inTurn(ctx context.Context, write func() (*eventsv1.Event, error)) (*eventsv1.Event, error) {
	select {
	case s.turns <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-s.turns }()
	return write()
}
