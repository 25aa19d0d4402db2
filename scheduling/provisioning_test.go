package scheduling

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// TestRequestsOfASchedulerBeforeAreKeptUntilTheirJobsAreRead: an autoscaler is at work
// for them, and would begin again.
func TestRequestsOfASchedulerBeforeAreKeptUntilTheirJobsAreRead(t *testing.T) {
	s := testScene(t, 16, 8)
	wl := workload.NewWorkload(job("a", set("node", 0, 2, 8)), 0, nil)
	wl.UID = "wl"
	request := &unstructured.Unstructured{Object: map[string]any{}}
	request.SetGroupVersionKind(provisioningGVK)
	request.SetNamespace(wl.Namespace)
	request.SetName(wl.Name)
	request.SetLabels(map[string]string{provisioningHash: "x"})
	request.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(wl, kueue.SchemeGroupVersion.WithKind("Workload"))})
	var unreadable error
	j := s.jobsOn(t, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, of := obj.(*kueue.Workload); of && unreadable != nil {
				return unreadable
			}
			return c.Get(ctx, key, obj, opts...)
		},
	}, wl, request)
	p := newProvisioner(j)
	look := func(what string, kept bool) {
		t.Helper()
		if err := p.provision(t.Context()); err != nil && !errors.Is(err, unreadable) {
			t.Fatal(err)
		}
		err := j.client.Get(t.Context(), client.ObjectKeyFromObject(request), request.DeepCopy())
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		if there := !apierrors.IsNotFound(err); there != kept {
			t.Errorf("%s: the request is there: %v", what, there)
		}
	}
	s.reading()
	look("while jobs are read", true)
	s.allRead()
	unreadable = errors.New("no answer")
	look("while its Workload cannot be read", true)
	unreadable = nil
	look("when its job is not among them", false)
}

// nodesAsker is a provisioner over a job of 4 GPUs that waits for nodes, on an API that
// has the objects given.
type nodesAsker struct {
	*stage
	*provisioner
	job *workload.Job
	wl  *kueue.Workload
}

func asksWith(t *testing.T, how Provisioning, objects ...client.Object) *nodesAsker {
	s := newStage(t.Context(), t)
	s.queue("q", false, []string{"gpu"}, 8)
	s.watched.AddNode(s.logger, flavored("node-0", "gpu", 2))
	s.Restored()
	job := one("a", 4, in("q"))
	s.submit(job, 0)
	if got := s.pass(); len(got) > 0 {
		t.Fatalf("%q were admitted", got)
	}
	j := s.jobsOn(t, interceptor.Funcs{}, append(objects, s.entry(job).workload)...)
	j.provisioning = how
	j.api = newAPIKinds(&fakeDiscovery{kinds: map[string][]string{"autoscaling.x-k8s.io/v1": {"ProvisioningRequest"}}}, s.clock)
	return &nodesAsker{s, newProvisioner(j), job, s.entry(job).workload}
}

// look lets the provisioner look at who waits, as often as it takes to make something
// anew, and returns the request; nil if there is none.
func (a *nodesAsker) look(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	for range 3 {
		if err := a.provision(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	request := &unstructured.Unstructured{}
	request.SetGroupVersionKind(provisioningGVK)
	switch err := a.client.Get(t.Context(), client.ObjectKeyFromObject(a.wl), request); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		t.Fatal(err)
	}
	return request
}

// fails has the autoscaler refuse a request now.
func (a *nodesAsker) fails(t *testing.T, request *unstructured.Unstructured) {
	t.Helper()
	if err := unstructured.SetNestedSlice(request.Object, []any{map[string]any{
		"type": "Failed", "status": "True", "reason": "OutOfCapacity", "message": "none are left",
		"lastTransitionTime": a.stage.clock.Now().UTC().Format(time.RFC3339),
	}}, "status", "conditions"); err != nil {
		t.Fatal(err)
	}
	if err := a.client.Update(t.Context(), request); err != nil {
		t.Fatal(err)
	}
}

func (a *nodesAsker) says(t *testing.T, want string) {
	t.Helper()
	if got := a.whyPending(a.entry(a.job), a.stage.clock.Now(), 1).Message; !strings.Contains(got, want) {
		t.Errorf("the job says %q, want %q", got, want)
	}
}

func TestARequestThatFailedIsMadeAnewAfterALongerWaitEachTime(t *testing.T) {
	a := asksWith(t, Provisioning{ClassName: "check", Retry: Backoff{Base: time.Minute, Max: 3 * time.Minute, Limit: new(int32(3))}})
	for before, wait := range []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute} {
		request := a.look(t)
		if request == nil || failuresBefore(request) != before {
			t.Fatalf("after %d failures there is %v", before, request)
		}
		a.says(t, "nodes are asked for by ProvisioningRequest")
		a.fails(t, request)
		a.look(t)
		a.says(t, "brings no nodes (OutOfCapacity): none are left; it is made anew at "+a.stage.clock.Now().Add(wait).UTC().Format(time.RFC3339))
		a.stage.clock.Step(wait - time.Second)
		if request := a.look(t); request == nil || failureOf(request) == nil {
			t.Errorf("%s after failure %d it is made anew already: %v", wait-time.Second, before+1, request)
		}
		a.stage.clock.Step(time.Second)
	}
	last := a.look(t)
	a.fails(t, last)
	a.stage.clock.Step(24 * time.Hour)
	if request := a.look(t); request == nil || failureOf(request) == nil {
		t.Errorf("beyond the limit it is made anew: %v", request)
	}
	a.says(t, "it is not made anew")
	// Another request has not failed yet.
	a.provisioning.Parameters = map[string]string{"zone": "b"}
	if request := a.look(t); request == nil || failuresBefore(request) != 0 {
		t.Errorf("with other parameters there is %v", request)
	}
}

