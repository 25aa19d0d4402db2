package integration

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	musterv1alpha1 "github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/internal/testobject"
)

// pinnedPod is a pod with GPUs to which no policy of the library objects.
func pinnedPod(name string) *corev1.Pod {
	pod := barePod(name, "", "muster")
	pod.Spec.Containers[0].Image = "repo/x:v1"
	return pod
}

// endlessPolicy has no answer within any time that anybody waits.
const endlessPolicy = `package names

deny contains "endless" if {
	n := [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
	count([1 | n[a]; n[b]; n[c]; n[d]; n[e]; n[f]; n[g]; n[h]; n[i]; n[j]; a + b + c + d + e + f + g + h + i + j == 1000]) > 0
	input.request
}
`

// runaway has a policy get a version that does not end.
func (e *webhookEnv) runaway(t *testing.T) {
	e.policy(t, "no-w", namePolicy("w"))
	e.policy(t, "no-z", namePolicy("z"))
	e.eventuallyDenied(t, barePod("w", "", "muster"), "[no-w] w is no name")
	e.eventuallyDenied(t, barePod("z", "", "muster"), "[no-z] z is no name")
	answers := func() {
		t.Helper()
		for _, name := range []string{"w", "z"} {
			err := e.Client.Create(t.Context(), pinnedPod(name), client.DryRunAll)
			e.denied(t, err, "[no-"+name+"] "+name+" is no name")
			if strings.Contains(fmt.Sprint(err), "could not be evaluated") {
				t.Errorf("a policy that does not end has part in %v", err)
			}
		}
		if err := e.Client.Create(t.Context(), pinnedPod("good"), client.DryRunAll); err != nil {
			t.Errorf("a pod that no policy minds: %v", err)
		}
	}
	e.policy(t, "no-w", endlessPolicy)
	e.status(t, "no-w", func(p *musterv1alpha1.AdmissionPolicy) error {
		answers()
		s := &p.Status
		if s.ObservedGeneration != 2 || s.QuarantinedUntil == nil || len(s.Errors) == 0 || !strings.Contains(s.Errors[0].Message, "it did not end in time") {
			return fmt.Errorf("generation %d has the status %+v", p.Generation, s)
		}
		return nil
	})
	answers()
	e.status(t, "no-z", func(p *musterv1alpha1.AdmissionPolicy) error {
		if s := &p.Status; s.QuarantinedUntil != nil || s.Counts.Failed > 0 || s.Counts.Denied == 0 {
			return fmt.Errorf("its status is %+v", s)
		}
		return nil
	})
	e.policy(t, "no-w", namePolicy("v"))
	e.eventuallyDenied(t, barePod("v", "", "muster"), "[no-w] v is no name")
}

// oldLanguage has a policy that says that it is in v0.
func (e *webhookEnv) oldLanguage(t *testing.T) {
	old := &musterv1alpha1.AdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "no-u"}, Spec: musterv1alpha1.AdmissionPolicySpec{
		RegoVersion: "v0", Rego: "package names\n\nviolation[{\"msg\": msg}] {\n\tinput.review.object.metadata.name == \"u\"\n\tmsg := \"u is no name\"\n}\n",
	}}
	unknown := old.DeepCopy()
	unknown.Spec.RegoVersion = "v7"
	if err := e.Client.Create(t.Context(), unknown); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.regoVersion") {
		t.Errorf("a policy in v7: %v", err)
	}
	e.Create(t, old)
	e.eventuallyDenied(t, barePod("u", "", "muster"), "[no-u] u is no name")
	e.status(t, "no-u", func(p *musterv1alpha1.AdmissionPolicy) error {
		if p.Status.RegoVersion != "v0" || p.Status.Input != "admission" {
			return fmt.Errorf("its status is %+v", p.Status)
		}
		return nil
	})
}

// knownDefaults has a policy that reads which RuntimeDefaults there are.
func (e *webhookEnv) knownDefaults(t *testing.T) {
	known := defaultsOf(t, "known", "match: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: nowhere}}}")
	e.policy(t, "no-t", `package names

deny contains msg if {
	input.request.name == "t"
	some name, d in data.inventory.runtimeDefaults
	msg := sprintf("there are RuntimeDefaults %s of generation %d", [name, d.generation])
}
`)
	e.Create(t, known)
	e.eventuallyDenied(t, pinnedPod("t"), "[no-t] there are RuntimeDefaults known of generation 1")
	testobject.Change(t, e.Client, known, func(d *musterv1alpha1.RuntimeDefaults) { d.Spec.Pod.SchedulerName = "muster" })
	e.eventuallyDenied(t, pinnedPod("t"), "[no-t] there are RuntimeDefaults known of generation 2")
	if err := e.Client.Delete(t.Context(), known); err != nil {
		t.Fatal(err)
	}
	e.eventuallyAllowed(t, pinnedPod("t"))
}
