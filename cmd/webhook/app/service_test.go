package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/admission/audit"
	"github.com/muster-gpu/muster/admission/conversion"
	"github.com/muster-gpu/muster/admission/queueing"
	"github.com/muster-gpu/muster/admission/serving"
	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
)

// running is the whole webhook on loopback ports, over fake API clients.
type running struct {
	testing.TB
	client    *fake.Clientset
	reader    *metadatafake.FakeMetadataClient
	listeners listeners
	// objects is the client of definitions and RuntimeDefaults.
	objects *dynamicfake.FakeDynamicClient
	stop    context.CancelFunc
	stopped chan error
}

func start(t testing.TB, mutate http.Handler, changes ...func(*service)) *running {
	t.Helper()
	client := fake.NewClientset(&admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "muster-mutating"},
		Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: "queueing.muster.dev"}},
	}, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "muster-validating"},
		Webhooks:   []admissionregistrationv1.ValidatingWebhook{{Name: "pods.policies.muster.dev"}},
	})
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	config := configv1alpha1.DefaultWebhook()
	config.Webhook.Hosts = []string{"127.0.0.1"}
	reader := metadatafake.NewSimpleMetadataClient(scheme)
	objects := converted()
	s, err := newService(config, client, reader, objects, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	s.drainTime = 0
	if mutate != nil {
		s.hooks[queueing.Path] = mutate
	}
	for _, change := range changes {
		change(s)
	}
	r := &running{TB: t, client: client, reader: reader, objects: objects, stopped: make(chan error, 1)}
	for _, l := range []*net.Listener{&r.listeners.webhook, &r.listeners.health, &r.listeners.metrics} {
		if *l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	r.stop = cancel
	go func() { r.stopped <- s.serve(ctx, r.listeners) }()
	t.Cleanup(cancel)
	r.becomes(http.StatusOK)
	return r
}

// becomes waits until /readyz answers with the status.
func (r *running) becomes(status int) {
	r.Helper()
	deadline := time.After(30 * time.Second)
	for {
		if got, body := r.plain("health", "/readyz"); got == status {
			return
		} else if body != "" {
			r.Log(body)
		}
		select {
		case <-deadline:
			r.Fatalf("/readyz does not become %d", status)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (r *running) plain(endpoint, path string) (int, string) {
	listener := map[string]net.Listener{"health": r.listeners.health, "metrics": r.listeners.metrics}[endpoint]
	response, err := http.Get("http://" + listener.Addr().String() + path)
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(body)
}

// caller is an HTTP client that trusts what the configuration says, as the API
// server does, and calls under the Service's name.
func (r *running) caller() *http.Client {
	r.Helper()
	c, err := r.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(r.Context(), "muster-mutating", metav1.GetOptions{})
	if err != nil {
		r.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(c.Webhooks[0].ClientConfig.CABundle) {
		r.Fatal("no caBundle")
	}
	return &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "muster-webhook.muster-system.svc"},
	}}
}

func (r *running) review(client *http.Client, trainJob string) (*admissionv1.AdmissionResponse, error) {
	return r.reviewAt(client, queueing.Path, metav1.GroupVersionKind{Group: "trainer.kubeflow.org", Version: "v1alpha1", Kind: "TrainJob"}, trainJob)
}

// reviewAt asks the webhook of a path about the creation of an object.
func (r *running) reviewAt(client *http.Client, path string, kind metav1.GroupVersionKind, object string) (*admissionv1.AdmissionResponse, error) {
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "one", Operation: admissionv1.Create, Namespace: "nlp", Name: "llm",
			Kind:   kind,
			Object: runtime.RawExtension{Raw: []byte(object)},
		},
	}
	body, err := json.Marshal(review)
	if err != nil {
		return nil, err
	}
	response, err := client.Post("https://"+r.listeners.webhook.Addr().String()+path, "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var answer admissionv1.AdmissionReview
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("status %d: %w", response.StatusCode, err)
	}
	return answer.Response, nil
}

const queuedTrainJob = `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"q"}},"spec":{}}`

func TestAReviewOverVerifiedTLS(t *testing.T) {
	r := start(t, nil)
	answer, err := r.review(r.caller(), queuedTrainJob)
	if err != nil {
		t.Fatal(err)
	}
	if !answer.Allowed || answer.UID != "one" {
		t.Errorf("allowed %v, UID %s", answer.Allowed, answer.UID)
	}
	if got, want := string(answer.Patch), `[{"op":"add","path":"/spec/suspend","value":true}]`; got != want {
		t.Errorf("patch %s, want %s", got, want)
	}
	// The same client under another name must be turned away by TLS.
	stranger := r.caller()
	stranger.Transport.(*http.Transport).TLSClientConfig.ServerName = "other.muster-system.svc"
	if _, err := r.review(stranger, queuedTrainJob); err == nil {
		t.Error("the certificate stands for any name")
	}
}

