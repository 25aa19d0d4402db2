package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/internal/testcluster"
)

// refuse has the API server let no JobSet of the namespace be resumed, until the
// function that it returns is called.
func (e *env) refuse(t *testing.T, message string) (relent func()) {
	t.Helper()
	name := e.namespace + "-not-today"
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Update},
			Rule:       admissionv1.Rule{APIGroups: []string{"jobset.x-k8s.io"}, APIVersions: []string{"*"}, Resources: []string{"jobsets"}},
		}}}},
		Validations: []admissionv1.Validation{{Expression: "has(object.spec.suspend) && object.spec.suspend", Message: message}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": e.namespace}}},
	}}
	e.Create(t, policy)
	e.Create(t, binding)
	probe := e.job("probe", "", 1, 1)
	probe.Labels = nil
	probe.Spec.Suspend = new(true)
	e.Create(t, probe)
	testcluster.Eventually(t, "the policy to be in force", func(ctx context.Context) error {
		resumed := probe.DeepCopy()
		resumed.Spec.Suspend = new(false)
		if e.Client.Update(ctx, resumed, client.DryRunAll) == nil {
			return errors.New("it refuses nothing")
		}
		return nil
	})
	return func() {
		t.Helper()
		for _, obj := range []client.Object{binding, policy} {
			if err := e.Client.Delete(t.Context(), obj); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func init() {
	scenarios = append(scenarios, scenario{
		name: "a job that the API server does not let start says so at once, and in its eviction, and starts when it may",
		configure: func(c *configv1alpha1.SchedulerConfiguration) {
			c.Admission.StartTimeout.Duration = 8 * time.Second
		},
		run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 8)
			const word = "no training on Mondays"
			relent := e.refuse(t, word)
			js := e.job("gang", "team", 2, 4)
			e.Create(t, js)
			e.condition(t, js, kueue.WorkloadPodsReady, metav1.ConditionFalse, kueue.WorkloadWaitForStart, word)
			e.event(t, js, "StartRefused", word)
			e.condition(t, js, kueue.WorkloadEvicted, metav1.ConditionTrue, kueue.WorkloadEvictedByPodsReadyTimeout, word)
			relent()
			e.runs(t, js, 2)
			e.condition(t, js, kueue.WorkloadPodsReady, metav1.ConditionFalse, kueue.WorkloadWaitForStart, "Not every pod has been ready yet")
		},
	})
}
