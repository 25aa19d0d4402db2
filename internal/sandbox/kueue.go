package sandbox

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Names in Kueue's own manifests.
const (
	kueueGroup         = "kueue.x-k8s.io"
	kueueNamespace     = "kueue-system"
	kueueAccount       = "kueue-controller-manager"
	kueueService       = "kueue-webhook-service"
	kueueSecret        = "kueue-webhook-server-cert"
	kueueAuthorityName = "kueue-ca"
)

// kueueProgram runs Kueue's manager as its manifests do: it leads by its Lease
// and keeps the trust in its webhooks and conversions itself. Its certificates
// come from ca.
func (s *setup) kueueProgram(ca *authority) (program, error) {
	webhook, health := s.ports.next(), s.ports.next()
	certs := s.certDir(componentKueue)
	if err := ca.issue(componentKueue, certs, kueueService+"."+kueueNamespace+".svc"); err != nil {
		return program{}, err
	}
	configuration := fmt.Sprintf(`apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
namespace: %s
health:
  healthProbeBindAddress: %s
metrics:
  bindAddress: "0"
webhook:
  host: 127.0.0.1
  port: %d
  certDir: %q
leaderElection:
  leaderElect: true
  resourceNamespace: %s
  resourceName: c1f6bfd2.kueue.x-k8s.io
internalCertManagement:
  enable: true
  webhookServiceName: %s
  webhookSecretName: %s
# As its manifests have it; otherwise one at a time.
controller:
  groupKindConcurrency:
    Job.batch: 5
    Pod: 5
    Workload.kueue.x-k8s.io: 10
    LocalQueue.kueue.x-k8s.io: 5
    Cohort.kueue.x-k8s.io: 1
    ClusterQueue.kueue.x-k8s.io: 5
    ResourceFlavor.kueue.x-k8s.io: 1
clientConnection:
  qps: %d
  burst: %d
integrations:
  frameworks: [batch/job, jobset.x-k8s.io/jobset, trainer.kubeflow.org/trainjob, pod]
featureGates:
  # It would serve an aggregated API out of a folder at the root of the disk.
  VisibilityOnDemand: false
  DisableWaitForPodsReady: true
`, kueueNamespace, loopback(health), webhook, certs, kueueNamespace, kueueService, kueueSecret, s.options.ClientQPS, 2*s.options.ClientQPS)
	file := s.config("kueue.yaml")
	if err := writeFile(file, []byte(configuration), 0o600); err != nil {
		return program{}, err
	}
	return program{
		name: componentKueue, path: s.options.binary(binaryKueue), args: []string{"--config=" + file},
		env:   []string{"KUBECONFIG=" + s.identity(componentKueue)},
		ports: map[string]int{"webhook": webhook, "health": health},
		ready: httpReady("http://" + loopback(health) + "/readyz"),
		wait:  90 * time.Second, grace: 5 * time.Second,
	}, nil
}

// beginKueue is how to begin Kueue's manager, if it is chosen: its definitions
// are converted by it, and its Secret holds the certificates that it would
// otherwise make for its Service.
func (b *bringUp) beginKueue(theirs stages) []func(context.Context) error {
	if !b.options.Has(WithKueue) {
		return nil
	}
	var p program
	// Kueue reads the key of its authority, and knows RSA's only.
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	var ca *authority
	if err == nil {
		ca, err = authorityOf(key, kueueAuthorityName)
	}
	if err == nil {
		p, err = b.kueueProgram(ca)
	}
	return []func(context.Context) error{func(ctx context.Context) error {
		if err != nil {
			return err
		}
		if err := b.writeKueueSecret(ctx, ca, key); err != nil {
			return err
		}
		who := &account{componentKueue, kueueNamespace, kueueAccount}
		definitions := slices.DeleteFunc(slices.Clone(theirs.definitions), func(o *unstructured.Unstructured) bool { return !definesKueue(o) })
		return b.startPart(ctx, p, who, webhooksOf(theirs, "kueue"), definitions, ca.pem)
	}}
}

// writeKueueSecret gives Kueue's manager the Secret that a kubelet would mount,
// with certificates that it has no reason to make anew.
func (b *bringUp) writeKueueSecret(ctx context.Context, ca *authority, key *rsa.PrivateKey) error {
	folder := b.certDir(componentKueue)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: kueueNamespace, Name: kueueSecret},
		Data: map[string][]byte{
			"ca.crt": ca.pem,
			"ca.key": pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
		},
	}
	for _, name := range []string{"tls.crt", "tls.key"} {
		content, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return fmt.Errorf("reading Kueue's certificates: %w", err)
		}
		secret.Data[name] = content
	}
	if _, err := b.cluster.client.CoreV1().Secrets(kueueNamespace).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the Secret of Kueue's certificates: %w", err)
	}
	return nil
}

// definesKueue says that an object is a definition of Kueue's API.
func definesKueue(object *unstructured.Unstructured) bool {
	group, _, _ := unstructured.NestedString(object.Object, "spec", "group")
	return object.GetKind() == kindCRD && group == kueueGroup
}

// pointConversion makes a definition with a conversion webhook call a local
// port instead of a service, and reports whether it has one. Without ca, the bundle
// is left to the webhook's own program.
func pointConversion(object *unstructured.Unstructured, port int, ca []byte) bool {
	service, found, err := unstructured.NestedMap(object.Object, "spec", "conversion", "webhook", "clientConfig", "service")
	if err != nil || !found {
		return false
	}
	servicePath, _ := service["path"].(string)
	clientConfig := map[string]any{"url": "https://" + loopback(port) + path.Join("/", servicePath)}
	if ca != nil {
		clientConfig["caBundle"] = base64.StdEncoding.EncodeToString(ca)
	}
	return unstructured.SetNestedMap(object.Object, clientConfig, "spec", "conversion", "webhook", "clientConfig") == nil
}

// probeFlavor is created as a dry run only.
func probeFlavor() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": kueueGroup + "/v1beta2", "kind": "ResourceFlavor",
		"metadata": map[string]any{"name": "sandbox-probe"}, "spec": map[string]any{},
	}}
}
