package integration

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	musterv1alpha1 "github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/internal/testcluster"
)

func TestAnAdmissionPolicyThatCannotBeMeantIsRefusedWhenItIsWritten(t *testing.T) {
	c := testcluster.Start(t)
	const rego = "package p\ndeny contains \"no\" if input.request\n"
	for name, tc := range map[string]struct {
		change func(*musterv1alpha1.AdmissionPolicySpec)
		// refused is a part of the message; empty means accepted.
		refused string
	}{
		"a rule alone":            {},
		"no rule":                 {change: func(s *musterv1alpha1.AdmissionPolicySpec) { s.Rego = "" }, refused: "rego"},
		"a rule that is too long": {change: func(s *musterv1alpha1.AdmissionPolicySpec) { s.Rego = strings.Repeat("#", 262145) }, refused: "rego"},
		"a version of Rego":       {change: func(s *musterv1alpha1.AdmissionPolicySpec) { s.RegoVersion = "v0" }},
		"no version of Rego":      {change: func(s *musterv1alpha1.AdmissionPolicySpec) { s.RegoVersion = "v2" }, refused: "regoVersion"},
		"an input that is not":    {change: func(s *musterv1alpha1.AdmissionPolicySpec) { s.Input = "object" }, refused: "input"},
		"an enforcement":          {change: func(s *musterv1alpha1.AdmissionPolicySpec) { s.Enforcement = "warn" }},
		"no enforcement":          {change: func(s *musterv1alpha1.AdmissionPolicySpec) { s.Enforcement = "audit" }, refused: "enforcement"},
		"an operation":            {change: func(s *musterv1alpha1.AdmissionPolicySpec) { s.Match.Operations = []string{"DELETE"} }},
		"no operation":            {change: func(s *musterv1alpha1.AdmissionPolicySpec) { s.Match.Operations = []string{"PATCH"} }, refused: "operations"},
		"a namespace twice":       {change: func(s *musterv1alpha1.AdmissionPolicySpec) { s.Match.Namespaces = []string{"a", "a"} }, refused: "Duplicate value"},
		"parameters": {change: func(s *musterv1alpha1.AdmissionPolicySpec) {
			s.Parameters = &runtime.RawExtension{Raw: []byte(`{"a":{"b":[1]}}`)}
		}},
		"parameters that are none": {change: func(s *musterv1alpha1.AdmissionPolicySpec) { s.Parameters = &runtime.RawExtension{Raw: []byte(`[1]`)} }, refused: "parameters"},
	} {
		t.Run(name, func(t *testing.T) {
			object := &musterv1alpha1.AdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: musterv1alpha1.AdmissionPolicySpec{Rego: rego}}
			if tc.change != nil {
				tc.change(&object.Spec)
			}
			want := object.Spec.DeepCopy()
			if want.Enforcement == "" {
				want.Enforcement = musterv1alpha1.EnforcementDeny
			}
			err := c.Client.Create(t.Context(), object, client.DryRunAll)
			switch {
			case tc.refused == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.refused != "" && (err == nil || !strings.Contains(err.Error(), tc.refused)):
				t.Errorf("the error is %v, want one with %q", err, tc.refused)
			case err == nil:
				if diff := cmp.Diff(want, &object.Spec); diff != "" {
					t.Errorf("spec (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestTheStatusOfAnAdmissionPolicyIsKept(t *testing.T) {
	c := testcluster.Start(t)
	object := &musterv1alpha1.AdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: musterv1alpha1.AdmissionPolicySpec{Rego: "package p\n"},
	}
	if err := c.Client.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	object.Status = musterv1alpha1.AdmissionPolicyStatus{
		ObservedGeneration: 2, LastGoodGeneration: 1, RegoVersion: "v1", Input: "admission",
		Errors:         []musterv1alpha1.PolicyError{{File: "rego", Row: 1, Column: 2, Message: "no"}, {Message: "nowhere"}},
		Counts:         musterv1alpha1.PolicyCounts{Reviews: 3, Denied: 1},
		LastViolations: []musterv1alpha1.PolicyViolation{{Kind: "Pod", Namespace: "a", Name: "p-*", Message: "no", At: metav1.Now().Rfc3339Copy()}},
	}
	want := object.Status.DeepCopy()
	if err := c.Client.Status().Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	got := &musterv1alpha1.AdmissionPolicy{}
	if err := c.Client.Get(t.Context(), client.ObjectKey{Name: "p"}, got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, &got.Status); diff != "" {
		t.Error(diff)
	}
}
