package rendering

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-gpu/muster/workload"
)

// server answers dry runs with a sidecar, or with an error.
type server struct {
	client.WithWatch
	t     *testing.T
	clock *testclock.FakeClock
	err   error
	asked int
	put   func(client.Object) error
}

func newServer(t *testing.T, objects ...client.Object) *server {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, clock: testclock.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))}
	store := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	s.put = func(o client.Object) error { return store.Create(t.Context(), o) }
	s.WithWatch = interceptor.NewClient(store, interceptor.Funcs{Create: s.create})
	return s
}

func (s *server) create(_ context.Context, _ client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
	switch o := obj.(type) {
	case *authenticationv1.SelfSubjectReview:
		o.Status.UserInfo.Username = scheduler
		return nil
	case *corev1.Pod:
		options := (&client.CreateOptions{}).ApplyOptions(opts)
		if len(options.DryRun) != 1 || options.DryRun[0] != metav1.DryRunAll {
			s.t.Error("a pod is created for real")
		}
		s.asked++
		if s.err != nil {
			return s.err
		}
		o.Name, o.UID = fmt.Sprint(o.GenerateName, s.asked), "uid"
		o.Spec.Volumes = append(o.Spec.Volumes, corev1.Volume{
			Name: fmt.Sprint("kube-api-access-", s.asked), VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}},
		})
		o.Spec.Containers = append(o.Spec.Containers, corev1.Container{Name: "proxy", Resources: corev1.ResourceRequirements{Requests: amountsOf("cpu", "500m")}})
		return nil
	}
	s.t.Errorf("a %T is created", obj)
	return nil
}

// cpu is what a renderer charges and places for a template.
func (s *server) cpu(r *Renderer, t *corev1.PodTemplateSpec) (charged, placed string) {
	s.t.Helper()
	job := &workload.Job{PodSets: []workload.PodSet{{Name: "node", Template: *t}}}
	job.Owner.Namespace = namespace
	no, err := r.Render(s.t.Context(), job)
	if no != nil || err != nil {
		s.t.Fatal(no, err)
	}
	of := func(p *corev1.Pod) string {
		q := requests(&p.Spec)[corev1.ResourceCPU]
		return q.String()
	}
	return of(job.PodSets[0].Rendered.Charged), of(job.PodSets[0].Rendered.Placed)
}

func (s *server) expect(r *Renderer, when string, t *corev1.PodTemplateSpec, wantPlaced string, wantAsked int) {
	s.t.Helper()
	charged, placed := s.cpu(r, t)
	if charged != "2" || placed != wantPlaced || s.asked != wantAsked {
		s.t.Errorf("%s: charged %s, placed %s, asked %d times; want 2, %s, %d", when, charged, placed, s.asked, wantPlaced, wantAsked)
	}
}

func fenced(t *testing.T, more ...client.Object) []client.Object {
	policy, binding := shipped(t)
	defaults := limitRange("defaults", amountsOf("cpu", "2"), nil)
	return append(more, policy, binding, &defaults)
}

