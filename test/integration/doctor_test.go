package integration

import (
	"bytes"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/internal/doctor"
	"github.com/muster-gpu/muster/internal/testcluster"
	"github.com/muster-gpu/muster/internal/testobject"
)

// deadPort is the URL of a port on which nobody listens any more.
func deadPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "https://" + l.Addr().String()
}

func TestTheDoctorMendsWhatKueueHasLeftBehind(t *testing.T) {
	c := testcluster.StartBare(t)
	c.AddKueue(t)
	c.Namespace(t, "team")
	ctx := t.Context()
	successor, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { successor.Close() })
	live := "https://" + successor.Addr().String()

	// What there is: one of each trouble, and beside it what looks like it.
	gone := &admissionregistrationv1.ServiceReference{Namespace: "kueue-system", Name: "kueue-webhook-service", Path: new("/x")}
	hook := func(name string, config admissionregistrationv1.WebhookClientConfig, groups ...string) *admissionregistrationv1.ValidatingWebhookConfiguration {
		return &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "v.kb.io", ClientConfig: config, AdmissionReviewVersions: []string{"v1"},
				SideEffects: new(admissionregistrationv1.SideEffectClassNone), FailurePolicy: new(admissionregistrationv1.Ignore),
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: groups, APIVersions: []string{"*"}, Resources: []string{"*"}},
				}},
			}},
		}
	}
	c.Create(t, hook("dead", admissionregistrationv1.WebhookClientConfig{Service: gone}, kueue.SchemeGroupVersion.Group))
	c.Create(t, hook("alive", admissionregistrationv1.WebhookClientConfig{URL: new(live + "/x")}, kueue.SchemeGroupVersion.Group))
	c.Create(t, hook("of-others", admissionregistrationv1.WebhookClientConfig{Service: gone}, "example.com"))
	kueues := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "clusterqueues.kueue.x-k8s.io"}}
	testobject.Change(t, c.Client, kueues, func(kueues *apiextensionsv1.CustomResourceDefinition) {
		kueues.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
			Strategy: apiextensionsv1.WebhookConverter,
			Webhook: &apiextensionsv1.WebhookConversion{
				ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: new(deadPort(t) + "/convert")},
				ConversionReviewVersions: []string{"v1"},
			},
		}
	})
	testobject.ChangeStatus(t, c.Client, kueues, func(kueues *apiextensionsv1.CustomResourceDefinition) {
		kueues.Status.StoredVersions = []string{"v1beta1", "v1beta2"}
	})
	c.Queue(t, "team", "q", 8)
	c.Create(t, &kueue.Topology{
		ObjectMeta: metav1.ObjectMeta{Name: "racks", Finalizers: []string{kueue.ResourceInUseFinalizerName}},
		Spec:       kueue.TopologySpec{Levels: []kueue.TopologyLevel{{NodeLabel: corev1.LabelHostname}}},
	})
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "gated", Finalizers: []string{"kueue.x-k8s.io/managed", "example.com/mine"}},
		Spec: corev1.PodSpec{
			SchedulingGates: []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}, {Name: "example.com/mine"}},
			Containers:      []corev1.Container{{Name: "c", Image: "x"}},
		},
	}
	c.Create(t, pod)
	t.Cleanup(func() {
		pod.Finalizers = nil
		_ = c.Client.Update(t.Context(), pod)
	})

	examine := func(fix bool) (string, error) {
		var out bytes.Buffer
		err := doctor.HandOver(ctx, c.Config, doctor.Options{Fix: fix, WebhookURL: live, Out: &out})
		return out.String(), err
	}
	said, err := examine(false)
	if !errors.Is(err, doctor.ErrFindings) {
		t.Errorf("without --fix the error is %v", err)
	}
	var objects []string
	for line := range strings.Lines(said) {
		if object, _, found := strings.Cut(line, ": "); found && !strings.HasPrefix(line, " ") {
			objects = append(objects, object)
		}
	}
	want := []string{
		"ValidatingWebhookConfiguration dead",
		"CustomResourceDefinition clusterqueues.kueue.x-k8s.io", "CustomResourceDefinition clusterqueues.kueue.x-k8s.io",
		"Pod team/gated", "Topology racks",
	}
	if diff := cmp.Diff(want, objects); diff != "" {
		t.Errorf("found (-want +got):\n%s\n%s", diff, said)
	}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: "dead"}, &admissionregistrationv1.ValidatingWebhookConfiguration{}); err != nil {
		t.Errorf("something was changed without --fix: %v", err)
	}

	if said, err := examine(true); err != nil {
		t.Fatalf("mending: %v\n%s", err, said)
	}
	if err := c.Client.Get(ctx, client.ObjectKey{Name: "dead"}, &admissionregistrationv1.ValidatingWebhookConfiguration{}); !apierrors.IsNotFound(err) {
		t.Errorf("the dead webhook is there (%v)", err)
	}
	for _, name := range []string{"alive", "of-others"} {
		if err := c.Client.Get(ctx, client.ObjectKey{Name: name}, &admissionregistrationv1.ValidatingWebhookConfiguration{}); err != nil {
			t.Errorf("webhook %s: %v", name, err)
		}
	}
	if err := c.Client.Get(ctx, client.ObjectKeyFromObject(kueues), kueues); err != nil {
		t.Fatal(err)
	}
	if got := *kueues.Spec.Conversion.Webhook.ClientConfig.URL; got != live+"/convert" {
		t.Errorf("ClusterQueues are converted by %s", got)
	}
	if diff := cmp.Diff([]string{"v1beta2"}, kueues.Status.StoredVersions); diff != "" {
		t.Errorf("stored versions (-want +got):\n%s", diff)
	}
	if err := c.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(pod.Finalizers, []string{"example.com/mine"}) || len(pod.Spec.SchedulingGates) != 1 || pod.Spec.SchedulingGates[0].Name != "example.com/mine" {
		t.Errorf("the pod has the finalizers %v and the gates %v", pod.Finalizers, pod.Spec.SchedulingGates)
	}
	if said, err := examine(false); err != nil {
		t.Errorf("afterwards: %v\n%s", err, said)
	}

	c.Namespace(t, "kueue-system")
	c.Create(t, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kueue-system", Name: "c1f6bfd2.kueue.x-k8s.io"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("someone"), LeaseDurationSeconds: new(int32(3600)), RenewTime: new(metav1.NowMicro()),
		},
	})
	if _, err := examine(true); err == nil || !strings.Contains(err.Error(), "a Kueue manager (someone) is alive") {
		t.Errorf("while Kueue is alive the error is %v", err)
	}
}
