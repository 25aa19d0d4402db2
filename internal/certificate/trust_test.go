package certificate

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
)

func TestTrustIsHealed(t *testing.T) {
	tests := map[string]func(*admissionregistrationv1.MutatingWebhookConfiguration){
		"applied again without caBundle": func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
			for i := range c.Webhooks {
				c.Webhooks[i].ClientConfig.CABundle = nil
			}
		},
		"one webhook changed": func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
			c.Webhooks[1].ClientConfig.CABundle = []byte("other")
		},
		"a webhook added in front": func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
			c.Webhooks = append([]admissionregistrationv1.MutatingWebhook{{Name: "new.muster.dev"}}, c.Webhooks...)
		},
	}
	for name, damage := range tests {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, configuration())
			k := s.replica()
			s.sync(k)
			c := s.config()
			damage(c)
			names := func() (all []string) {
				for _, w := range s.config().Webhooks {
					all = append(all, w.Name)
				}
				return all
			}
			if _, err := s.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Update(t.Context(), c, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			before := names()
			s.sync(k)
			s.accepted(k, service)
			if err := k.Ready(); err != nil {
				t.Errorf("not ready: %v", err)
			}
			after := names()
			slices.Sort(before)
			slices.Sort(after)
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("webhooks (-before +after):\n%s", diff)
			}
		})
	}
}

func TestRunHealsAtTheEventNotAtTheNextRound(t *testing.T) {
	s := newScene(t, configuration())
	k := s.replica()
	ctx, cancel := context.WithCancel(silent(t))
	done := make(chan struct{})
	go func() { k.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	trusted := func() bool {
		return k.Ready() == nil && len(s.config().Webhooks[0].ClientConfig.CABundle) > 0
	}
	eventually(t, trusted) // the fake clock stands still, so no round comes by itself
	c := s.config()
	c.Webhooks[0].ClientConfig.CABundle = nil
	if _, err := s.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Update(ctx, c, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, trusted)
}

func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for !condition() {
		select {
		case <-deadline:
			t.Fatal("the condition did not come true")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestWithoutConfigurationItServesAndIsNotReady(t *testing.T) {
	s := newScene(t)
	k := s.replica()
	if err := k.Sync(silent(t)); err == nil {
		t.Error("no error")
	}
	if _, err := k.GetCertificate(nil); err != nil {
		t.Error(err)
	}
	if err := k.Ready(); err == nil || !strings.Contains(err.Error(), "no such configuration") {
		t.Errorf("Ready: %v", err)
	}
	if _, err := s.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(t.Context(), configuration(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.sync(k)
	if err := k.Ready(); err != nil {
		t.Errorf("not ready: %v", err)
	}
}

func TestAnUnreachableAPIServerLeavesAReadyReplicaReady(t *testing.T) {
	s := newScene(t, configuration())
	k := s.replica()
	s.sync(k)
	s.client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewServerTimeout(schema.GroupResource{}, "get", 1)
	})
	if err := k.Sync(silent(t)); err == nil {
		t.Error("no error")
	}
	if err := k.Ready(); err != nil {
		t.Errorf("not ready: %v", err)
	}
}

func TestAPatchThatIsForbiddenIsNotReady(t *testing.T) {
	s := newScene(t, configuration())
	s.client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "mutatingwebhookconfigurations"}, "muster-mutating", nil)
	})
	k := s.replica()
	if err := k.Sync(silent(t)); err == nil {
		t.Error("no error")
	}
	if k.Ready() == nil {
		t.Error("ready without trust")
	}
}

func TestTheValidatingConfigurationTrustsTheSameCertificate(t *testing.T) {
	s := newScene(t, configuration(), validatingConfiguration())
	k := s.replica()
	s.sync(k)
	got, err := s.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), "muster-validating", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := s.config().Webhooks[0].ClientConfig.CABundle
	for _, w := range got.Webhooks {
		if diff := cmp.Diff(want, w.ClientConfig.CABundle); len(want) == 0 || diff != "" {
			t.Errorf("the caBundle of %s (-want +got):\n%s", w.Name, diff)
		}
	}
}

func TestAnyConfigurationThatCannotBeTrustedIsNotReady(t *testing.T) {
	s := newScene(t, configuration(), validatingConfiguration())
	s.client.PrependReactor("patch", "validatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "validatingwebhookconfigurations"}, "muster-validating", nil)
	})
	k := s.replica()
	if err := k.Sync(silent(t)); err == nil {
		t.Error("no error")
	}
	if err := k.Ready(); err == nil || !strings.Contains(err.Error(), "ValidatingWebhookConfiguration muster-validating") {
		t.Errorf("Ready: %v", err)
	}
}
