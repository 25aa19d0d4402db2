package policies

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/muster-gpu/muster/admission/audit"
	"github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/policy"
)

// rego minds all objects, twice, and cannot be evaluated for those named odd.
const rego = `package p

deny contains "no"

warn contains "better not"

deny contains "never" if 1 / (count(input.request.name) - 3) > 5
`

// reported is a Reporter of the policies of a cluster. Nothing is read or written unless the
// test says so.
type reported struct {
	*Reporter
	cluster *dynamicfake.FakeDynamicClient
}

// reporterOf is that of AdmissionPolicies, which audits if there is something to audit.
func reporterOf(t *testing.T, policies []*v1alpha1.AdmissionPolicy, exist ...*unstructured.Unstructured) *reported {
	t.Helper()
	lists := map[schema.GroupVersionResource]string{admissionPolicies: "AdmissionPolicyList"}
	for _, resource := range audit.Resources() {
		lists[resource] = "List"
	}
	cluster := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists)
	for _, object := range exist {
		if err := cluster.Tracker().Add(object); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range policies {
		if err := cluster.Tracker().Create(admissionPolicies, encoded(t, p), ""); err != nil {
			t.Fatal(err)
		}
	}
	engine := policy.New(policy.Options{PolicyTime: time.Minute, ReviewTime: time.Minute})
	feed := NewFeed(engine, nil, fake.NewClientset(), cluster, "")
	var auditor *audit.Auditor
	if len(exist) > 0 {
		auditor = audit.New(engine, cluster, clock.RealClock{}, audit.Options{Interval: time.Hour})
	}
	r := &reported{NewReporter(feed, engine, auditor, fake.NewClientset(), cluster, "muster-system", "me"), cluster}
	go feed.objects.RunWithContext(t.Context())
	until(t, "the policies to be read", feed.objects.HasSynced)
	feed.load(t.Context())
	return r
}

func until(t *testing.T, what string, met func() bool) {
	t.Helper()
	if wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) { return met(), nil }) != nil {
		t.Fatalf("waited in vain for %s", what)
	}
}

func encoded(t *testing.T, p *v1alpha1.AdmissionPolicy) *unstructured.Unstructured {
	t.Helper()
	p.APIVersion, p.Kind = v1alpha1.GroupVersion.String(), "AdmissionPolicy"
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: fields}
}

// read is a policy as the cluster has it.
func (r *reported) read(t *testing.T, name string) *v1alpha1.AdmissionPolicy {
	t.Helper()
	u, err := r.cluster.Resource(admissionPolicies).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p := &v1alpha1.AdmissionPolicy{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, p); err != nil {
		t.Fatal(err)
	}
	return p
}

// writes are how many statuses were written.
func (r *reported) writes() (n int) {
	for _, a := range r.cluster.Actions() {
		if a.GetVerb() == "update" && a.GetSubresource() == "status" {
			n++
		}
	}
	return n
}

// written writes the statuses, and checks that n were written in all.
func (r *reported) written(t *testing.T, n int) {
	t.Helper()
	if err := r.write(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := r.writes(); got != n {
		t.Fatalf("%d statuses are written, want %d", got, n)
	}
}

func named(name string, generation int64, enforcement policy.Enforcement) *v1alpha1.AdmissionPolicy {
	return &v1alpha1.AdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: generation},
		Spec:       v1alpha1.AdmissionPolicySpec{Rego: rego, Enforcement: v1alpha1.PolicyEnforcement(enforcement)},
	}
}

func pod(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"namespace": "nlp", "name": name},
		"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "resources": map[string]any{"limits": map[string]any{"nvidia.com/gpu": "1"}}}}},
	}}
}

func TestAStatusSaysHowManyExistingObjectsAPolicyMinds(t *testing.T) {
	r := reporterOf(t, []*v1alpha1.AdmissionPolicy{
		named("denies", 1, policy.Deny), named("warns", 1, policy.Warn), named("counts", 1, policy.DryRun),
	}, pod("train"), pod("serve"), pod("odd"))
	r.written(t, 3)
	if p := r.read(t, "denies"); p.Status.Audit != nil {
		t.Errorf("before the first audit it says %+v", p.Status.Audit)
	}
	go r.auditor.Run(t.Context())
	until(t, "an audit", func() bool { return r.auditor.Results() != nil })
	until(t, "the feed to have what was written", func() bool { return r.feed.Objects()[0].Status.ObservedGeneration == 1 })
	if err := r.write(t.Context()); err != nil {
		t.Fatal(err)
	}
	type audited struct {
		Violations, Failed int64
		Found              int
	}
	want := audited{Violations: 6, Failed: 1, Found: 6}
	for _, name := range []string{"denies", "warns", "counts"} {
		a := r.read(t, name).Status.Audit
		if a == nil {
			t.Errorf("%s was not audited", name)
			continue
		}
		if diff := cmp.Diff(want, audited{a.Violations, a.Failed, len(a.Found)}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if !a.At.Time.Equal(r.auditor.Results()[name].At.Truncate(time.Second)) || a.Found[0].Namespace != "nlp" {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

func TestWhereNothingIsAuditedAnOldAuditIsTakenFromTheStatus(t *testing.T) {
	old := named("p", 1, policy.Deny)
	old.Status.Audit = &v1alpha1.PolicyAudit{Violations: 9}
	r := reporterOf(t, []*v1alpha1.AdmissionPolicy{old})
	r.written(t, 1)
	if a := r.read(t, "p").Status.Audit; a != nil {
		t.Errorf("it says %+v", a)
	}
}

func TestTheStatusOfAVersionThatIsNotCompiledYetIsLeft(t *testing.T) {
	r := reporterOf(t, []*v1alpha1.AdmissionPolicy{named("p", 1, policy.Deny)})
	r.written(t, 1)
	known := func(what string, p func(*v1alpha1.AdmissionPolicy) bool) {
		t.Helper()
		until(t, what, func() bool { return p(r.feed.Objects()[0]) })
	}
	known("the feed to have what was written", func(p *v1alpha1.AdmissionPolicy) bool { return p.Status.ObservedGeneration == 1 })
	r.written(t, 1) // what is right is not written again

	changed := r.read(t, "p")
	changed.Generation, changed.Spec.Enforcement = 2, "warn"
	if err := r.cluster.Tracker().Update(admissionPolicies, encoded(t, changed), ""); err != nil {
		t.Fatal(err)
	}
	known("the feed to have the change", func(p *v1alpha1.AdmissionPolicy) bool { return p.Generation == 2 })
	if _, err := r.engine.Review(t.Context(), &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Name: "train", Object: runtime.RawExtension{Raw: []byte("{}")},
	}); err != nil {
		t.Fatal(err)
	}
	r.written(t, 1)

	r.feed.load(t.Context())
	r.written(t, 2)
	if s := r.read(t, "p").Status; s.ObservedGeneration != 2 || s.Counts.Denied != 1 || s.Counts.Reviews != 1 {
		t.Errorf("its status is %+v", s)
	}
}
