package sandbox

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Names in the Training Operator's own manifests.
const (
	trainingOperatorNamespace = "kubeflow"
	trainingOperatorAccount   = "training-operator"
)

// trainingOperatorKustomization is the Training Operator's base in the namespace
// of its own overlays.
const trainingOperatorKustomization = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: kubeflow
resources:
- namespace.yaml
- ../operator/base
`

const trainingOperatorNamespaceManifest = `apiVersion: v1
kind: Namespace
metadata:
  name: kubeflow
`

func renderTrainingOperator(folder string) ([]*unstructured.Unstructured, error) {
	return buildKustomization("sandbox", map[string]fs.FS{
		"operator": os.DirFS(filepath.Join(folder, "manifests")),
	}, map[string]string{
		"sandbox/kustomization.yaml": trainingOperatorKustomization,
		"sandbox/namespace.yaml":     trainingOperatorNamespaceManifest,
	})
}

// trainingOperatorProgram runs the operator's controllers and webhooks as its
// own service account, without gang scheduling of its own.
func (s *setup) trainingOperatorProgram() (program, error) {
	webhook, health := s.ports.next(), s.ports.next()
	certs := s.certDir(componentTrainingOperator)
	if err := s.ca.issue(componentTrainingOperator, certs); err != nil {
		return program{}, err
	}
	return program{
		name: componentTrainingOperator, path: s.options.binary(binaryTrainingOperator),
		args: []string{
			"--health-probe-bind-address=" + loopback(health), "--webhook-port=" + strconv.Itoa(webhook), "--cert-dir=" + certs,
		},
		env:   []string{"KUBECONFIG=" + s.identity(componentTrainingOperator)},
		ports: map[string]int{"webhook": webhook, "health": health},
		ready: httpReady("http://" + loopback(health) + "/readyz"),
		wait:  60 * time.Second, grace: 3 * time.Second,
	}, nil
}

// probePyTorchJob is created as a dry run only.
func probePyTorchJob() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
		"metadata": map[string]any{"name": "sandbox-probe", "namespace": metav1.NamespaceDefault},
		"spec": map[string]any{"pytorchReplicaSpecs": map[string]any{"Worker": map[string]any{
			"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "pytorch", "image": "probe"}}}},
		}}},
	}}
}
