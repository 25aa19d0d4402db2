package certificate

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestFirstStartMakesSecretAndTrust(t *testing.T) {
	s := newScene(t, configuration())
	k := s.replica("127.0.0.1")
	if _, err := k.GetCertificate(nil); err == nil {
		t.Error("a certificate is served before there is one")
	}
	if k.Ready() == nil {
		t.Error("ready before the first look")
	}
	s.sync(k)

	if err := k.Ready(); err != nil {
		t.Errorf("not ready: %v", err)
	}
	s.accepted(k, service)
	s.accepted(k, "127.0.0.1")
	secret := s.secret()
	if secret.Type != corev1.SecretTypeTLS {
		t.Errorf("type %s", secret.Type)
	}
	for _, key := range []string{"ca.crt", "tls.crt", "tls.key"} {
		if len(secret.Data[key]) == 0 {
			t.Errorf("no %s", key)
		}
	}
	if url := s.config().Webhooks[1].ClientConfig.URL; url == nil {
		t.Error("the patch took the URL away")
	}
	p, err := decode(secret.Data)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.leaf.Leaf.NotAfter, start.Add(365*24*time.Hour); !got.Equal(want) || !k.NotAfter().Equal(want) {
		t.Errorf("serving certificate ends %s, want %s", got, want)
	}
	if got, want := p.authorities[0].NotAfter, start.Add(3650*24*time.Hour); !got.Equal(want) {
		t.Errorf("authority ends %s, want %s", got, want)
	}
}

func TestASecondLookWritesNothing(t *testing.T) {
	s := newScene(t, configuration())
	k := s.replica()
	s.sync(k)
	s.client.ClearActions()
	s.sync(k, s.replica())
	for _, a := range s.client.Actions() {
		if a.GetVerb() != "get" {
			t.Errorf("%s %s", a.GetVerb(), a.GetResource().Resource)
		}
	}
}

// TestRenewalNeverBreaksACall follows two replicas through a renewal: at every
// step each serves what the configuration trusts.
func TestRenewalNeverBreaksACall(t *testing.T) {
	s := newScene(t, configuration())
	first, second := s.replica(), s.replica()
	s.sync(first, second)
	old := serial(t, first)
	oldTrust := s.config().Webhooks[0].ClientConfig.CABundle

	s.clock.Step(243 * 24 * time.Hour) // a few hours short of two thirds
	s.sync(first, second)
	if serial(t, first) != old {
		t.Fatal("renewed too early")
	}
	s.clock.Step(24 * time.Hour)
	s.sync(first)
	s.accepted(first, service)
	s.accepted(second, service)
	if serial(t, first) != old {
		t.Error("the new certificate is served before its authority can be known")
	}
	if trust := s.config().Webhooks[0].ClientConfig.CABundle; !bytes.Contains(trust, oldTrust) || bytes.Equal(trust, oldTrust) {
		t.Error("the caBundle does not hold both authorities")
	}

	s.sync(second)
	s.clock.Step(settle)
	s.sync(first)
	if serial(t, first) == old {
		t.Error("the new certificate is not served after the settling time")
	}
	s.accepted(first, service)
	s.accepted(second, service) // still the old one
	s.sync(second)
	if serial(t, first) != serial(t, second) {
		t.Error("the replicas serve different certificates")
	}

	// The authority leaves at the next renewal.
	s.clock.Step(300 * 24 * time.Hour)
	s.sync(first, second)
	s.accepted(second, service)
	p, err := decode(s.secret().Data)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.authorities) != 2 || bytes.Contains(s.config().Webhooks[0].ClientConfig.CABundle, oldTrust) {
		t.Errorf("%d authorities, and the first one is still among them", len(p.authorities))
	}
}

func TestAnExpiredCertificateIsReplacedAtOnce(t *testing.T) {
	s := newScene(t, configuration())
	k := s.replica()
	s.sync(k)
	s.clock.Step(400 * 24 * time.Hour) // as after a cluster's long sleep
	s.sync(k)
	s.accepted(k, service)
}

// TestAHandshakeWithEitherCertificate is the renewal as TLS sees it: a client
// that trusts the caBundle connects before, during and after.
func TestAHandshakeWithEitherCertificate(t *testing.T) {
	s := newScene(t, configuration())
	s.clock.SetTime(time.Now()) // crypto/tls verifies by the real clock
	k := s.replica("127.0.0.1")
	s.sync(k)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: k.GetCertificate})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _ = conn.(*tls.Conn).Handshake(); conn.Close() }()
		}
	}()
	handshake := func() string {
		t.Helper()
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(s.config().Webhooks[0].ClientConfig.CABundle)
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", listener.Addr().String(),
			&tls.Config{RootCAs: roots, ServerName: service})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	before := handshake()
	if err := s.client.CoreV1().Secrets("muster-system").Delete(t.Context(), "muster-webhook-cert", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.sync(k) // issues anew
	if handshake() != before {
		t.Error("swapped too early")
	}
	s.clock.Step(settle)
	s.sync(k)
	if handshake() == before {
		t.Error("not swapped")
	}
}
