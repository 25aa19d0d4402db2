package serving

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	// room is how many bytes of requests are worked on at once, and share is what a small
	// one takes of it: so there are 32 at most. What is read of a request takes some times
	// its size in memory, and of many large ones that share the processors none would be
	// answered in time.
	room  = 4 << 20
	share = room / 32
	// patience is how long a request waits for its turn; what waits longer has used
	// up the API server's time-out.
	patience = 500 * time.Millisecond
	// margin is what of the API server's time-out is left for the way back: it says the
	// time-out in whole seconds, rounded up. leastTime is left for the answer all the same.
	margin    = time.Second
	leastTime = 250 * time.Millisecond
)

// Decide answers a request. An error says that it could not, through no fault of
// the object.
type Decide func(ctx context.Context, req admission.Request) (admission.Response, error)

// Reasons for which a request is not answered.
const (
	ReasonFault = "fault"
	ReasonPanic = "panic"
	ReasonBusy  = "busy"
)

// New returns the handler of AdmissionReviews that are posted to the path.
// unanswered is called with one of the reasons for each request that gets a 503.
func New(path string, decide Decide, unanswered func(reason string)) (http.Handler, error) {
	inner := admission.HandlerFunc(func(ctx context.Context, req admission.Request) admission.Response {
		response, err := decide(ctx, req)
		if err != nil {
			ctx.Value(callKey{}).(*call).fault = err
		}
		return response
	})
	hook, err := admission.StandaloneWebhook(
		(&admission.Webhook{Handler: inner}).WithRecoverPanic(false),
		admission.StandaloneOptions{Logger: klog.Background(), MetricsPath: path})
	if err != nil {
		return nil, fmt.Errorf("making the webhook at %s: %w", path, err)
	}
	return &server{path: path, hook: hook, room: semaphore.NewWeighted(room), patience: patience, unanswered: unanswered}, nil
}

type server struct {
	path       string
	hook       http.Handler
	room       *semaphore.Weighted
	patience   time.Duration
	unanswered func(reason string)
}

// call is one request. A fault makes what is written of the answer void.
type call struct{ fault error }

type callKey struct{}

var errBusy = errors.New("too many requests at once")

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	size := sizeOf(r)
	if !s.turn(r.Context(), size) {
		s.fail(w, ReasonBusy, errBusy)
		return
	}
	defer s.room.Release(size)
	c := &call{}
	answer := &answer{ResponseWriter: w, call: c}
	defer func() {
		if p := recover(); p != nil {
			s.fail(w, ReasonPanic, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	ctx, cancel := deadline(r)
	defer cancel()
	s.hook.ServeHTTP(answer, r.WithContext(context.WithValue(ctx, callKey{}, c)))
	if c.fault != nil {
		s.fail(w, ReasonFault, c.fault)
	}
}

// deadline is the request's context, which ends before the API server stops waiting.
func deadline(r *http.Request) (context.Context, context.CancelFunc) {
	timeout, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil {
		return context.WithCancel(r.Context()) // asked by somebody who waits
	}
	return context.WithTimeout(r.Context(), max(timeout-margin, leastTime))
}

// sizeOf is how much of the room a request takes. One that is larger takes all.
func sizeOf(r *http.Request) int64 {
	if r.ContentLength < 0 {
		return room // it does not say
	}
	return min(max(r.ContentLength, share), room)
}

// turn waits until the request may be worked on. Its body is not read before.
func (s *server) turn(ctx context.Context, size int64) bool {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	return s.room.Acquire(ctx, size) == nil
}

// fail answers that there is no answer. What has happened is for the log: the
// message reaches the author of the object.
func (s *server) fail(w http.ResponseWriter, reason string, err error) {
	s.unanswered(reason)
	klog.Background().Error(err, "A request was not answered", "path", s.path, "reason", reason)
	http.Error(w, "Muster's webhook cannot answer now: "+reason, http.StatusServiceUnavailable)
}

// answer drops what is written once there is a fault.
type answer struct {
	http.ResponseWriter
	call *call
}

func (a *answer) WriteHeader(status int) {
	if a.call.fault == nil {
		a.ResponseWriter.WriteHeader(status)
	}
}

func (a *answer) Write(b []byte) (int, error) {
	if a.call.fault != nil {
		return len(b), nil
	}
	return a.ResponseWriter.Write(b)
}
