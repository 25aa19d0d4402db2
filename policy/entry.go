package policy

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
)

// entry is one policy as it serves: what its author wants now, and the versions
// of it that can be asked. It is immutable; the record is shared by all entries of
// one policy.
type entry struct {
	policy Policy
	// current is the newest version that compiled, nil if none did. good is the last
	// one before it that did not fail, nil if there is none.
	current, good *version
	// wrong is why the policy's own version did not compile.
	wrong  Errors
	record *record
}

// Failure is a policy that could not be asked, or not in its newest version.
type Failure struct {
	Policy string
	// Errors has at least one.
	Errors Errors
	// ServedBy is the generation of the last good version that answered instead; nil
	// if none did.
	ServedBy *int64
	// Does is what came of it: refused, warned or only recorded.
	Does Enforcement
}

func (f *Failure) message() string {
	text := f.Errors[0].Error()
	if more := len(f.Errors) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	if f.ServedBy != nil {
		return fmt.Sprintf("generation %d answered instead of one that failed: %s", *f.ServedBy, text)
	}
	return "the policy could not be evaluated: " + text
}

// answer is what one policy says about one object.
type answer struct {
	found   []Violation
	failure *Failure
}

// selects says that the policy is asked about the request.
func (e *entry) selects(r *admissionv1.AdmissionRequest) bool {
	match := &e.policy.Match
	if e.current != nil {
		match = &e.current.match
	}
	return match.selects(r) && !e.policy.Exempt.covers(r)
}

// ask evaluates the newest version, and the last good one where that fails.
func (e *entry) ask(ctx context.Context, s *subject, data *contents, now time.Time, limit time.Duration) answer {
	if e.current == nil {
		return answer{failure: &Failure{Policy: e.policy.Name, Errors: e.wrong, Does: e.policy.onError(false)}}
	}
	found, err := e.current.run(ctx, s, data, now, limit)
	a := answer{found: e.named(found)}
	if err == nil {
		return a
	}
	a.failure = &Failure{Policy: e.policy.Name, Errors: errorsOf(err), Does: e.policy.onError(true)}
	if e.good != nil {
		if found, err := e.good.run(ctx, s, data, now, limit); err == nil {
			a.found = e.named(found)
			a.failure.ServedBy, a.failure.Does = &e.good.generation, DryRun
		}
	}
	return a
}

// stuck is the answer of a policy that does not come back, and is in quarantine
// from now on.
func (e *entry) stuck(now time.Time) answer {
	if e.current != nil {
		e.current.stop(now)
	}
	return answer{failure: &Failure{Policy: e.policy.Name, Errors: Errors{{Message: errTooLong.Error()}}, Does: e.policy.onError(e.current != nil)}}
}

func (e *entry) named(found []Violation) []Violation {
	for i := range found {
		found[i].Policy = e.policy.Name
	}
	return found
}

// replace is the entry of a changed policy. before is nil for a new one. A source
// that does not compile leaves the versions that there are, with their match and
// parameters; enforcement and exemptions hold at once.
func replace(ctx context.Context, before *entry, p Policy, data *store) *entry {
	next := &entry{policy: p, record: &record{}}
	if before != nil {
		next.record, next.current, next.good = before.record, before.current, before.good
	}
	var compiled *program
	if old := next.current; old != nil && old.source == p.source() {
		if old.scope == p.scope() {
			return next
		}
		compiled = old.program
	}
	if compiled == nil {
		var err error
		if compiled, err = compile(ctx, &p, data); err != nil {
			next.wrong = errorsOf(err)
			return next
		}
	}
	v, err := newVersion(&p, compiled)
	if err != nil {
		next.wrong = errorsOf(err)
		return next
	}
	if old := next.current; old != nil && !old.failed.Load() {
		next.good = old
	}
	next.current = v
	return next
}

// Recorded is a violation, and of what object.
type Recorded struct {
	Violation
	Kind, Namespace, Name string
	At                    time.Time
}

// recorded is how many violations are kept of each policy.
const recorded = 20

// record is what has come of a policy so far.
type record struct {
	mu       sync.Mutex
	counts   Counts
	last     []Recorded
	failures Errors
}

// Counts are how often things have happened since the Engine began.
type Counts struct {
	// Reviews is how often the policy was asked; Denied, Warned and DryRun are
	// violations by what they did; Standing are those that were there before an
	// update; Failed is how often it could not be evaluated.
	Reviews, Denied, Warned, DryRun, Standing, Failed int64
}

// Status is what became of a policy.
type Status struct {
	Name string
	// Generation is that of the policy, and Serving that of the version that is
	// asked: older if the newest does not compile, nil if none ever has.
	Generation int64
	Serving    *int64
	// Errors are why the newest version does not compile, or else why its latest
	// evaluation failed.
	Errors Errors
	// Compiled says that the newest version compiles, in RegoVersion and for Input.
	Compiled           bool
	RegoVersion, Input string
	// Quarantined is until when it is not asked because it ran too long; zero if it is.
	Quarantined time.Time
	Counts      Counts
	// Last are the last violations, the newest last.
	Last []Recorded
}

func (e *entry) status(now time.Time) Status {
	e.record.mu.Lock()
	defer e.record.mu.Unlock()
	s := Status{
		Name: e.policy.Name, Generation: e.policy.Generation, Compiled: e.current != nil && len(e.wrong) == 0,
		Errors: e.wrong, Counts: e.record.counts, Last: slices.Clone(e.record.last),
	}
	if e.current == nil {
		return s
	}
	serving := e.policy.Generation // what has changed since may be the enforcement alone
	if len(e.wrong) > 0 {
		serving = e.current.generation
	}
	s.Serving, s.RegoVersion, s.Input = &serving, e.current.program.version, e.current.program.input
	if until := e.current.until.Load(); until > now.UnixNano() {
		s.Quarantined = time.Unix(0, until)
	}
	if len(s.Errors) == 0 && e.current.failed.Load() {
		s.Errors = e.record.failures
	}
	return s
}

// note counts an answer to a request.
func (r *record) note(a answer, does func(*Violation) Enforcement, of *admissionv1.AdmissionRequest, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Reviews++
	if a.failure != nil {
		r.counts.Failed++
		r.failures = a.failure.Errors
	}
	name := ""
	if len(a.found) > 0 {
		name = nameOf(of)
	}
	for i := range a.found {
		v := &a.found[i]
		switch {
		case v.Standing:
			r.counts.Standing++
		case does(v) == Deny:
			r.counts.Denied++
		case does(v) == Warn:
			r.counts.Warned++
		default:
			r.counts.DryRun++
		}
		r.last = append(r.last, Recorded{Violation: *v, Kind: of.Kind.Kind, Namespace: of.Namespace, Name: name, At: now})
	}
	if extra := len(r.last) - recorded; extra > 0 {
		r.last = slices.Delete(r.last, 0, extra)
	}
}
