package static

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/policy/library"
	"github.com/muster-gpu/muster/workload"
)

// scheduler carries out what is decided.
const scheduler = "system:serviceaccount:muster-system:muster-scheduler"

// systemNamespaces are those in which the webhook is not asked either.
var systemNamespaces = []string{"kube-system", "muster-system"}

// Generate is a ValidatingAdmissionPolicy and its binding for each policy of the library
// among those given that CEL can say, in their order. The others are passed over. Objects
// in namespaces labelled muster.dev/webhook: ignore are let through, as by the webhook. It
// fails where a parameter is not of its type.
func Generate(policies []policy.Policy) ([]client.Object, error) {
	var out []client.Object
	for i := range policies {
		p := &policies[i]
		write, known := writers[strings.TrimPrefix(p.Name, library.Prefix)]
		if !known {
			continue
		}
		said, err := write(p.Parameters)
		if err != nil {
			return nil, fmt.Errorf("policy %s: %w", p.Name, err)
		}
		out = append(out, object(p, said), binding(p))
	}
	return out, nil
}

// rule is what one policy says.
type rule struct {
	// pods says that it is about pods, in whatever object they are described.
	pods bool
	// violations is an expression for the list of what is wrong with the object that the
	// variables below are of.
	violations func(v variables) string
}

// variables are the names of what is known of the object, or of the one before it.
type variables struct {
	// object is the object itself, specs are those of its pods, containers are all
	// containers in them.
	object, specs, containers string
}

func object(p *policy.Policy, r *rule) *admissionregistrationv1.ValidatingAdmissionPolicy {
	out := &admissionregistrationv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: meta(p),
	}
	now, before := variables{"object", "variables.specs", "variables.containers"}, variables{"oldObject", "variables.specsBefore", "variables.containersBefore"}
	var vars []admissionregistrationv1.Variable
	if r.pods {
		for _, v := range []struct{ suffix, object string }{{"", "object"}, {"Before", "oldObject"}} {
			vars = append(vars,
				admissionregistrationv1.Variable{Name: "specs" + v.suffix, Expression: specs(v.object)},
				admissionregistrationv1.Variable{Name: "containers" + v.suffix, Expression: "variables.specs" + v.suffix +
					".map(s, s.?containers.orValue([]) + s.?initContainers.orValue([]) + s.?ephemeralContainers.orValue([])).flatten()"},
			)
		}
	}
	vars = append(vars,
		admissionregistrationv1.Variable{Name: "before", Expression: "request.operation == 'CREATE' ? [] : (" + r.violations(before) + ")"},
		admissionregistrationv1.Variable{Name: "found", Expression: "(" + r.violations(now) + ").filter(v, !(v in variables.before))"},
	)
	rules := resources(p, r.pods)
	fail := admissionregistrationv1.Fail
	out.Spec = admissionregistrationv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: &fail,
		MatchConstraints: &admissionregistrationv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: systemNamespaces},
				{Key: "muster.dev/webhook", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"ignore"}},
			}},
			ResourceRules: rules,
		},
		MatchConditions: conditions(p, r.pods),
		Variables:       vars,
		Validations: []admissionregistrationv1.Validation{{
			Expression: "size(variables.found) == 0", MessageExpression: "'[" + p.Name + "] ' + variables.found.join('; ')",
		}},
	}
	return out
}

func binding(p *policy.Policy) *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	action := admissionregistrationv1.Deny
	if p.Enforcement == policy.Warn {
		action = admissionregistrationv1.Warn
	}
	return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicyBinding"},
		ObjectMeta: meta(p),
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: p.Name, ValidationActions: []admissionregistrationv1.ValidationAction{action},
		},
	}
}

func meta(p *policy.Policy) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: p.Name, Labels: map[string]string{
		"app.kubernetes.io/name": "muster", "app.kubernetes.io/part-of": "muster",
	}}
}

// conditions are for which requests the policy is asked at all.
func conditions(p *policy.Policy, pods bool) []admissionregistrationv1.MatchCondition {
	all := []admissionregistrationv1.MatchCondition{
		{Name: "not-by-the-scheduler", Expression: "request.userInfo.username != " + text(scheduler)},
		{Name: "not-by-a-kubelet", Expression: "!('system:nodes' in request.userInfo.?groups.orValue([]))"},
		{Name: "new-or-changed", Expression: "request.operation == 'CREATE' || object.?spec != oldObject.?spec" +
			" || object.metadata.?labels != oldObject.metadata.?labels || object.metadata.?annotations != oldObject.metadata.?annotations"},
	}
	if pods {
		all = append(all, admissionregistrationv1.MatchCondition{Name: "asks-for-gpus-or-names-a-queue", Expression: "!(request.kind.kind in " + text(many) + ")" +
			" || object.metadata.?labels[?" + text(workload.QueueLabel) + "].orValue('') != '' || (" + specs("object") + ").exists(s, " + asksGPU("s") + ")"})
	}
	var no []string
	for _, pattern := range p.Exempt.Namespaces {
		test := "request.namespace == " + text(pattern)
		if prefix, open := strings.CutSuffix(pattern, "*"); open {
			test = "request.namespace.startsWith(" + text(prefix) + ")"
		}
		no = append(no, test)
	}
	for _, user := range p.Exempt.Users {
		no = append(no, "request.userInfo.username == "+text(user))
	}
	for _, group := range p.Exempt.Groups {
		no = append(no, text(group)+" in request.userInfo.?groups.orValue([])")
	}
	if len(no) > 0 {
		all = append(all, admissionregistrationv1.MatchCondition{Name: "not-exempt", Expression: "!(" + strings.Join(no, " || ") + ")"})
	}
	return all
}

// resources are the rules for the kinds that the policy is about, as far as CEL finds
// their pods if it is about these.
func resources(p *policy.Policy, pods bool) []admissionregistrationv1.NamedRuleWithOperations {
	operations := p.Match.Operations
	if len(operations) == 0 {
		operations = []admissionv1.Operation{admissionv1.Create, admissionv1.Update}
	}
	var ops []admissionregistrationv1.OperationType
	for _, o := range operations {
		ops = append(ops, admissionregistrationv1.OperationType(o))
	}
	byGroup := map[string][]string{}
	for _, k := range kinds {
		if pods && k.specs == "" || !slices.ContainsFunc(p.Match.Kinds, func(m policy.Kinds) bool { return of(m, k.GroupKind) }) {
			continue
		}
		byGroup[k.Group] = append(byGroup[k.Group], k.resource)
		if k.Kind == "Pod" && slices.Contains(operations, admissionv1.Update) {
			byGroup[k.Group] = append(byGroup[k.Group], "pods/ephemeralcontainers")
		}
	}
	var out []admissionregistrationv1.NamedRuleWithOperations
	for group, names := range byGroup {
		out = append(out, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: ops,
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: names},
		}})
	}
	slices.SortFunc(out, func(a, b admissionregistrationv1.NamedRuleWithOperations) int {
		return cmp.Compare(a.APIGroups[0], b.APIGroups[0])
	})
	return out
}

func of(m policy.Kinds, gk schema.GroupKind) bool {
	return slices.Contains(m.APIGroups, gk.Group) && (len(m.Kinds) == 0 || slices.Contains(m.Kinds, gk.Kind))
}
