package certificate

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	caLifetime   = 10 * 365 * 24 * time.Hour
	leafLifetime = 365 * 24 * time.Hour
	// backdate keeps a certificate valid for an API server whose clock is behind.
	backdate = time.Hour

	caKey = corev1.ServiceAccountRootCAKey // "ca.crt"
)

// pair is a serving certificate with the authorities to trust for it.
type pair struct {
	leaf tls.Certificate // Leaf is parsed
	// authorities has the one that signed leaf first, then those whose
	// certificates a replica may still serve.
	authorities []*x509.Certificate
	certPEM     []byte
	keyPEM      []byte
}

// issue makes a serving certificate for hosts (DNS names and IP addresses),
// valid from now, and its authority. The previous authorities stay trusted.
func issue(now time.Time, hosts []string, previous []*x509.Certificate) (*pair, error) {
	caPrivate, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating the authority's key: %w", err)
	}
	caTemplate, err := template("muster-webhook-ca", now, caLifetime)
	if err != nil {
		return nil, err
	}
	caTemplate.IsCA = true
	caTemplate.BasicConstraintsValid = true
	caTemplate.MaxPathLenZero = true
	caTemplate.KeyUsage = x509.KeyUsageCertSign
	ca, err := sign(caTemplate, caTemplate, &caPrivate.PublicKey, caPrivate)
	if err != nil {
		return nil, fmt.Errorf("signing the authority: %w", err)
	}

	leafPrivate, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating the serving key: %w", err)
	}
	leafTemplate, err := template("muster-webhook", now, leafLifetime)
	if err != nil {
		return nil, err
	}
	leafTemplate.KeyUsage = x509.KeyUsageDigitalSignature
	leafTemplate.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			leafTemplate.IPAddresses = append(leafTemplate.IPAddresses, ip)
		} else {
			leafTemplate.DNSNames = append(leafTemplate.DNSNames, host)
		}
	}
	leaf, err := sign(leafTemplate, ca, &leafPrivate.PublicKey, caPrivate)
	if err != nil {
		return nil, fmt.Errorf("signing the serving certificate: %w", err)
	}

	certPEM, err := certutil.EncodeCertificates(leaf)
	if err != nil {
		return nil, fmt.Errorf("encoding the serving certificate: %w", err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(leafPrivate)
	if err != nil {
		return nil, fmt.Errorf("encoding the serving key: %w", err)
	}
	return newPair(certPEM, keyPEM, append([]*x509.Certificate{ca}, previous...))
}

func template(commonName string, now time.Time, lifetime time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("drawing a serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: commonName},
		NotBefore:    now.Add(-backdate).UTC(),
		NotAfter:     now.Add(lifetime).UTC(),
	}, nil
}

func sign(template, parent *x509.Certificate, public *ecdsa.PublicKey, signer *ecdsa.PrivateKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func newPair(certPEM, keyPEM []byte, authorities []*x509.Certificate) (*pair, error) {
	leaf, err := tls.X509KeyPair(certPEM, keyPEM) // checks that the key is the certificate's
	if err != nil {
		return nil, err
	}
	return &pair{leaf: leaf, authorities: authorities, certPEM: certPEM, keyPEM: keyPEM}, nil
}

// decode reads a pair from a Secret's data. It fails when a part is missing or
// damaged, or the key is another certificate's.
func decode(data map[string][]byte) (*pair, error) {
	authorities, err := certutil.ParseCertsPEM(data[caKey])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", caKey, err)
	}
	p, err := newPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey], authorities)
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", corev1.TLSCertKey, corev1.TLSPrivateKeyKey, err)
	}
	return p, nil
}

// data is the inverse of decode.
func (p *pair) data() (map[string][]byte, error) {
	bundle, err := p.bundle()
	if err != nil {
		return nil, err
	}
	return map[string][]byte{caKey: bundle, corev1.TLSCertKey: p.certPEM, corev1.TLSPrivateKeyKey: p.keyPEM}, nil
}

// bundle is the authorities as a caBundle: PEM, newest first.
func (p *pair) bundle() ([]byte, error) {
	bundle, err := certutil.EncodeCertificates(p.authorities...)
	if err != nil {
		return nil, fmt.Errorf("encoding the authorities: %w", err)
	}
	return bundle, nil
}

// errDue is why a sound pair is replaced in time.
var errDue = errors.New("two thirds of its life are over")

// check says why the pair must be replaced, or nil: it does not verify, it
// does not stand for one of the hosts, or (errDue) it is due for renewal.
func (p *pair) check(now time.Time, hosts []string) error {
	leaf := p.leaf.Leaf
	roots := x509.NewCertPool()
	for _, ca := range p.authorities {
		roots.AddCert(ca)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}); err != nil {
		return fmt.Errorf("the serving certificate: %w", err)
	}
	for _, host := range hosts {
		if err := leaf.VerifyHostname(host); err != nil {
			return fmt.Errorf("the serving certificate: %w", err)
		}
	}
	if life := leaf.NotAfter.Sub(leaf.NotBefore); !now.Before(leaf.NotBefore.Add(life * 2 / 3)) {
		return errDue
	}
	return nil
}

// hosts are the names that the serving certificate stands for.
func (p *pair) hosts() []string {
	hosts := append([]string(nil), p.leaf.Leaf.DNSNames...)
	for _, ip := range p.leaf.Leaf.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}

// same says that both are the same serving certificate.
func (p *pair) same(q *pair) bool {
	return q != nil && bytes.Equal(p.certPEM, q.certPEM)
}
