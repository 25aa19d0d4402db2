package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WebhookKind is the kind of the webhook's file.
const WebhookKind = "WebhookConfiguration"

// MetricsOff is the bindAddress that turns the metrics endpoint off.
const MetricsOff = "0"

// WebhookConfiguration configures the admission webhook.
type WebhookConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	ClientConnection WebhookClientConnection `json:"clientConnection"`
	Webhook          WebhookServing          `json:"webhook"`
	Health           WebhookHealth           `json:"health"`
	Metrics          WebhookMetrics          `json:"metrics"`
	// SchedulerName is set on the pods of queued jobs. It must be one of the
	// scheduler's profiles.
	SchedulerName string `json:"schedulerName"`
	// Unqueued says what happens to jobs that name no queue. UnqueuedDefault: a
	// TrainJob, and a JobSet or Job that asks for GPUs, gets the label of the
	// default LocalQueue of its namespace, where there is one. UnqueuedRun and
	// UnqueuedHold leave them as they are here.
	Unqueued string `json:"unqueued"`
	// ExemptNamespaces are never touched.
	ExemptNamespaces []string        `json:"exemptNamespaces"`
	Policies         WebhookPolicies `json:"policies"`
}

// WebhookClientConnection is how the webhook reaches the API server.
type WebhookClientConnection struct {
	// Kubeconfig is the path of a kubeconfig file; empty means the service
	// account of the pod.
	Kubeconfig string `json:"kubeconfig"`
}

// WebhookServing is the HTTPS endpoint that the API server calls, and the
// objects in which its self-managed certificate is kept and announced.
type WebhookServing struct {
	// BindAddress is an IP address.
	BindAddress string `json:"bindAddress"`
	Port        int32  `json:"port"`
	// SecretNamespace holds the Secret with the certificate, and the Service.
	SecretNamespace string `json:"secretNamespace"`
	SecretName      string `json:"secretName"`
	ServiceName     string `json:"serviceName"`
	// MutatingConfigurationName is the MutatingWebhookConfiguration into which
	// the CA is written.
	MutatingConfigurationName string `json:"mutatingConfigurationName"`
	// ValidatingConfigurationName is the ValidatingWebhookConfiguration of the
	// policies, into which it is written too where there is one.
	ValidatingConfigurationName string `json:"validatingConfigurationName"`
	// Hosts are DNS names and IP addresses that the certificate covers beside
	// the Service's own names.
	Hosts []string `json:"hosts"`
}

// WebhookHealth is the plain HTTP endpoint for probes.
type WebhookHealth struct {
	// BindAddress is host:port; an empty host means every address.
	BindAddress string `json:"bindAddress"`
}

// WebhookMetrics is the plain HTTP endpoint for metrics.
type WebhookMetrics struct {
	// BindAddress is host:port, or MetricsOff.
	BindAddress string `json:"bindAddress"`
}

// DefaultWebhook returns the configuration of an empty file.
func DefaultWebhook() *WebhookConfiguration {
	return &WebhookConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: GroupVersion, Kind: WebhookKind},
		Webhook: WebhookServing{
			BindAddress:                 "0.0.0.0",
			Port:                        9443,
			SecretNamespace:             "muster-system",
			SecretName:                  "muster-webhook-cert",
			ServiceName:                 "muster-webhook",
			MutatingConfigurationName:   "muster-mutating",
			ValidatingConfigurationName: "muster-validating",
			Hosts:                       []string{},
		},
		Health:           WebhookHealth{BindAddress: ":8081"},
		Metrics:          WebhookMetrics{BindAddress: ":8080"},
		SchedulerName:    "muster",
		Unqueued:         UnqueuedDefault,
		ExemptNamespaces: []string{"kube-system", "muster-system"},
		Policies: WebhookPolicies{
			Library:             map[string]LibraryPolicy{},
			ConfigMapNamespace:  "muster-system",
			DeviceClassMappings: defaultDeviceClasses(),
			Audit:               WebhookAudit{Interval: metav1.Duration{Duration: 10 * time.Minute}, ChunkSize: 500},
		},
	}
}
