package app

import (
	"io/fs"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/internal/kustomization"
	"github.com/muster-gpu/muster/manifests"
)

// rendered is an object as "kubectl kustomize" makes it of a folder of the manifests. A
// name that ends in - is the beginning of one. Unknown fields fail the test.
func rendered[T any](t *testing.T, folder, kind, name string) *T {
	t.Helper()
	resources, err := kustomization.Build(folder, map[string]fs.FS{"": manifests.FS}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range resources.Resources() {
		if r.GetKind() != kind || (r.GetName() != name && !(strings.HasSuffix(name, "-") && strings.HasPrefix(r.GetName(), name))) {
			continue
		}
		content, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		object := new(T)
		if err := yaml.UnmarshalStrict(content, object); err != nil {
			t.Fatal(err)
		}
		return object
	}
	t.Fatalf("%s has no %s %s", folder, kind, name)
	return nil
}

func TestTheDeploymentFitsTheProgram(t *testing.T) {
	config := configv1alpha1.DefaultWebhook()
	deployment := rendered[appsv1.Deployment](t, "overlays/default", "Deployment", "muster-webhook")
	service := rendered[corev1.Service](t, "overlays/default", "Service", "muster-webhook")
	budget := rendered[policyv1.PodDisruptionBudget](t, "overlays/default", "PodDisruptionBudget", "muster-webhook")
	file := rendered[corev1.ConfigMap](t, "overlays/default", "ConfigMap", "muster-webhook-config-")
	pod := deployment.Spec.Template
	container := pod.Spec.Containers[0]

	for what, selector := range map[string]map[string]string{
		"the Deployment's": deployment.Spec.Selector.MatchLabels, "the Service's": service.Spec.Selector,
		"the PodDisruptionBudget's": budget.Spec.Selector.MatchLabels, "the spread's": pod.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels,
	} {
		for key, value := range selector {
			if pod.Labels[key] != value {
				t.Errorf("%s selector wants %s=%s, the pod has %v", what, key, value, pod.Labels)
			}
		}
	}
	if n, least := *deployment.Spec.Replicas, budget.Spec.MinAvailable.IntValue(); n < 2 || least < 1 || least >= int(n) {
		t.Errorf("%d replicas, of which %d are kept", n, least)
	}
	if deployment.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue() != 0 {
		t.Error("a roll-out takes a replica away before the next one is ready")
	}
	if grace := time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second; grace <= drainTime+finishTime {
		t.Errorf("a replica is killed after %s, and needs up to %s to stop", grace, drainTime+finishTime)
	}
	ports := map[string]int32{}
	for _, p := range container.Ports {
		ports[p.Name] = p.ContainerPort
	}
	want := map[string]int32{"webhook": config.Webhook.Port, "health": port(t, config.Health.BindAddress), "metrics": port(t, config.Metrics.BindAddress)}
	if diff := cmp.Diff(want, ports); diff != "" {
		t.Errorf("ports (-configuration +Deployment):\n%s", diff)
	}
	if target := service.Spec.Ports[0].TargetPort.IntVal; target != config.Webhook.Port {
		t.Errorf("the Service leads to port %d", target)
	}
	if pod.Spec.SchedulerName != corev1.DefaultSchedulerName || pod.Spec.ServiceAccountName != "muster-webhook" {
		t.Errorf("scheduler %s, service account %s", pod.Spec.SchedulerName, pod.Spec.ServiceAccountName)
	}
	soft, err := resource.ParseQuantity(strings.TrimSuffix(container.Env[0].Value, "B"))
	if err != nil {
		t.Fatal(err)
	}
	if limit := container.Resources.Limits.Memory().Value(); container.Env[0].Name != "GOMEMLIMIT" || soft.Value() > limit*9/10 {
		t.Errorf("%s is %s, and the pod is killed at %d bytes", container.Env[0].Name, soft.String(), limit)
	}
	if mounted := pod.Spec.Volumes[0].ConfigMap.Name; mounted != file.Name {
		t.Errorf("the configuration is in %s, and %s is mounted", file.Name, mounted)
	}
	if _, found := file.Data["webhook.yaml"]; !found || !slices.Contains(container.Args, "--config=/etc/muster/webhook.yaml") {
		t.Errorf("the program reads %v of %d files", container.Args, len(file.Data))
	}
}

// TestAConfigMapsNewNameChangesNoOther is about kustomize, which puts the name that it
// gives a ConfigMap also where a role names something else by the same.
func TestAConfigMapsNewNameChangesNoOther(t *testing.T) {
	role := manifest[rbacv1.Role](t, "rbac.yaml", "Role")
	if diff := cmp.Diff(role.Rules, rendered[rbacv1.Role](t, "overlays/default", "Role", "muster-webhook").Rules); diff != "" {
		t.Errorf("rules (-file +rendered):\n%s", diff)
	}
}

func TestACertificateOfCertManagersFitsTheProgram(t *testing.T) {
	config := configv1alpha1.DefaultWebhook()
	certificate := rendered[struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			DNSNames              []string `json:"dnsNames"`
			SecretName            string   `json:"secretName"`
			Duration, RenewBefore metav1.Duration
			Usages                []string
			PrivateKey, IssuerRef map[string]any
		}
	}](t, "cert-manager", "Certificate", "muster-webhook")
	if certificate.Namespace != config.Webhook.SecretNamespace || certificate.Spec.SecretName != config.Webhook.SecretName {
		t.Errorf("it is in Secret %s/%s", certificate.Namespace, certificate.Spec.SecretName)
	}
	if diff := cmp.Diff(hosts(config), certificate.Spec.DNSNames); diff != "" {
		t.Errorf("names (-asked +made):\n%s", diff)
	}
	// With a third of its life left the webhook makes one of its own.
	if certificate.Spec.RenewBefore.Duration <= certificate.Spec.Duration.Duration/3 {
		t.Errorf("of %s it is renewed %s before the end", certificate.Spec.Duration.Duration, certificate.Spec.RenewBefore.Duration)
	}
}

// port is that of a host:port.
func port(t *testing.T, address string) int32 {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return int32(n)
}
