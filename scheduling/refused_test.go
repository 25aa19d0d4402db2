package scheduling

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// refusals is a job that is admitted, and an API server that answers its
// resumption with err as long as there is one.
type refusals struct {
	*scene
	jobs *Jobs
	wl   *kueue.Workload
	try  func() error
	err  error
}

func newRefusals(t *testing.T) *refusals {
	t.Helper()
	r := &refusals{scene: testScene(t, 8, 8)}
	js := &jobset.JobSet{}
	js.Namespace, js.Name, js.UID = namespace, "a", "a"
	js.Spec.Suspend = new(true)
	r.jobs = r.jobsOn(t, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
		if r.err != nil {
			return r.err
		}
		return c.Patch(ctx, obj, p, opts...)
	}}, js)
	of := job("a", set("node", 0, 1, 8))
	stored := r.stored(t, r.jobs, of)
	r.plan(of, []string{"node-0"})
	if err := r.jobs.writeAdmission(t.Context(), of.Owner.UID); err != nil {
		t.Fatal(err)
	}
	r.wl = stored
	kind := r.jobs.kinds[of.Owner.GroupKind()]
	r.try = func() error {
		want := r.read(suspended(of), r.workloadOf(of.Owner.UID), nil)
		if want.do != doResume {
			t.Fatalf("to be done is %+v, want a resumption", want)
		}
		want.first, want.infos = true, nil
		return r.jobs.act(t.Context(), kind, js, of, want)
	}
	return r
}

func (r *refusals) says(t *testing.T) string {
	t.Helper()
	return apimeta.FindStatusCondition(latest(t, r.jobs, r.wl).Status.Conditions, kueue.WorkloadPodsReady).Message
}

func TestARefusedStartIsToldOnceItLasts(t *testing.T) {
	invalid := apierrors.NewInvalid(schema.GroupKind{Group: "jobset.x-k8s.io", Kind: "JobSet"}, "a", nil)
	for name, tc := range map[string]struct {
		err  error
		told bool
	}{
		"a field that may not change":          {invalid, true},
		"a webhook that refuses":               {apierrors.NewForbidden(schema.GroupResource{Resource: "jobsets"}, "a", errors.New("denied the request: no")), true},
		"a webhook that does not answer":       {apierrors.NewInternalError(errors.New(`failed calling webhook "x": connection refused`)), true},
		"an API server that fails":             {apierrors.NewInternalError(errors.New("etcd is away")), false},
		"an object that is out of date":        {apierrors.NewConflict(schema.GroupResource{}, "a", nil), false},
		"an API server that does not answer":   {errors.New("connection refused"), false},
		"an API server that is asked too much": {apierrors.NewTooManyRequests("later", 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRefusals(t)
			before := r.says(t)
			r.err = tc.err
			if err := r.try(); !errors.Is(err, tc.err) {
				t.Fatalf("err %v, want to be tried again for %v", err, tc.err)
			}
			if got := r.says(t); got != before {
				t.Errorf("told of the first refusal: %q", got)
			}
			r.clock.Step(refusedFor)
			for range 3 {
				if err := r.try(); !errors.Is(err, tc.err) {
					t.Fatalf("err %v, want to be tried again for %v", err, tc.err)
				}
			}
			if got := r.says(t); strings.Contains(got, tc.err.Error()) != tc.told {
				t.Errorf("the Workload says %q", got)
			}
			events := 1 // Admitted
			if tc.told {
				events = 2
			}
			if got := len(r.jobs.recorder.(*record.FakeRecorder).Events); got != events {
				t.Errorf("%d events, want %d", got, events)
			}
			r.clock.Step(time.Minute)
			late := r.tick(Timing{StartTimeout: time.Minute})
			if len(late) != 0 {
				t.Fatalf("the clock runs from the first tick, and %d are late", len(late))
			}
			r.clock.Step(time.Minute)
			late = r.tick(Timing{StartTimeout: time.Minute})
			if len(late) != 1 || strings.Contains(late[0].eviction.message, tc.err.Error()) != tc.told {
				t.Errorf("it is evicted with %+v", late)
			}
			r.err = nil
			if err := r.try(); err != nil {
				t.Fatal(err)
			}
			if got := r.says(t); got != before {
				t.Errorf("when it has started, the Workload says %q", got)
			}
		})
	}
}