func TestFailuresAreCountedOverAMomentInWhichTheJobWaitsForSomethingElse(t *testing.T) {
	for name, test := range map[string]struct {
		moment time.Duration
		want   int
	}{
		"a moment":   {time.Second, 1},
		"some while": {provisioningStays + time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := asksWith(t, Provisioning{ClassName: "check", Retry: Backoff{Base: time.Minute, Max: time.Hour}})
			a.fails(t, a.look(t))
			a.stage.clock.Step(time.Minute)
			if err := a.provision(t.Context()); err != nil {
				t.Fatal(err)
			}
			a.queue("q", false, []string{"gpu"}, 2)
			a.pass()
			a.look(t)
			a.stage.clock.Step(test.moment)
			if request := a.look(t); request != nil {
				t.Fatalf("a job that waits for quota has %v", request)
			}
			a.queue("q", false, []string{"gpu"}, 8)
			a.pass()
			if request := a.look(t); request == nil || failuresBefore(request) != test.want {
				t.Errorf("then there is %v, want %d failures", request, test.want)
			}
		})
	}
}

func TestAFailureWithoutATimeIsAsOldAsItsRequest(t *testing.T) {
	a := asksWith(t, Provisioning{ClassName: "check", Retry: Backoff{Base: time.Minute, Max: time.Hour}})
	request := a.look(t)
	request.SetCreationTimestamp(metav1.NewTime(a.stage.clock.Now()))
	if err := unstructured.SetNestedSlice(request.Object, []any{map[string]any{"type": "Failed", "status": "True", "reason": "No"}}, "status", "conditions"); err != nil {
		t.Fatal(err)
	}
	if err := a.client.Update(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if request := a.look(t); failureOf(request) == nil {
		t.Error("it is made anew at once")
	}
	a.stage.clock.Step(time.Minute)
	if request := a.look(t); failureOf(request) != nil {
		t.Error("it is not made anew after a minute")
	}
}

// TestWhatIsCalledLikeARequestIsLeftAlone: of one name there is one object, and its
// author does not know of Muster.
func TestWhatIsCalledLikeARequestIsLeftAlone(t *testing.T) {
	how := Provisioning{ClassName: "check"}
	named := asksWith(t, how).wl
	controller := func(of client.Object, gvk schema.GroupVersionKind) []metav1.OwnerReference {
		return []metav1.OwnerReference{*metav1.NewControllerRef(of, gvk)}
	}
	request := func(change func(client.Object)) client.Object {
		r := &unstructured.Unstructured{}
		r.SetGroupVersionKind(provisioningGVK)
		r.SetNamespace(named.Namespace)
		r.SetName(named.Name)
		change(r)
		return r
	}
	tests := map[string]struct {
		object client.Object
		says   string
	}{
		"a request of nobody": {request(func(client.Object) {}), "no nodes are asked for: ProvisioningRequest " + named.Name + " is not Muster's"},
		"a request of its Workload that Kueue made": {request(func(o client.Object) {
			o.SetOwnerReferences(controller(named, kueue.SchemeGroupVersion.WithKind("Workload")))
		}), "no nodes are asked for: ProvisioningRequest " + named.Name + " is not Muster's"},
		"a copy of a request that a Deployment keeps": {request(func(o client.Object) {
			o.SetLabels(map[string]string{provisioningHash: "x"})
			o.SetOwnerReferences(controller(named, appsv1.SchemeGroupVersion.WithKind("Deployment")))
		}), "no nodes are asked for: ProvisioningRequest " + named.Name + " is not Muster's"},
		"a template of nobody": {&corev1.PodTemplate{
			ObjectMeta: metav1.ObjectMeta{Namespace: named.Namespace, Name: templateName(named, 0)},
		}, "no nodes are asked for: PodTemplate " + templateName(named, 0) + " is not Muster's"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			a := asksWith(t, how, tc.object)
			before := tc.object.DeepCopyObject().(client.Object)
			read := func() error { return a.client.Get(t.Context(), client.ObjectKeyFromObject(tc.object), before) }
			if err := read(); err != nil {
				t.Fatal(err)
			}
			version := before.GetResourceVersion()
			a.look(t)
			a.stage.clock.Step(provisioningStays)
			a.look(t)
			a.says(t, tc.says)
			if err := read(); err != nil || before.GetResourceVersion() != version {
				t.Errorf("it was changed or deleted (%v)", err)
			}
			if err := a.client.Delete(t.Context(), before); err != nil {
				t.Fatal(err)
			}
			a.look(t)
			a.says(t, "nodes are asked for by ProvisioningRequest "+named.Name)
		})
	}
}

