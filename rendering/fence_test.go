package rendering

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/muster-gpu/muster/manifests"
)

const scheduler = "system:serviceaccount:muster-system:muster-scheduler"

// shipped are the policy and the binding of the manifests.
func shipped(t testing.TB) (*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding) {
	t.Helper()
	content, err := manifests.FS.ReadFile("base/rendering/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(string(content)), 4096)
	policy, binding := &admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}
	for _, o := range []any{policy, binding} {
		if err := decoder.Decode(o); err != nil {
			t.Fatal(err)
		}
	}
	if policy.Name != FenceName || binding.Name != FenceName {
		t.Fatalf("the manifests have %q and %q", policy.Name, binding.Name)
	}
	return policy, binding
}

func TestFence(t *testing.T) {
	type (
		P = *admissionv1.ValidatingAdmissionPolicy
		B = *admissionv1.ValidatingAdmissionPolicyBinding
	)
	for name, c := range map[string]struct {
		change func(P, B)
		user   string
		want   string
	}{
		"the manifests' policy fences the scheduler in": {change: func(P, B) {}},
		"what the API server adds by default does not matter": {change: func(p P, _ B) {
			p.Spec.MatchConstraints.NamespaceSelector, p.Spec.MatchConstraints.ObjectSelector = &metav1.LabelSelector{}, &metav1.LabelSelector{}
			p.Spec.MatchConstraints.MatchPolicy = new(admissionv1.Equivalent)
			p.Spec.MatchConstraints.ResourceRules[0].Scope = new(admissionv1.AllScopes)
		}},
		"warnings beside the denial do not matter": {change: func(_ P, b B) {
			b.Spec.ValidationActions = append(b.Spec.ValidationActions, admissionv1.Audit)
		}},
		"another user is not fenced in": {change: func(P, B) {}, user: "system:serviceaccount:gpu:muster-scheduler", want: "match condition"},
		"a further condition may let pods through": {change: func(p P, _ B) {
			p.Spec.MatchConditions = append(p.Spec.MatchConditions, admissionv1.MatchCondition{Name: "x", Expression: "false"})
		}, want: "match condition"},
		"a validation that always holds":         {change: func(p P, _ B) { p.Spec.Validations[0].Expression = "true" }, want: "only validation"},
		"a policy that is ignored when it fails": {change: func(p P, _ B) { p.Spec.FailurePolicy = new(admissionv1.Ignore) }, want: "failurePolicy is Ignore"},
		"a policy for updates": {change: func(p P, _ B) {
			p.Spec.MatchConstraints.ResourceRules[0].Operations = []admissionv1.OperationType{admissionv1.Update}
		}, want: "every creation"},
		"a policy for other resources":  {change: func(p P, _ B) { p.Spec.MatchConstraints.ResourceRules[0].Resources = []string{"services"} }, want: "every creation"},
		"a policy for pods of one name": {change: func(p P, _ B) { p.Spec.MatchConstraints.ResourceRules[0].ResourceNames = []string{"x"} }, want: "every creation"},
		"a policy that leaves pods out": {change: func(p P, _ B) {
			p.Spec.MatchConstraints.ExcludeResourceRules = p.Spec.MatchConstraints.ResourceRules
		}, want: "every creation"},
		"a policy for some namespaces": {change: func(p P, _ B) {
			p.Spec.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}, want: "every creation"},
		"a binding that warns":          {change: func(_ P, b B) { b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn} }, want: "does not deny"},
		"a binding of another policy":   {change: func(_ P, b B) { b.Spec.PolicyName = "other" }, want: "for the policy other"},
		"a binding for some namespaces": {change: func(_ P, b B) { b.Spec.MatchResources = &admissionv1.MatchResources{} }, want: "limited"},
		"a binding with parameters":     {change: func(_ P, b B) { b.Spec.ParamRef = &admissionv1.ParamRef{} }, want: "parameters"},
		"a policy with parameters":      {change: func(p P, _ B) { p.Spec.ParamKind = &admissionv1.ParamKind{} }, want: "parameters"},
		"a policy that is being deleted": {change: func(p P, _ B) {
			p.DeletionTimestamp = &metav1.Time{}
		}, want: "being deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			policy, binding := shipped(t)
			c.change(policy, binding)
			user := c.user
			if user == "" {
				user = scheduler
			}
			switch err := fences(policy, binding, user); {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("the answer is %v, want %q", err, c.want)
			}
		})
	}
}
