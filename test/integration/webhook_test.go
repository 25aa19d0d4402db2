package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/cmd/webhook/app"
	"github.com/muster-gpu/muster/internal/testcluster"
	"github.com/muster-gpu/muster/internal/testobject"
	"github.com/muster-gpu/muster/manifests"
)

// webhookEnv is a webhook that the API server calls under the registration of
// the manifests.
type webhookEnv struct {
	*testcluster.Cluster
	registration *admissionregistrationv1.MutatingWebhookConfiguration
	// address is where the webhook listens.
	address string
	stop    func()
}

// TestWebhook runs its parts one after the other against one webhook; the last
// one ends it.
func TestWebhook(t *testing.T) {
	e := startWebhook(t)

	t.Run("a queued TrainJob is created suspended, by create and by apply", func(t *testing.T) {
		created, applied := trainJob("created", "q"), trainJob("applied", "q")
		e.Create(t, created)
		e.apply(t, applied, "ci")
		for _, job := range []*unstructured.Unstructured{created, applied} {
			if !e.suspended(t, job) {
				t.Errorf("%s is not suspended: %v", job.GetName(), job.Object["spec"])
			}
		}
	})
	t.Run("a TrainJob without a queue, or in an exempt namespace, is left as it is", func(t *testing.T) {
		unqueued, exempt := trainJob("unqueued", ""), trainJob("exempt", "q")
		exempt.SetNamespace("kube-system")
		for _, job := range []*unstructured.Unstructured{unqueued, exempt} {
			e.Create(t, job)
			if e.suspended(t, job) {
				t.Errorf("%s is suspended", job.GetName())
			}
		}
	})
	t.Run("the pods of a queued TrainJob's JobSet get the scheduler's name, and keep it when the Trainer applies again", func(t *testing.T) {
		owner := trainJob("owner", "q")
		e.Create(t, owner)
		js := childJobSet(owner)
		want := map[string]string{"launcher": "muster", "node": "volcano"}
		for _, occasion := range []string{"created", "applied again"} {
			e.apply(t, js, "trainer")
			if diff := cmp.Diff(want, schedulerNames(t, js)); diff != "" {
				t.Errorf("scheduler names when %s (-want +got):\n%s", occasion, diff)
			}
			js = childJobSet(owner)
		}
	})
	t.Run("the pods of an unqueued TrainJob's JobSet get none", func(t *testing.T) {
		owner := trainJob("free", "")
		e.Create(t, owner)
		js := childJobSet(owner)
		e.apply(t, js, "trainer")
		if diff := cmp.Diff(map[string]string{"launcher": "", "node": "volcano"}, schedulerNames(t, js)); diff != "" {
			t.Errorf("scheduler names (-want +got):\n%s", diff)
		}
	})
	t.Run("a caBundle that somebody wiped comes back", func(t *testing.T) {
		got := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: e.registration.Name}}
		var bundle []byte
		testobject.Change(t, e.Client, got, func(got *admissionregistrationv1.MutatingWebhookConfiguration) {
			bundle, got.Webhooks[0].ClientConfig.CABundle = got.Webhooks[0].ClientConfig.CABundle, nil
		})
		testcluster.Eventually(t, "the caBundle to come back", func(ctx context.Context) error {
			if err := e.Client.Get(ctx, client.ObjectKeyFromObject(got), got); err != nil {
				return err
			}
			if diff := cmp.Diff(bundle, got.Webhooks[0].ClientConfig.CABundle); diff != "" {
				return fmt.Errorf("it differs: %s", diff)
			}
			return nil
		})
		e.answers(t)
	})
	t.Run("without the webhook a queued TrainJob is created as it was written", func(t *testing.T) {
		e.stop()
		job := trainJob("later", "q")
		e.Create(t, job)
		if e.suspended(t, job) {
			t.Error("who suspended it?")
		}
	})
}

// startWebhook registers the webhook, runs it until the test ends and returns
// when the API server's calls are answered. Policies are not registered.
func startWebhook(t *testing.T, changes ...func(*configv1alpha1.WebhookConfiguration)) *webhookEnv {
	t.Helper()
	return webhookIn(t, testcluster.Start(t), changes...)
}