func TestWithoutAClassWhatWasAskedForIsTakenBack(t *testing.T) {
	a := asksWith(t, Provisioning{ClassName: "check"})
	if a.look(t) == nil {
		t.Fatal("there is no request")
	}
	a.provisioning.ClassName = ""
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a.provisioner.run(ctx)
	if err := ctx.Err(); err != nil {
		t.Errorf("it does not end: %v", err)
	}
	have, err := requestsIn(t.Context(), a.client)
	var templates corev1.PodTemplateList
	if err := errors.Join(err, a.client.List(t.Context(), &templates)); err != nil {
		t.Fatal(err)
	}
	if len(have)+len(templates.Items) > 0 {
		t.Errorf("there are %d requests and %d templates left", len(have), len(templates.Items))
	}
}

func TestARequestIsTakenBackWhenItsJobStartsOrWaitsForSomethingElse(t *testing.T) {
	const half = provisioningStays / 2
	quota := func(a *nodesAsker, gpus int64) {
		a.queue("q", false, []string{"gpu"}, gpus)
		a.pass()
	}
	for name, tc := range map[string]struct {
		happens func(*nodesAsker, *testing.T)
		kept    bool
	}{
		"it starts": {func(a *nodesAsker, _ *testing.T) {
			a.stage.watched.AddNode(a.logger, flavored("node-1", "gpu", 8))
			a.stage.pass()
		}, false},
		"its owner is deleted":                   {func(a *nodesAsker, _ *testing.T) { a.ownerGone(a.job.Owner.UID) }, false},
		"it waits for quota":                     {func(a *nodesAsker, _ *testing.T) { quota(a, 2) }, true},
		"it has waited for quota for some while": {func(a *nodesAsker, t *testing.T) { quota(a, 2); a.look(t); a.stage.clock.Step(provisioningStays) }, false},
		"it waited for quota twice, and for nodes in between": {func(a *nodesAsker, t *testing.T) {
			for range 2 {
				quota(a, 2)
				a.look(t)
				a.stage.clock.Step(half)
				quota(a, 8)
				a.look(t)
			}
			quota(a, 2)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := asksWith(t, Provisioning{ClassName: "check"})
			if a.look(t) == nil {
				t.Fatal("there is no request")
			}
			tc.happens(a, t)
			kept := a.look(t) != nil
			var templates corev1.PodTemplateList
			if err := a.client.List(t.Context(), &templates); err != nil {
				t.Fatal(err)
			}
			if kept != tc.kept || (len(templates.Items) > 0) != tc.kept {
				t.Errorf("the request is kept: %v, and so are %d templates; want %v", kept, len(templates.Items), tc.kept)
			}
			if e := a.jobs[a.job.Owner.UID]; e != nil && !tc.kept && e.provisioning != nil {
				t.Errorf("the job says still%s", *e.provisioning)
			}
		})
	}
}
