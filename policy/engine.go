package policy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
)

// Describer says what is known of an object beyond its own fields. What it returns is
// input.workload: a pointer to a struct with a JSON form and no embedded field, or nil to
// leave that out. What is large in it belongs into a map of pointers to structs, of which
// only those fields are converted for OPA that a policy looks at.
type Describer interface {
	// Describe is about object, which is the request's new or old one, and is not
	// changed.
	Describe(ctx context.Context, r *admissionv1.AdmissionRequest, object map[string]any) any
}

// Options are the limits of an Engine; a zero one has its default.
type Options struct {
	// PolicyTime is how long one policy may take about one object: 500 ms. A good one
	// takes less than one, and much longer only where it gets no processor.
	PolicyTime time.Duration
	// ReviewTime is how long all policies together may take: 1.8 s. The context given
	// to Review can only shorten it.
	ReviewTime time.Duration
	// Reviews is how many objects are reviewed at a time: GOMAXPROCS. Others wait.
	Reviews int
	// Clock is the real one unless it is set.
	Clock clock.Clock
	// Describer is asked for input.workload; without one there is none.
	Describer Describer
}

// Engine asks policies about objects. Its methods may be called at the same time.
type Engine struct {
	options Options
	data    *store
	serving atomic.Pointer[[]*entry]
	// changing is held by who changes the policies.
	changing sync.Mutex
	slots    chan struct{}
}

// New is an Engine without policies and with an empty inventory.
func New(o Options) *Engine {
	o.PolicyTime = cmp.Or(o.PolicyTime, 500*time.Millisecond)
	o.ReviewTime = cmp.Or(o.ReviewTime, 1800*time.Millisecond)
	o.Reviews = cmp.Or(o.Reviews, runtime.GOMAXPROCS(0))
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	e := &Engine{options: o, data: newStore(), slots: make(chan struct{}, o.Reviews)}
	e.serving.Store(&[]*entry{})
	return e
}

// SetPolicies replaces all policies. Of one that does not compile, the last version
// that did goes on serving; Statuses says what is wrong with it. Reviews that are
// under way go on with what they began with. Of two policies of one name the first
// counts.
func (e *Engine) SetPolicies(ctx context.Context, policies []Policy) {
	e.changing.Lock()
	defer e.changing.Unlock()
	before := map[string]*entry{}
	for _, old := range *e.serving.Load() {
		before[old.policy.Name] = old
	}
	next := make([]*entry, 0, len(policies))
	for _, p := range policies {
		if !slices.ContainsFunc(next, func(n *entry) bool { return n.policy.Name == p.Name }) {
			next = append(next, replace(ctx, before[p.Name], p, e.data))
		}
	}
	slices.SortFunc(next, func(a, b *entry) int { return strings.Compare(a.policy.Name, b.policy.Name) })
	e.serving.Store(&next)
}

// SetInventory replaces data.inventory by what the JSON form of a map or struct says. The
// value is kept, and read by reviews: nobody may change it any more.
func (e *Engine) SetInventory(inventory any) error {
	e.changing.Lock()
	defer e.changing.Unlock()
	return e.data.replace(inventory)
}

// Statuses are those of all policies, by name.
func (e *Engine) Statuses() []Status {
	now := e.options.Clock.Now()
	entries := *e.serving.Load()
	out := make([]Status, len(entries))
	for i, entry := range entries {
		out[i] = entry.status(now)
	}
	return out
}

// Review asks all policies about a request that are for it. An error says that they
// could not be asked, for a reason that is not theirs: the caller decides nothing
// then.
func (e *Engine) Review(ctx context.Context, r *admissionv1.AdmissionRequest) (Decision, error) {
	return e.review(ctx, r, false)
}

// Audit is Review about an object that exists, as a request of nobody to create it. It
// is no review that Statuses count.
func (e *Engine) Audit(ctx context.Context, r *admissionv1.AdmissionRequest) (Decision, error) {
	return e.review(ctx, r, true)
}

func (e *Engine) review(ctx context.Context, r *admissionv1.AdmissionRequest, audit bool) (Decision, error) {
	var asked []*entry
	for _, entry := range *e.serving.Load() {
		if entry.selects(r) {
			asked = append(asked, entry)
		}
	}
	if len(asked) == 0 {
		return Decision{Allowed: true}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.options.ReviewTime)
	defer cancel()
	select {
	case e.slots <- struct{}{}:
	case <-ctx.Done():
		return Decision{}, fmt.Errorf("reviewing %s: %w", nameOf(r), errBusy)
	}
	review := &underway{engine: e, request: r, audit: audit, data: e.data.current.Load(), now: e.options.Clock.Now()}
	type outcome struct {
		at     int
		answer answer
	}
	ready, answers, failed := make(chan bool, 1), make(chan outcome, len(asked)), make(chan error, 1)
	// A built-in function that nothing interrupts keeps this goroutine, and its slot,
	// and not the request.
	go func() {
		growStack()
		defer func() { <-e.slots }()
		defer func() {
			if p := recover(); p != nil {
				failed <- fmt.Errorf("reviewing %s: %v", nameOf(r), p)
			}
		}()
		same, err := review.open(ctx)
		if err != nil {
			failed <- err
			return
		}
		ready <- same
		if same {
			return
		}
		for i, entry := range asked {
			answers <- outcome{i, review.ask(ctx, entry)}
		}
	}()
	// What is interrupted comes back soon after the deadline; what does not is stuck.
	over, stuck := ctx.Done(), (<-chan time.Time)(nil)
	all := make([]answer, 0, len(asked))
	for {
		select {
		case err := <-failed:
			return Decision{}, err
		case same := <-ready:
			if same {
				return Decision{Allowed: true}, nil
			}
		case o := <-answers:
			all = append(all, o.answer)
			if len(all) == len(asked) {
				return review.decide(asked, all), nil
			}
		case <-over:
			over, stuck = nil, e.options.Clock.After(graceTime)
		case <-stuck:
			if len(all) == 0 && review.subject.Load() == nil {
				return Decision{}, fmt.Errorf("describing %s took too long", nameOf(r))
			}
			all = append(all, asked[len(all)].stuck(review.now))
			for _, entry := range asked[len(all):] {
				all = append(all, answer{failure: &Failure{
					Policy: entry.policy.Name, Does: entry.policy.onError(entry.current != nil),
					Errors: Errors{{Message: "there was no time left for it"}},
				}})
			}
			return review.decide(asked, all), nil
		}
	}
}

