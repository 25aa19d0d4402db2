package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	musterv1alpha1 "github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/internal/testobject"
)

// TestPolicies tells what becomes of policies in a cluster with the library's at their
// default levels.
func TestPolicies(t *testing.T) {
	c := up(t, "policies")
	tellAll(t, c, "policies", anyJobs, []story[team]{
		{"an image whose tag is latest is refused, but for the user who is exempt, and an error in the policy changes nothing", latestRefused},
		{"what ran before a policy goes on", goesOn},
		{"without the webhook no job is made, until it is back", policiesWithoutWebhook},
	})
}

const noLatest = `package images

violation contains {"msg": msg} if {
	some image in input.workload.images
	endswith(image, ":latest")
	msg := sprintf("%s is not pinned", [image])
}
`

// forbids creates a policy about the namespace of the team.
func (tm team) forbids(t *testing.T, rego string) *musterv1alpha1.AdmissionPolicy {
	t.Helper()
	p := &musterv1alpha1.AdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: tm.namespace}}
	p.Spec.Rego = rego
	p.Spec.Match.Namespaces = []string{tm.namespace}
	if err := tm.client.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tm.client.Delete(context.Background(), p); err != nil {
			t.Error(err)
		}
	})
	return p
}

// refused waits until the policies refuse the pod in these words.
func (tm team) refused(t *testing.T, pod *corev1.Pod, says string) {
	t.Helper()
	eventually(t, "a denial with "+says, func(ctx context.Context) error {
		err := tm.client.Create(ctx, pod.DeepCopy(), client.DryRunAll)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), says) {
			return fmt.Errorf("the error is %v", err)
		}
		return nil
	})
}

func latestRefused(t *testing.T, tm team) {
	p := tm.forbids(t, noLatest)
	latest := tm.alone("latest", 1, nil, nil)
	latest.Spec.InitContainers = []corev1.Container{{Name: "fetch", Image: "example.com/fetch:latest"}}
	says := "[" + p.Name + "] example.com/fetch:latest is not pinned"
	tm.refused(t, latest, says)

	testobject.Change(t, tm.client, p, func(p *musterv1alpha1.AdmissionPolicy) {
		p.Spec.Rego = strings.Replace(noLatest, "some image in", "some image inn", 1)
	})
	eventually(t, "the status to say where the policy is wrong", func(ctx context.Context) error {
		if err := tm.client.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if s := &p.Status; len(s.Errors) == 0 || s.Errors[0].Row != 4 || s.LastGoodGeneration != p.Generation-1 {
			return fmt.Errorf("it is %+v", s)
		}
		return nil
	})
	tm.refused(t, latest, says)

	testobject.Change(t, tm.client, p, func(p *musterv1alpha1.AdmissionPolicy) {
		p.Spec.Rego, p.Spec.Exempt.Groups = noLatest, []string{"system:masters"}
	})
	eventually(t, "an exempt user's pod to be made", func(ctx context.Context) error {
		return tm.client.Create(ctx, latest.DeepCopy())
	})
	tm.started(t, latest)
}

func goesOn(t *testing.T, tm team) {
	old := tm.alone("old", 1, nil, nil)
	old.Spec.Containers[0].Image = "example.com/train:latest"
	tm.make(t, old)
	tm.started(t, old)
	tm.forbids(t, noLatest)
	fresh := tm.alone("new", 1, nil, nil)
	fresh.Spec.Containers[0].Image = "example.com/train:latest"
	tm.refused(t, fresh, "example.com/train:latest is not pinned")
	testobject.Change(t, tm.client, old, func(pod *corev1.Pod) {
		pod.Labels = map[string]string{"team": "nlp"}
	})
}

func policiesWithoutWebhook(t *testing.T, tm team) {
	tm.queueUp(t, "q", 16)
	tm.kill(t, "muster-webhook")
	err := tm.client.Create(t.Context(), tm.object(job{name: "early", queue: "q", nodes: 1, gpus: 8}))
	if err == nil || !strings.Contains(err.Error(), "workloads.policies.muster.dev") {
		t.Errorf("the error is %v", err)
	}
	tm.restart(t, "muster-webhook")
	eventually(t, "the job to be made", func(ctx context.Context) error {
		return tm.client.Create(ctx, tm.object(job{name: "early", queue: "q", nodes: 1, gpus: 8}))
	})
	tm.runs(t, "early", 1)
}

// forgoPolicies takes the registration of policies away until the test ends, as an
// administrator does whose cluster must go on without the webhook.
func (tm team) forgoPolicies(t *testing.T) {
	t.Helper()
	registration := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "muster-validating"}}
	if err := tm.client.Get(t.Context(), client.ObjectKeyFromObject(registration), registration); err != nil {
		t.Fatal(err)
	}
	if err := tm.client.Delete(t.Context(), registration); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		registration.ResourceVersion, registration.UID = "", ""
		if err := tm.client.Create(context.Background(), registration); err != nil {
			t.Error(err)
		}
	})
	// The API server learns of it by a watch.
	eventually(t, "policies not to be asked", func(ctx context.Context) error {
		return tm.client.Create(ctx, tm.alone("probe", 1, nil, nil), client.DryRunAll)
	})
}