func TestARefusedStopIsToldOnceItLasts(t *testing.T) {
	budget := apierrors.NewTooManyRequests("it would violate the pod's disruption budget", 0)
	budget.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget db needs 1 healthy pods"}}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "jobsets"}, "a", errors.New("denied the request: no"))
	for name, tc := range map[string]struct {
		err      error
		admitted bool
		told     string
	}{
		"a policy that refuses":                      {forbidden, true, "it is to be stopped (make way) and cannot be: suspending JobSet team-a/a: " + forbidden.Error() + "; it is tried again"},
		"a disruption budget":                        {budget, true, "disruption budget"},
		"a policy, of a job that runs unadmitted":    {forbidden, false, "it is to be stopped (it ran without being admitted"},
		"an API server that is asked too much":       {apierrors.NewTooManyRequests("later", 1), true, ""},
		"an object that is out of date":              {apierrors.NewConflict(schema.GroupResource{}, "a", nil), true, ""},
		"a policy that is changed before it is told": {nil, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRefusals(t)
			js := &jobset.JobSet{}
			if err := r.jobs.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "a"}, js); err != nil {
				t.Fatal(err)
			}
			js.Spec.Suspend = new(false)
			if err := r.jobs.client.Update(t.Context(), js); err != nil {
				t.Fatal(err)
			}
			of := running(job("a", set("node", 0, 1, 8)))
			r.read(of, r.workloadOf(of.Owner.UID), nil)
			if tc.admitted {
				r.stop(of, eviction{reason: kueue.WorkloadEvictedByPreemption, message: "make way"})
			} else {
				r.fresh(8)
			}
			r.err = tc.err
			if tc.err == nil {
				r.err = forbidden
			}
			events := r.jobs.recorder.(*record.FakeRecorder).Events
			for len(events) > 0 {
				<-events
			}
			r.jobs.ledger = r.Ledger
			stop := func() error {
				want := r.read(of, r.workloadOfJob(of), nil)
				if tc.admitted {
					want = r.want(r.entry(of))
				}
				if want.do != doSuspend {
					t.Fatalf("to be done is %+v", want)
				}
				return r.jobs.act(t.Context(), r.jobs.kinds[of.Owner.GroupKind()], js, of, want)
			}
			if err := stop(); !errors.Is(err, r.err) || len(events) != 0 {
				t.Fatalf("err %v, want to be tried again for %v; %d events at the first try", err, r.err, len(events))
			}
			if tc.err == nil {
				r.err = nil
			}
			r.clock.Step(refusedFor)
			for range 3 {
				if err := stop(); !errors.Is(err, r.err) {
					t.Fatalf("err %v, want to be tried again for %v", err, r.err)
				}
			}
			var got []string
			for len(events) > 0 {
				if e := <-events; strings.Contains(e, noteStopRefused) {
					got = append(got, e)
				}
			}
			if tc.told == "" && len(got) > 0 || tc.told != "" && (len(got) != 1 || !strings.Contains(got[0], tc.told)) {
				t.Errorf("told is %q, want %q", got, tc.told)
			}
		})
	}
}

// The reason that a job tells has the refusal in it.
func TestARefusalThatIsToldIsReported(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.admitted(job("a", set("node", 0, 1, 8)), []string{"node-0"})
	s.refusedAgain(j.Owner.UID, errUnanswered)
	before := s.wishes.reports
	s.saidRefused(j.Owner.UID, "no")
	if s.wishes.reports == before {
		t.Error("nothing is reported")
	}
}