var errBusy = errors.New("too many objects are being reviewed")

// growStack makes a new goroutine's stack as large as an evaluation needs, while there is
// nothing on it: each of OPA's many frames would be moved each time that it is doubled.
//
//go:noinline
func growStack() {
	var room [stackSize]byte
	runtime.KeepAlive(&room)
}

// stackSize is somewhat more than a policy with a few nested rules needs.
const stackSize = 120 << 10

// graceTime is how long after its deadline an evaluation may come back.
const graceTime = 100 * time.Millisecond

// underway is one request that is reviewed.
type underway struct {
	engine  *Engine
	request *admissionv1.AdmissionRequest
	// audit says that it is not counted.
	audit   bool
	data    *contents
	now     time.Time
	subject atomic.Pointer[subject]
	// before is the old object, and old the subject that it makes.
	before map[string]any
	old    *subject
}

// open reads the request, and says whether it changes nothing of interest.
func (r *underway) open(ctx context.Context) (same bool, err error) {
	object, err := read(r.request.Object.Raw)
	if err != nil {
		return false, fmt.Errorf("reading the request's object: %w", err)
	}
	if r.before, err = read(r.request.OldObject.Raw); err != nil {
		return false, fmt.Errorf("reading the request's old object: %w", err)
	}
	if r.updates() && unchanged(r.before, object) {
		return true, nil
	}
	s, err := newSubject(r.request, object, r.before, r.describe(ctx, object))
	if err != nil {
		return false, err
	}
	r.subject.Store(s)
	return false, nil
}

func (r *underway) updates() bool {
	return r.request.Operation == admissionv1.Update && r.before != nil
}

func (r *underway) describe(ctx context.Context, object map[string]any) any {
	if r.engine.options.Describer == nil || object == nil {
		return nil
	}
	// What cannot be read in half of the time is not known: the policies need the rest.
	ctx, cancel := context.WithTimeout(ctx, r.engine.options.ReviewTime/2)
	defer cancel()
	return r.engine.options.Describer.Describe(ctx, r.request, object)
}

// ask is one policy's answer, with what the old object had marked.
func (r *underway) ask(ctx context.Context, e *entry) answer {
	limit := r.engine.options.PolicyTime
	a := e.ask(ctx, r.subject.Load(), r.data, r.now, limit)
	if len(a.found) == 0 || !r.updates() {
		return a
	}
	if r.old == nil {
		old, err := newSubject(r.request, r.before, r.before, r.describe(ctx, r.before))
		if err != nil {
			// It was stored once, so it can be read; what cannot be compared is new.
			return a
		}
		r.old = old
	}
	if before := e.ask(ctx, r.old, r.data, r.now, limit); before.failure == nil || before.failure.ServedBy != nil {
		ratchet(a.found, before.found)
	}
	return a
}

// decide puts the answers together, and records those of a review.
func (r *underway) decide(asked []*entry, answers []answer) Decision {
	d := Decision{Allowed: true}
	for i, e := range asked {
		a := answers[i]
		does := func(v *Violation) Enforcement {
			if v.Standing || v.warns {
				return milder(Warn, e.policy.enforcement())
			}
			return e.policy.enforcement()
		}
		if !r.audit {
			e.record.note(a, does, r.request, r.now)
		}
		for k := range a.found {
			switch does(&a.found[k]) {
			case Deny:
				d.Allowed, d.Denials = false, append(d.Denials, a.found[k])
			case Warn:
				d.Warnings = append(d.Warnings, a.found[k])
			default:
				d.Recorded = append(d.Recorded, a.found[k])
			}
		}
		if a.failure != nil {
			d.Failures = append(d.Failures, *a.failure)
			d.Allowed = d.Allowed && a.failure.Does != Deny
		}
	}
	d.sort()
	return d
}

// nameOf is the object's name as far as it is known.
func nameOf(r *admissionv1.AdmissionRequest) string {
	if r.Name != "" {
		return r.Name
	}
	var o metav1.PartialObjectMetadata
	if json.Unmarshal(r.Object.Raw, &o) == nil && o.GenerateName != "" {
		return o.GenerateName + "*"
	}
	return "(unnamed)"
}
