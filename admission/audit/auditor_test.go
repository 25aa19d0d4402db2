package audit

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/muster-gpu/muster/policy"
)

func pod(namespace, name, resource string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"namespace": namespace, "name": name},
		"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "resources": map[string]any{"limits": map[string]any{resource: "1"}}}}},
	}}
}

func labelled(object *unstructured.Unstructured, label string) *unstructured.Unstructured {
	object.SetLabels(map[string]string{label: "x"})
	return object
}

// named is a policy that minds objects whose names begin with bad.
func named(name string, enforcement policy.Enforcement) policy.Policy {
	return policy.Policy{Name: name, Enforcement: enforcement, Files: []policy.File{{Name: "p.rego", Rego: `package p
deny contains sprintf("%s is bad", [input.request.name]) if startswith(input.request.name, "bad")`}}}
}

// cluster has the objects, and no others of the kinds that are audited.
func cluster(objects ...runtime.Object) *dynamicfake.FakeDynamicClient {
	lists := map[schema.GroupVersionResource]string{}
	for _, resource := range Resources() {
		lists[resource] = "List"
	}
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, objects...)
}

// audits waits until the results are as they must be.
func audits(t *testing.T, a *Auditor, as func(map[string]Result) bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !as(a.Results()); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the results are %+v", a.Results())
		}
	}
}

// stumbles describes all but one object.
type stumbles struct{}

func (stumbles) Describe(_ context.Context, r *admissionv1.AdmissionRequest, _ map[string]any) any {
	if r.Name == "odd" {
		panic("no")
	}
	return nil
}

func TestAnObjectThatCannotBeAskedAboutDoesNotEndTheAudit(t *testing.T) {
	client := cluster(
		pod("a", "odd", "nvidia.com/gpu"), pod("b", "bad", "nvidia.com/gpu"))
	engine := policy.New(policy.Options{Describer: stumbles{}})
	engine.SetPolicies(t.Context(), []policy.Policy{named("denies", policy.Deny)})
	results, err := New(engine, client, clocktesting.NewFakeClock(time.Time{}), Options{}).audit(t.Context())
	if err != nil || results["denies"].Denied != 1 {
		t.Errorf("found %+v, %v", results, err)
	}
}

func TestAnAuditFindsWhatWouldBeRefusedNow(t *testing.T) {
	client := cluster(
		pod("nlp", "bad-gpu", "nvidia.com/gpu"), pod("nlp", "good", "nvidia.com/gpu"), pod("nlp", "bad-cpu", "cpu"),
		labelled(pod("nlp", "bad-queued", "cpu"), "kueue.x-k8s.io/queue-name"), labelled(pod("nlp", "bad-member", "cpu"), "scheduling.x-k8s.io/pod-group"),
		pod("kube-system", "bad-system", "nvidia.com/gpu"),
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": map[string]any{"namespace": "nlp", "name": "bad-job"},
		}},
	)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	engine := policy.New(policy.Options{})
	engine.SetPolicies(t.Context(), []policy.Policy{named("denies", policy.Deny), named("warns", policy.Warn), named("counts", policy.DryRun), {
		Name: "quiet", Files: []policy.File{{Name: "p.rego", Rego: "package p\ndeny contains \"no\" if input.request.name == \"\""}},
	}, {
		Name: "fails", Files: []policy.File{{Name: "p.rego", Rego: "package p\ndeny contains \"no\" if 1 / (count(input.request.name) - count(\"good\")) > 2"}},
	}})
	a := New(engine, client, clocktesting.NewFakeClock(now), Options{Interval: time.Hour, Chunk: 2, Exempt: []string{"kube-system"}})
	if a.Results() != nil {
		t.Error("there are results before the first audit")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { a.Run(ctx); close(ended) }()
	audits(t, a, func(results map[string]Result) bool { return results != nil })
	cancel()
	<-ended
	type found struct {
		Denied, Warned, DryRun, Failed int64
		Names                          []string
	}
	got := map[string]found{}
	for name, r := range a.Results() {
		f := found{Denied: r.Denied, Warned: r.Warned, DryRun: r.DryRun, Failed: r.Failed}
		for _, v := range r.Found {
			f.Names = append(f.Names, v.Kind+"/"+v.Namespace+"/"+v.Name+": "+v.Message)
		}
		got[name] = f
		if r.At != now {
			t.Errorf("%s was audited at %v", name, r.At)
		}
	}
	names := []string{"Pod/nlp/bad-gpu: bad-gpu is bad", "Pod/nlp/bad-member: bad-member is bad", "Pod/nlp/bad-queued: bad-queued is bad", "TrainJob/nlp/bad-job: bad-job is bad"}
	want := map[string]found{
		"denies": {Denied: 4, Names: names}, "warns": {Warned: 4, Names: names}, "counts": {DryRun: 4, Names: names}, "quiet": {}, "fails": {Failed: 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
	for _, s := range engine.Statuses() {
		if s.Counts != (policy.Counts{}) || len(s.Last) > 0 {
			t.Errorf("an audit counts as reviews of %s: %+v", s.Name, s.Counts)
		}
	}
}

func TestAnAuditIsMadeAgainAndCountsWhatItDoesNotKeep(t *testing.T) {
	var objects []runtime.Object
	for i := range kept + 5 {
		objects = append(objects, pod("nlp", fmt.Sprintf("bad-%02d", i), "nvidia.com/gpu"))
	}
	client, clock := cluster(objects...), clocktesting.NewFakeClock(time.Time{})
	engine := policy.New(policy.Options{})
	engine.SetPolicies(t.Context(), []policy.Policy{named("denies", policy.Deny)})
	a := New(engine, client, clock, Options{Interval: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { a.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	audits(t, a, func(results map[string]Result) bool {
		r := results["denies"]
		return r.Denied == kept+5 && len(r.Found) == kept && r.Found[kept-1].Name == "bad-19"
	})
	if err := client.Resource(pods).Namespace("nlp").Delete(ctx, "bad-00", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for !clock.HasWaiters() {
		time.Sleep(time.Millisecond)
	}
	clock.Step(time.Hour)
	audits(t, a, func(results map[string]Result) bool {
		r := results["denies"]
		return r.Denied == kept+4 && r.Found[0].Name == "bad-01" && r.At.Equal(time.Time{}.Add(time.Hour))
	})
}
