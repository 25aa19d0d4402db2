package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/rendering"
)

// TestRendering has the scheduler ask the API server what pods will be, as who
// it is in a cluster, behind the policy that allows it nothing else.
func TestRendering(t *testing.T) {
	c := up(t, "rendering")
	tm := c.team(t, "team-sidecar")
	tm.queueUp(t, "q", 32)
	tm.inject(t)

	t.Run("the scheduler creates pods as a dry run and in no other way", func(t *testing.T) {
		scheduler := tm.asScheduler(t)
		for _, namespace := range []string{tm.namespace, "kube-system"} {
			err := scheduler.Create(t.Context(), tm.probe(namespace))
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "creates pods as a dry run only") {
				t.Errorf("the answer to a pod in %s is %v", namespace, err)
			}
		}
		if err := scheduler.Create(t.Context(), tm.probe(tm.namespace), client.DryRunAll); err != nil {
			t.Errorf("the answer to a dry run is %v", err)
		}
	})
	t.Run("a sidecar that a policy injects is planned with", func(t *testing.T) {
		before := tm.rendered(t, "dry-run")
		tm.create(t, job{name: "foreseen", queue: "q", nodes: 4, gpus: 4})
		tm.runs(t, "foreseen", 4)
		if after := tm.rendered(t, "dry-run"); after == before {
			t.Errorf("no dry run was made: %s", after)
		}
		tm.neverSays(t, "foreseen", "PodsDiffer")
	})
	t.Run("without the policy no dry run is made, and the sidecar is found when pods appear", func(t *testing.T) {
		policy := &admissionv1.ValidatingAdmissionPolicy{}
		if err := c.client.Get(t.Context(), client.ObjectKey{Name: rendering.FenceName}, policy); err != nil {
			t.Fatal(err)
		}
		if err := c.client.Delete(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
		// A new process looks at once.
		tm.kill(t, "muster-scheduler")
		tm.restart(t, "muster-scheduler")
		tm.create(t, job{name: "surprise", queue: "q", nodes: 2, gpus: 8})
		tm.runs(t, "surprise", 2)
		tm.says(t, "surprise", "PodsDiffer", "pods of set node are not what was planned: they request 1 more cpu (injected: proxy); they are planned anew")
		if got := tm.rendered(t, "dry-run"); got != "" {
			t.Errorf("dry runs were made: %s", got)
		}
		if tm.rendered(t, "local") == "" {
			t.Error("no local rendering is counted")
		}
	})
}

// inject has a policy put a container into every pod of the team.
func (tm team) inject(t *testing.T) {
	t.Helper()
	policy := &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "inject"},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: tm.namespace}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				}}},
			},
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeJSONPatch,
				JSONPatch: &admissionv1.JSONPatch{Expression: `[JSONPatch{op: "add", path: "/spec/containers/-", value: ` +
					`{"name": dyn("proxy"), "image": dyn("example.com/x"), "resources": dyn({"requests": {"cpu": "1"}})}}]`},
			}},
		},
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "inject"}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "inject"},
	}
	for _, o := range []client.Object{policy, binding} {
		if err := tm.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the sidecar to be injected", func(ctx context.Context) error {
		pod := tm.probe(tm.namespace)
		if err := tm.client.Create(ctx, pod, client.DryRunAll); err != nil {
			return err
		}
		if len(pod.Spec.Containers) != 2 {
			return fmt.Errorf("the pod has %d containers", len(pod.Spec.Containers))
		}
		return nil
	})
}

// probe is a small pod.
func (tm team) probe(namespace string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "probe-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "example.com/x"}}},
	}
}

// asScheduler is a client with the scheduler's own credentials.
func (tm team) asScheduler(t *testing.T) client.Client {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(tm.Dir(), "config", "muster-scheduler.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	scheduler, err := client.New(config, client.Options{Scheme: tm.client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return scheduler
}

// unverified trusts any certificate: the sandbox's scheduler signs its own.
var unverified = &http.Client{
	Timeout:   patience,
	Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
}

// metrics are those of the scheduler.
func (tm team) metrics(t *testing.T) string {
	t.Helper()
	config, err := tm.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	state, err := tm.State()
	if err != nil {
		t.Fatal(err)
	}
	port := 0
	for _, component := range state.Components {
		if component.Name == "muster-scheduler" {
			port = component.Ports["serving"]
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/metrics", port), nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+config.BearerToken)
	response, err := unverified.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("reading the metrics: %s (%v)", response.Status, err)
	}
	return string(text)
}

// rendered is how many templates the scheduler says it has rendered so; empty
// if none.
func (tm team) rendered(t *testing.T, how string) string {
	t.Helper()
	found := regexp.MustCompile(`muster_render_total\{how="` + how + `"\} (\S+)`).FindStringSubmatch(tm.metrics(t))
	if found == nil {
		return ""
	}
	return found[1]
}

// neverSays fails the test if a TrainJob has an event of that reason.
func (tm team) neverSays(t *testing.T, name, why string) {
	t.Helper()
	var list corev1.EventList
	if err := tm.client.List(t.Context(), &list, client.InNamespace(tm.namespace)); err != nil {
		t.Fatal(err)
	}
	for _, event := range list.Items {
		if event.InvolvedObject.Name == name && event.Reason == why {
			t.Errorf("%s has the event %s: %s", name, why, event.Message)
		}
	}
}
