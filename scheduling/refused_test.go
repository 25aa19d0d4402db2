package scheduling

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
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
