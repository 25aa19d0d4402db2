package scheduling

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

// slowSink holds every event until it is let go.
type slowSink struct {
	events.EventSink
	begun chan *eventsv1.Event
	letGo chan struct{}
	now   atomic.Int32
}

// Create implements events.EventSink.
func (s *slowSink) Create(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	if n := s.now.Add(1); n > eventsAtOnce {
		return nil, fmt.Errorf("%d events are written at a time", n)
	}
	defer s.now.Add(-1)
	s.begun <- e
	<-s.letGo
	return e, nil
}

// TestEventsOfTheSchedulerAreWrittenAFewAtATime and each says when it happened.
func TestEventsOfTheSchedulerAreWrittenAFewAtATime(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const n = 3 * eventsAtOnce
	sink := &slowSink{begun: make(chan *eventsv1.Event, n), letGo: make(chan struct{})}
	sched := &scheduler.Scheduler{Profiles: profile.Map{"muster": nil}}
	b := PaceEvents(sched, sink)
	defer b.Shutdown()
	if err := b.StartRecordingToSinkWithContext(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprintf("pod-%d", i)}}
		sched.Profiles["muster"].EventRecorder().Eventf(pod, nil, corev1.EventTypeNormal, "Scheduled", "Binding", "to node %d", i)
	}
	recorded := metav1.NowMicro()
	pods := map[string]bool{}
	next := func() {
		t.Helper()
		select {
		case e := <-sink.begun:
			pods[e.Regarding.Name] = true
			if e.ReportingController != "muster" || recorded.Before(&e.EventTime) {
				t.Errorf("%s says that it happened at %v, to %v it was recorded", e.ReportingController, e.EventTime, recorded)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%d of %d events are written", len(pods), n)
		}
	}
	for range eventsAtOnce {
		next()
	}
	select {
	case e := <-sink.begun:
		t.Errorf("the event of %s is written beside %d others", e.Regarding.Name, eventsAtOnce)
	case <-time.After(50 * time.Millisecond):
	}
	close(sink.letGo)
	for len(pods) < n {
		next()
	}
}

// TestAnEventThatWaitsForItsTurnEndsWithItsContext.
func TestAnEventThatWaitsForItsTurnEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := pacedSink{sink: &slowSink{}, turns: make(chan struct{})}
	cancel()
	if _, err := s.Create(ctx, &eventsv1.Event{}); err == nil {
		t.Error("it was written although nobody has a turn")
	}
}
