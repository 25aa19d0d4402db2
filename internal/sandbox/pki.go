package sandbox

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certificateLife is longer than anybody keeps a sandbox.
const certificateLife = 10 * 365 * 24 * time.Hour

// authority is the sandbox's one certificate authority: it signs the API
// server's certificate and those of the upstream webhooks.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
	// pem is the certificate as clients and webhook configurations take it.
	pem []byte
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating the sandbox's CA key: %w", err)
	}
	return authorityOf(key)
}

// authorityOf signs itself with key, and has the DNS names given.
func authorityOf(key crypto.Signer, names ...string) (*authority, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "muster-sandbox"},
		DNSNames:              names,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	a := &authority{key: key}
	der, err := a.sign(template, template, key.Public())
	if err != nil {
		return nil, err
	}
	if a.certificate, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("parsing the sandbox's CA: %w", err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a, nil
}

// sign fills in serial number and validity.
func (a *authority) sign(template, parent *x509.Certificate, subject crypto.PublicKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("drawing a serial number: %w", err)
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(certificateLife)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, subject, a.key)
	if err != nil {
		return nil, fmt.Errorf("signing the certificate of %s: %w", template.Subject.CommonName, err)
	}
	return der, nil
}

// issue writes tls.crt and tls.key for a server on loopback into folder, which
// may have more DNS names.
func (a *authority) issue(name, folder string, names ...string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("generating the key of %s: %w", name, err)
	}
	der, err := a.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    append([]string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}, names...),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, a.certificate, key.Public())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("creating the certificate folder of %s: %w", name, err)
	}
	encoded := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := writeFile(filepath.Join(folder, "tls.crt"), encoded, 0o600); err != nil {
		return err
	}
	return writeKey(filepath.Join(folder, "tls.key"), key)
}

// writeServiceAccountKeys writes the pair with which the API server signs and
// checks service account tokens.
func writeServiceAccountKeys(private, public string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("generating the service account key: %w", err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return fmt.Errorf("encoding the service account key: %w", err)
	}
	if err := writeFile(public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600); err != nil {
		return err
	}
	return writeKey(private, key)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encoding the key %s: %w", path, err)
	}
	return writeFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// newToken returns a random bearer token.
func newToken() string {
	raw := make([]byte, 16)
	// Since Go 1.24 rand.Read never fails.
	_, _ = rand.Read(raw)
	return hex.EncodeToString(raw)
}
