package audit

import (
	"context"
	"fmt"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/muster-gpu/muster/policy"
)

// kept is how many violations are kept of each policy.
const kept = 20

// Result is what an audit found about one policy.
type Result struct {
	// At is when the audit ended.
	At time.Time
	// Denied, Warned and DryRun are violations by what they would do to an object that is
	// created now; Failed is how often the policy could not be evaluated.
	Denied, Warned, DryRun, Failed int64
	// Found are the first of them.
	Found []policy.Recorded
}

// Options are what an audit looks at, and how often.
type Options struct {
	// Interval is how long after an audit the next one begins.
	Interval time.Duration
	// Chunk is how many objects are read at a time.
	Chunk int64
	// Exempt are namespaces that are not looked at.
	Exempt []string
}

// Auditor audits again and again.
type Auditor struct {
	engine  *policy.Engine
	objects dynamic.Interface
	clock   clock.Clock
	options Options
	exempt  sets.Set[string]

	mu      sync.Mutex
	results map[string]Result
}

// New returns an Auditor that has found nothing yet.
func New(engine *policy.Engine, objects dynamic.Interface, clock clock.Clock, options Options) *Auditor {
	return &Auditor{engine: engine, objects: objects, clock: clock, options: options, exempt: sets.New(options.Exempt...)}
}

// Results are those of the last audit that ended, by policy; nil before the first.
func (a *Auditor) Results() map[string]Result {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.results
}

// Run audits until ctx ends, first at once.
func (a *Auditor) Run(ctx context.Context) {
	for {
		results, err := a.audit(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			klog.FromContext(ctx).Error(err, "Could not audit what exists", "retryIn", a.options.Interval)
		default:
			a.mu.Lock()
			a.results = results
			a.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-a.clock.After(a.options.Interval):
		}
	}
}

// audit asks about all objects. Those that cannot be asked about are passed over.
func (a *Auditor) audit(ctx context.Context) (map[string]Result, error) {
	r := round{at: a.clock.Now(), results: map[string]*Result{}}
	passed, why := 0, error(nil)
	for _, of := range kinds {
		options := metav1.ListOptions{Limit: a.options.Chunk}
		for {
			page, err := a.objects.Resource(of.resource).List(ctx, options)
			if apierrors.IsNotFound(err) {
				break // the cluster does not have the kind
			}
			if err != nil {
				return nil, fmt.Errorf("listing %s: %w", of.resource.Resource, err)
			}
			for i := range page.Items {
				err := a.ask(ctx, &of, &page.Items[i], &r)
				switch {
				case ctx.Err() != nil:
					return nil, ctx.Err()
				case err != nil:
					passed, why = passed+1, err
				}
			}
			if options.Continue = page.GetContinue(); options.Continue == "" {
				break
			}
		}
	}
	if passed > 0 {
		klog.FromContext(ctx).Error(why, "Could not audit some objects, of which this is the last", "objects", passed)
	}
	out := make(map[string]Result, len(r.results))
	for _, s := range a.engine.Statuses() {
		out[s.Name] = Result{At: r.at}
	}
	for name, found := range r.results {
		found.At = r.at
		out[name] = *found
	}
	return out, nil
}

// ask asks about one object.
func (a *Auditor) ask(ctx context.Context, of *kind, object *unstructured.Unstructured, r *round) error {
	if a.exempt.Has(object.GetNamespace()) || !of.concerns(object) {
		return nil
	}
	object.SetManagedFields(nil)
	body, err := object.MarshalJSON()
	if err != nil {
		return fmt.Errorf("reading %s %s/%s: %w", object.GetKind(), object.GetNamespace(), object.GetName(), err)
	}
	gvk := object.GroupVersionKind()
	request := &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Namespace: object.GetNamespace(), Name: object.GetName(),
		Kind:     metav1.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind},
		Resource: metav1.GroupVersionResource{Group: gvk.Group, Version: gvk.Version, Resource: of.resource.Resource},
	}
	request.Object.Raw = body
	decision, err := a.engine.Audit(ctx, request)
	if err != nil {
		return err
	}
	r.note(request, &decision)
	return nil
}

// round is one audit.
type round struct {
	at      time.Time
	results map[string]*Result
}

func (r *round) of(policy string) *Result {
	if r.results[policy] == nil {
		r.results[policy] = &Result{}
	}
	return r.results[policy]
}

func (r *round) note(of *admissionv1.AdmissionRequest, d *policy.Decision) {
	note := func(found []policy.Violation, count func(*Result) *int64) {
		for _, v := range found {
			result := r.of(v.Policy)
			*count(result)++
			if len(result.Found) < kept {
				result.Found = append(result.Found, policy.Recorded{Violation: v, Kind: of.Kind.Kind, Namespace: of.Namespace, Name: of.Name, At: r.at})
			}
		}
	}
	note(d.Denials, func(r *Result) *int64 { return &r.Denied })
	note(d.Warnings, func(r *Result) *int64 { return &r.Warned })
	note(d.Recorded, func(r *Result) *int64 { return &r.DryRun })
	for i := range d.Failures {
		r.of(d.Failures[i].Policy).Failed++
	}
}
