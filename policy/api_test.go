package policy

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/muster-gpu/muster/api/v1alpha1"
)

func TestAPolicyIsReadFromItsObject(t *testing.T) {
	o := &v1alpha1.AdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: 3},
		Spec: v1alpha1.AdmissionPolicySpec{
			Rego: "a", Libs: []string{"b", "c"}, RegoVersion: "v0", Input: "manifest", Enforcement: "warn", OnError: "dryrun",
			Match: v1alpha1.PolicyMatch{
				Kinds:      []v1alpha1.PolicyKinds{{APIGroups: []string{"batch"}, Kinds: []string{"Job"}}},
				Namespaces: []string{"a*"}, ExcludedNamespaces: []string{"b"}, Operations: []string{"CREATE"},
			},
			Exempt:     v1alpha1.PolicyExemptions{Namespaces: []string{"c"}, Users: []string{"u"}, Groups: []string{"g"}},
			Parameters: &runtime.RawExtension{Raw: []byte(`{"max": 2}`)},
		},
	}
	want := Policy{
		Name: "p", Generation: 3, Files: []File{{"rego", "a"}, {"libs[0]", "b"}, {"libs[1]", "c"}},
		Version: "v0", Input: "manifest", Enforcement: Warn, OnError: DryRun,
		Match: Match{
			Kinds:      []Kinds{{APIGroups: []string{"batch"}, Kinds: []string{"Job"}}},
			Namespaces: []string{"a*"}, ExcludedNamespaces: []string{"b"}, Operations: []admissionv1.Operation{"CREATE"},
		},
		Exempt:     Exemptions{Namespaces: []string{"c"}, Users: []string{"u"}, Groups: []string{"g"}},
		Parameters: map[string]any{"max": 2.0},
	}
	got, err := FromAPI(o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	o.Spec.Parameters.Raw = []byte("[]")
	if _, err := FromAPI(o); err == nil {
		t.Error("parameters that are a list are read")
	}
}

func TestTheStatusOfAPolicySaysWhatIsWrongAndWhatServes(t *testing.T) {
	read := func(generation int64, rego string) Policy {
		p, err := FromAPI(&v1alpha1.AdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: generation}, Spec: v1alpha1.AdmissionPolicySpec{Rego: rego, Enforcement: "deny"},
		})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	var got v1alpha1.AdmissionPolicyStatus
	status := func(e *Engine) *v1alpha1.AdmissionPolicyStatus {
		s := e.Statuses()[0]
		s.ToAPI(&got)
		return &got
	}
	const broken = "package p\ndeny contains msg if {\n  msg := }\n"
	wrong := []v1alpha1.PolicyError{{File: "rego", Row: 3, Column: 10, Message: "unexpected } token"}}

	e := engine(read(1, broken))
	want := &v1alpha1.AdmissionPolicyStatus{
		ObservedGeneration: 1, Errors: wrong,
		Conditions: []metav1.Condition{{
			Type: "Compiled", Status: "False", Reason: "NeverCompiled", ObservedGeneration: 1,
			Message: "the policy is not asked, because it does not compile: rego:3:10: unexpected } token",
		}},
	}
	ignored := cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime")
	if diff := cmp.Diff(want, status(e), ignored); diff != "" {
		t.Errorf("one that never compiled:\n%s", diff)
	}
	e.SetPolicies(context.Background(), []Policy{read(2, refuses)})
	review(t, e, create(t, object(nil, map[string]any{"bad": true})))
	e.SetPolicies(context.Background(), []Policy{read(3, broken)})
	want = &v1alpha1.AdmissionPolicyStatus{
		ObservedGeneration: 3, LastGoodGeneration: 2, RegoVersion: "v1", Input: "admission", Errors: wrong,
		Conditions: []metav1.Condition{{
			Type: "Compiled", Status: "False", Reason: "LastGoodServes", ObservedGeneration: 3,
			Message: "generation 2 is asked, because the newest version does not compile: rego:3:10: unexpected } token",
		}},
		Counts:         v1alpha1.PolicyCounts{Reviews: 1, Denied: 1},
		LastViolations: []v1alpha1.PolicyViolation{{Kind: "Pod", Namespace: "team-a", Name: "p", Message: "no", At: metav1.Time{Time: noon}}},
	}
	if diff := cmp.Diff(want, status(e), ignored); diff != "" {
		t.Errorf("one of which an older version serves:\n%s", diff)
	}
	if again := got.DeepCopy(); !cmp.Equal(again, status(e)) {
		t.Error("an equal status is not written equally")
	}
	e.SetPolicies(context.Background(), []Policy{read(4, refuses+"# mended\n")})
	if s := status(e); s.Conditions[0].Status != "True" || s.LastGoodGeneration != 4 || len(s.Errors) > 0 {
		t.Errorf("one that was mended: %+v", s)
	}
}

func TestAMessageInAStatusIsBounded(t *testing.T) {
	long := strings.Repeat("ä", maxMessage)
	if got := short(long); len(got) > maxMessage || !strings.HasSuffix(got, "ä...") {
		t.Errorf("%d bytes, ending in %q", len(got), got[len(got)-5:])
	}
}