func TestRenderer(t *testing.T) {
	other := template(func(s *corev1.PodSpec) { s.Containers[0].Image = "example.com/other" })

	t.Run("a template is asked for once, and again when the answer is old or something has changed", func(t *testing.T) {
		s := newServer(t, fenced(t)...)
		r := NewRenderer(s, s, s.clock, true)
		s.expect(r, "first", template(), "500m", 1)
		s.expect(r, "again", template(), "500m", 1)
		s.expect(r, "another template", other, "500m", 2)
		r.Forget("team-b")
		s.expect(r, "after a change elsewhere", template(), "500m", 2)
		r.Forget(namespace)
		s.expect(r, "after a change here", template(), "500m", 3)
		s.clock.Step(Freshness + time.Second)
		s.expect(r, "when the answer is old", template(), "500m", 4)
	})
	t.Run("equal batch Jobs are asked for once, and each pod has the labels of its own Job", func(t *testing.T) {
		s := newServer(t, fenced(t)...)
		r := NewRenderer(s, s, s.clock, true)
		of := func(uid string, change ...func(*corev1.PodSpec)) *corev1.PodTemplateSpec {
			job := template(change...)
			job.Labels[batchv1.ControllerUidLabel] = uid
			return job
		}
		for _, uid := range []string{"a", "b"} {
			if got := r.dryRun(t.Context(), namespace, of(uid)); got == nil || got.Labels[batchv1.ControllerUidLabel] != uid || got.Labels["app"] != "train" {
				t.Errorf("Job %s: the pod is %+v", uid, got)
			}
		}
		if s.asked != 1 {
			t.Errorf("asked %d times for two equal Jobs, want once", s.asked)
		}
		apart := func(s *corev1.PodSpec) {
			s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MatchLabelKeys: []string{batchv1.ControllerUidLabel}}}
		}
		r.dryRun(t.Context(), namespace, of("a", apart))
		if r.dryRun(t.Context(), namespace, of("b", apart)); s.asked != 3 {
			t.Errorf("asked %d times, want two more for Jobs whose pods look at each other's labels", s.asked-1)
		}
	})
	t.Run("a refused template is not tried again for a while, and others are", func(t *testing.T) {
		s := newServer(t, fenced(t)...)
		r := NewRenderer(s, s, s.clock, true)
		s.err = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("exceeded quota"))
		s.expect(r, "refused", template(), "2", 1)
		s.expect(r, "again", template(), "2", 1)
		s.expect(r, "another", other, "2", 2)
		s.err = nil
		s.clock.Step(refusedFor + time.Second)
		s.expect(r, "later", template(), "500m", 3)
	})
	t.Run("a server that does not answer is left alone for a while", func(t *testing.T) {
		s := newServer(t, fenced(t)...)
		r := NewRenderer(s, s, s.clock, true)
		s.err = context.DeadlineExceeded
		s.expect(r, "no answer", template(), "2", 1)
		s.err = nil
		s.expect(r, "another at once", other, "2", 1)
		s.clock.Step(pause + time.Second)
		s.expect(r, "another later", other, "500m", 2)
	})
	t.Run("local rendering asks nobody", func(t *testing.T) {
		s := newServer(t, fenced(t)...)
		s.expect(NewRenderer(s, s, s.clock, false), "local", template(), "2", 0)
	})
	t.Run("without the fence nobody is asked, and soon after it is put up", func(t *testing.T) {
		defaults := limitRange("defaults", amountsOf("cpu", "2"), nil)
		s := newServer(t, &defaults)
		r := NewRenderer(s, s, s.clock, true)
		s.expect(r, "no fence", template(), "2", 0)
		policy, binding := shipped(t)
		for _, o := range []client.Object{policy, binding} {
			if err := s.put(o); err != nil {
				t.Fatal(err)
			}
		}
		s.clock.Step(missingFor + time.Second)
		s.expect(r, "with the fence", template(), "500m", 1)
		if err := s.Delete(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
		s.clock.Step(standsFor + time.Second)
		s.expect(r, "the fence is gone", template(), "2", 1)
	})
	t.Run("two renderings of a template are equal", func(t *testing.T) {
		s := newServer(t, fenced(t)...)
		render := func() *workload.Rendered {
			out, err := NewRenderer(s, s, s.clock, true).render(t.Context(), namespace, template())
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		if diff := cmp.Diff(render(), render()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestWhatATemplateNamesMustExist(t *testing.T) {
	s := newServer(t, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 5})
	r := NewRenderer(s, s, s.clock, false)
	for name, c := range map[string]struct {
		change func(*corev1.PodSpec)
		want   string
	}{
		"a PriorityClass that exists": {func(s *corev1.PodSpec) { s.PriorityClassName = "high" }, ""},
		"a PriorityClass that does not": {
			func(s *corev1.PodSpec) { s.PriorityClassName = "low" }, `pod set "node": PriorityClass low, which its pods name, does not exist`,
		},
		"a RuntimeClass that does not": {
			func(s *corev1.PodSpec) { s.RuntimeClassName = new("vm") }, `pod set "node": RuntimeClass vm, which its pods name, does not exist`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := &workload.Job{PodSets: []workload.PodSet{{Name: "node", Template: *template(c.change)}}}
			no, err := r.Render(t.Context(), job)
			if err != nil || no.String() != c.want {
				t.Errorf("the answer is %q (%v), want %q", no, err, c.want)
			}
		})
	}
}