func TestTheConfigurationSaysWhetherJobsGoToTheDefaultQueue(t *testing.T) {
	for mode, want := range map[string]bool{
		configv1alpha1.UnqueuedDefault: true, configv1alpha1.UnqueuedRun: false, configv1alpha1.UnqueuedHold: false,
	} {
		t.Run(mode, func(t *testing.T) {
			scheme := metadatafake.NewTestScheme()
			if err := metav1.AddMetaToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			reader := metadatafake.NewSimpleMetadataClient(scheme, &metav1.PartialObjectMetadata{
				TypeMeta:   metav1.TypeMeta{APIVersion: "kueue.x-k8s.io/v1beta2", Kind: "LocalQueue"},
				ObjectMeta: metav1.ObjectMeta{Namespace: "nlp", Name: "default"},
			}, &metav1.PartialObjectMetadata{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "nlp"},
			})
			config := configv1alpha1.DefaultWebhook()
			config.Unqueued = mode
			s, err := newService(config, fake.NewClientset(), reader, converted(), clock.RealClock{})
			if err != nil {
				t.Fatal(err)
			}
			body := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"one","operation":"CREATE","namespace":"nlp",
				"kind":{"group":"trainer.kubeflow.org","version":"v1alpha1","kind":"TrainJob"},"object":{"metadata":{"name":"llm"},"spec":{}}}}`
			request := httptest.NewRequest(http.MethodPost, queueing.Path, strings.NewReader(body))
			request.Header.Set("Content-Type", "application/json")
			response := httptest.NewRecorder()
			s.hooks[queueing.Path].ServeHTTP(response, request)
			var answer admissionv1.AdmissionReview
			if err := json.Unmarshal(response.Body.Bytes(), &answer); err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(string(answer.Response.Patch), "queue-name"); got != want || !answer.Response.Allowed {
				t.Errorf("labelled: %v, want %v: %+v", got, want, answer.Response)
			}
		})
	}
}

func TestProbesAndMetrics(t *testing.T) {
	r := start(t, nil)
	if _, err := r.review(r.caller(), queuedTrainJob); err != nil {
		t.Fatal(err)
	}
	if status, _ := r.plain("health", "/healthz"); status != http.StatusOK {
		t.Errorf("/healthz: %d", status)
	}
	_, body := r.plain("metrics", "/metrics")
	for _, name := range []string{
		"muster_webhook_certificate_expiry_timestamp_seconds", "process_resident_memory_bytes",
		`controller_runtime_webhook_requests_total{code="200",webhook="/mutate-queueing"}`,
		`muster_webhook_request_seconds_count{code="200",webhook="/mutate-queueing"} 1`,
	} {
		if !strings.Contains(body, name) {
			t.Errorf("no metric %s", name)
		}
	}
}

func TestAPanicRefusesNothing(t *testing.T) {
	panics, err := serving.New(queueing.Path, func(context.Context, admission.Request) (admission.Response, error) { panic("planted") }, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, panics)
	if answer, err := r.review(r.caller(), queuedTrainJob); err == nil {
		t.Errorf("a panic was answered: %+v", answer)
	}
	if status, _ := r.plain("health", "/healthz"); status != http.StatusOK {
		t.Errorf("/healthz after the panic: %d", status)
	}
}

func TestAServerThatFailsEndsTheProgramWithItsReason(t *testing.T) {
	r := start(t, nil)
	r.listeners.webhook.Close()
	select {
	case err := <-r.stopped:
		if err == nil || !strings.Contains(err.Error(), "serving webhook") {
			t.Errorf("ended with: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("goes on without its webhook")
	}
}

func TestATakenPortIsNamed(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	config := configv1alpha1.DefaultWebhook()
	config.Webhook.BindAddress = "127.0.0.1"
	config.Webhook.Port = int32(taken.Addr().(*net.TCPAddr).Port)
	if _, err := listen(config); err == nil || !strings.Contains(err.Error(), "webhook.bindAddress") {
		t.Errorf("error: %v", err)
	}
}

var runtimeDefaults = schema.GroupVersionResource{Group: "muster.dev", Version: "v1alpha1", Resource: "runtimedefaults"}

// converted is a cluster with one definition that the webhook converts.
func converted() *dynamicfake.FakeDynamicClient {
	lists := map[schema.GroupVersionResource]string{
		runtimeDefaults: "RuntimeDefaultsList", admissionPolicies: "AdmissionPolicyList",
		{Group: "muster.dev", Version: "v1alpha1", Resource: "gpunodes"}: "GPUNodeList",
	}
	for resource, kind := range map[string]string{"localqueues": "LocalQueue", "clusterqueues": "ClusterQueue", "cohorts": "Cohort"} {
		lists[kueue.SchemeGroupVersion.WithResource(resource)] = kind + "List"
	}
	for _, resource := range audit.Resources() {
		lists[resource] = "List"
	}
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "clusterqueues.kueue.x-k8s.io"},
		"spec": map[string]any{"conversion": map[string]any{"webhook": map[string]any{"clientConfig": map[string]any{
			"service": map[string]any{"namespace": "muster-system", "name": "muster-webhook", "path": conversion.Path},
		}}}},
	}})
}

func TestTheWebhookIsNotReadyBeforeItsCertificateAndItsCachesAreThere(t *testing.T) {
	scheme := metadatafake.NewTestScheme()
	s, err := newService(configv1alpha1.DefaultWebhook(), fake.NewClientset(), metadatafake.NewSimpleMetadataClient(scheme), converted(), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	response := httptest.NewRecorder()
	s.health().ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	for _, want := range []string{"no serving certificate yet", "RuntimeDefaults are not read yet", "policies are not read yet", "queues and nodes are not read yet"} {
		if response.Code != http.StatusServiceUnavailable || !strings.Contains(response.Body.String(), want) {
			t.Errorf("status %d without %q: %s", response.Code, want, response.Body)
		}
	}
}
