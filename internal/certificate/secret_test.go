package certificate

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
)

// won is the Secret as another replica writes it at this moment.
func (s *scene) won(previous ...*x509.Certificate) *corev1.Secret {
	s.Helper()
	p, err := issue(s.clock.Now(), []string{service}, previous)
	if err != nil {
		s.Fatal(err)
	}
	data, err := p.data()
	if err != nil {
		s.Fatal(err)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "muster-system", Name: "muster-webhook-cert"}, Type: corev1.SecretTypeTLS, Data: data}
}

var secrets = corev1.SchemeGroupVersion.WithResource("secrets")

func TestOfTwoReplicasThatStartTogetherOneIssues(t *testing.T) {
	s := newScene(t, configuration())
	k := s.replica()
	// The replica saw no Secret; before it creates one, another does.
	winner := s.won()
	s.client.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		if err := s.client.Tracker().Create(secrets, winner, "muster-system"); err != nil {
			t.Error(err)
		}
		return false, nil, nil // on to the tracker, which has the winner's now
	})
	s.sync(k)
	if diff := cmp.Diff(winner.Data, s.secret().Data); diff != "" {
		t.Errorf("the winner's Secret was written over:\n%s", diff)
	}
	s.accepted(k, service)
	p, err := decode(winner.Data)
	if err != nil {
		t.Fatal(err)
	}
	if serial(t, k) != p.leaf.Leaf.SerialNumber.String() {
		t.Error("the loser does not serve the winner's certificate")
	}
}

func TestOfTwoReplicasThatRenewTogetherOneIssues(t *testing.T) {
	s := newScene(t, configuration())
	k := s.replica()
	s.sync(k)
	s.clock.Step(300 * 24 * time.Hour)
	winner := s.won(k.serving.Load().authorities[0])
	s.client.PrependReactor("update", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		if err := s.client.Tracker().Update(secrets, winner, "muster-system"); err != nil {
			t.Error(err)
		}
		return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, "muster-webhook-cert", nil)
	})
	s.sync(k)
	s.accepted(k, service)
	s.clock.Step(settle)
	s.sync(k)
	s.accepted(k, service)
	if diff := cmp.Diff(winner.Data, s.secret().Data); diff != "" {
		t.Errorf("the winner's Secret was written over:\n%s", diff)
	}
}

func TestASecretThatNeverComesToRestIsAnError(t *testing.T) {
	s := newScene(t, configuration())
	s.client.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "secrets"}, "muster-webhook-cert")
	})
	if err := s.replica().Sync(silent(t)); err == nil {
		t.Error("no error")
	}
}

func TestADamagedSecretIsReplacedAndWhatIsServedStaysTrusted(t *testing.T) {
	other, err := issue(start, []string{service}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]func(*corev1.Secret){
		"emptied":                  func(s *corev1.Secret) { s.Data = nil },
		"no authority":             func(s *corev1.Secret) { delete(s.Data, "ca.crt") },
		"damaged authority":        func(s *corev1.Secret) { s.Data["ca.crt"] = []byte("x") },
		"cut certificate":          func(s *corev1.Secret) { s.Data["tls.crt"] = s.Data["tls.crt"][:100] },
		"another key":              func(s *corev1.Secret) { s.Data["tls.key"] = other.keyPEM },
		"another authority's leaf": func(s *corev1.Secret) { s.Data["tls.crt"], s.Data["tls.key"] = other.certPEM, other.keyPEM },
	}
	for name, damage := range tests {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, configuration())
			k := s.replica()
			s.sync(k)
			old := serial(t, k)
			secret := s.secret()
			damage(secret)
			if _, err := s.client.CoreV1().Secrets("muster-system").Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			s.sync(k)
			s.accepted(k, service)
			s.clock.Step(settle)
			s.sync(k)
			s.accepted(k, service)
			if serial(t, k) == old {
				t.Error("the old certificate is served still")
			}
			fresh := s.replica()
			s.sync(fresh)
			s.accepted(fresh, service)
		})
	}
	t.Run("deleted", func(t *testing.T) {
		s := newScene(t, configuration())
		k := s.replica()
		s.sync(k)
		if err := s.client.CoreV1().Secrets("muster-system").Delete(t.Context(), "muster-webhook-cert", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		s.sync(k)
		s.accepted(k, service)
	})
}

func TestASecretMadeEmptyByAManifestIsFilledAndKeepsItsType(t *testing.T) {
	s := newScene(t, configuration(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "muster-system", Name: "muster-webhook-cert"}, Type: corev1.SecretTypeOpaque})
	k := s.replica()
	s.sync(k)
	s.accepted(k, service)
	if got := s.secret().Type; got != corev1.SecretTypeOpaque {
		t.Errorf("type changed to %s, which the API server refuses", got)
	}
}

func TestReplicasThatWantDifferentHostsAgree(t *testing.T) {
	s := newScene(t, configuration())
	old, updated := s.replica("10.0.0.1"), s.replica("webhook.example.com")
	s.sync(old, updated)
	s.client.ClearActions()
	for range 3 {
		s.clock.Step(checkEvery)
		s.sync(old, updated)
	}
	for _, a := range s.client.Actions() {
		if a.GetVerb() == "update" {
			t.Error("the replicas replace each other's certificate")
		}
	}
	s.accepted(updated, "webhook.example.com")
	s.accepted(old, "10.0.0.1")
}