// webhookIn is startWebhook in a cluster in which there is something already.
func webhookIn(t *testing.T, c *testcluster.Cluster, changes ...func(*configv1alpha1.WebhookConfiguration)) *webhookEnv {
	t.Helper()
	e := &webhookEnv{Cluster: c}
	e.Namespace(t, "muster-system")
	e.Namespace(t, "nlp")

	config := configv1alpha1.DefaultWebhook()
	config.ClientConnection.Kubeconfig = e.Kubeconfig
	config.Webhook.BindAddress, config.Webhook.Port = "127.0.0.1", 0
	config.Webhook.Hosts = []string{"127.0.0.1"}
	config.Health.BindAddress, config.Metrics.BindAddress = "127.0.0.1:0", configv1alpha1.MetricsOff
	for _, change := range changes {
		change(config)
	}
	a, err := app.New(config)
	if err != nil {
		t.Fatal(err)
	}

	e.address = a.Address().String()
	readManifest(t, "base/webhook/registration/mutating.yaml", &e.registration)
	for i := range e.registration.Webhooks {
		e.point(&e.registration.Webhooks[i].ClientConfig)
	}
	e.Create(t, e.registration)

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	e.stop = func() {
		t.Helper()
		if ctx.Err() != nil {
			return
		}
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the webhook ends with: %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Error("the webhook does not stop")
		}
	}
	t.Cleanup(e.stop)
	e.answers(t)
	return e
}

func readManifest(t *testing.T, file string, into any) {
	t.Helper()
	content, err := manifests.FS.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(content, into); err != nil {
		t.Fatal(err)
	}
}

// point makes a webhook lead to the address: there is no network in which a Service
// would.
func (e *webhookEnv) point(to *admissionregistrationv1.WebhookClientConfig) {
	url := "https://" + e.address + *to.Service.Path
	to.URL, to.Service = &url, nil
}

// answers waits until the API server reaches the webhook. It asks with a dry
// run, so that nothing is left of the tries before.
func (e *webhookEnv) answers(t *testing.T) {
	t.Helper()
	testcluster.Eventually(t, "the webhook to answer the API server", func(ctx context.Context) error {
		probe := trainJob("probe", "q")
		if err := e.Client.Create(ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		if suspend, _, err := unstructured.NestedBool(probe.Object, "spec", "suspend"); err != nil || !suspend {
			return fmt.Errorf("a queued TrainJob is not suspended (%v)", err)
		}
		return nil
	})
}

// apply applies obj on the server's side and reads the outcome into it.
func (e *webhookEnv) apply(t *testing.T, obj *unstructured.Unstructured, owner string) {
	t.Helper()
	if err := e.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(obj), client.FieldOwner(owner), client.ForceOwnership); err != nil {
		t.Fatalf("applying %s %s: %v", obj.GetKind(), obj.GetName(), err)
	}
}

// suspended reads what the API server has stored of a TrainJob.
func (e *webhookEnv) suspended(t *testing.T, job *unstructured.Unstructured) bool {
	t.Helper()
	if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(job), job); err != nil {
		t.Fatal(err)
	}
	suspend, _, err := unstructured.NestedBool(job.Object, "spec", "suspend")
	if err != nil {
		t.Fatal(err)
	}
	return suspend
}

// trainJob is a TrainJob in namespace nlp; it names no queue if queue is empty.
func trainJob(name, queue string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
		"metadata": map[string]any{"namespace": "nlp", "name": name},
		"spec":     map[string]any{"runtimeRef": map[string]any{"name": "torch"}},
	}}
	if queue != "" {
		u.SetLabels(map[string]string{"kueue.x-k8s.io/queue-name": queue})
	}
	return u
}

// childJobSet is the JobSet that the Trainer applies for a TrainJob, with one
// pod template that names no scheduler and one that names another.
func childJobSet(owner *unstructured.Unstructured) *unstructured.Unstructured {
	replicated := func(name, scheduler string) map[string]any {
		spec := map[string]any{"containers": []any{map[string]any{"name": "node", "image": "example.com/train"}}}
		if scheduler != "" {
			spec["schedulerName"] = scheduler
		}
		return map[string]any{"name": name, "template": map[string]any{"spec": map[string]any{"template": map[string]any{"spec": spec}}}}
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
		"metadata": map[string]any{"namespace": owner.GetNamespace(), "name": owner.GetName()},
		"spec": map[string]any{
			"suspend":        true,
			"replicatedJobs": []any{replicated("launcher", ""), replicated("node", "volcano")},
		},
	}}
	u.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())})
	return u
}

// schedulerNames are the scheduler names in a JobSet, by replicated job.
func schedulerNames(t *testing.T, js *unstructured.Unstructured) map[string]string {
	t.Helper()
	jobs, _, err := unstructured.NestedSlice(js.Object, "spec", "replicatedJobs")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, j := range jobs {
		rj := j.(map[string]any)
		scheduler, _, err := unstructured.NestedString(rj, "template", "spec", "template", "spec", "schedulerName")
		if err != nil {
			t.Fatal(err)
		}
		names[rj["name"].(string)] = scheduler
	}
	return names
}
