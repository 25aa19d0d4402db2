package certificate

import (
	"context"
	"crypto/x509"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"
)

const service = "muster-webhook.muster-system.svc"

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func options(hosts ...string) Options {
	return Options{
		SecretNamespace: "muster-system", SecretName: "muster-webhook-cert",
		MutatingName: "muster-mutating", ValidatingName: "muster-validating", Hosts: append([]string{service}, hosts...),
	}
}

func configuration() *admissionregistrationv1.MutatingWebhookConfiguration {
	url := "https://127.0.0.1:9443/mutate-queueing"
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "muster-mutating"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{
			{Name: "queueing.muster.dev", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url}},
			{Name: "defaults.muster.dev", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url}},
		},
	}
}

func validatingConfiguration() *admissionregistrationv1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "muster-validating"},
		Webhooks:   []admissionregistrationv1.ValidatingWebhook{{Name: "pods.policies.muster.dev"}, {Name: "workloads.policies.muster.dev"}},
	}
}

// scene is a cluster with a clock and replicas of the webhook in it.
type scene struct {
	*testing.T
	client *fake.Clientset
	clock  *clocktesting.FakeClock
}

func newScene(t *testing.T, objects ...runtime.Object) *scene {
	return &scene{T: t, client: fake.NewClientset(objects...), clock: clocktesting.NewFakeClock(start)}
}

func (s *scene) replica(hosts ...string) *Keeper { return New(s.client, s.clock, options(hosts...)) }

func (s *scene) sync(keepers ...*Keeper) {
	s.Helper()
	for _, k := range keepers {
		if err := k.Sync(silent(s.T)); err != nil {
			s.Fatal(err)
		}
	}
}

func (s *scene) secret() *corev1.Secret {
	s.Helper()
	secret, err := s.client.CoreV1().Secrets("muster-system").Get(s.Context(), "muster-webhook-cert", metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return secret
}

func (s *scene) config() *admissionregistrationv1.MutatingWebhookConfiguration {
	s.Helper()
	c, err := s.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(s.Context(), "muster-mutating", metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return c
}

// accepted fails the test unless an API server that trusts what every webhook
// of the configuration says would accept what the replica serves for the host.
func (s *scene) accepted(k *Keeper, host string) {
	s.Helper()
	served, err := k.GetCertificate(nil)
	if err != nil {
		s.Fatal(err)
	}
	for _, w := range s.config().Webhooks {
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(w.ClientConfig.CABundle) {
			s.Fatalf("webhook %s has no caBundle", w.Name)
		}
		if _, err := served.Leaf.Verify(x509.VerifyOptions{
			Roots: roots, DNSName: host, CurrentTime: s.clock.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}); err != nil {
			s.Fatalf("webhook %s: %v", w.Name, err)
		}
	}
}

// silent is the test's context without a log.
func silent(t *testing.T) context.Context { return klog.NewContext(t.Context(), klog.Logger{}) }

func serial(t *testing.T, k *Keeper) string {
	t.Helper()
	c, err := k.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	return c.Leaf.SerialNumber.String()
}
