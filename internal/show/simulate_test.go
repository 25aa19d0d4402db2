package show

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-gpu/muster/api/inquiry"
)

const oneJob = `
apiVersion: v1
kind: ConfigMap
metadata: {name: beside}
---
apiVersion: batch/v1
kind: Job
metadata: {name: urgent, labels: {kueue.x-k8s.io/queue-name: q}}
`

func TestASimulatedJobIsADryRunAndShownAsTheSchedulerSays(t *testing.T) {
	var sent unstructured.Unstructured
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := sent.UnmarshalJSON(body); err != nil || r.URL.Path != "/muster/v1alpha1/simulate" || r.Method != http.MethodPost || r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("%s %s %v %v", r.Method, r.URL, r.Header, err)
		}
		_ = json.NewEncoder(w).Encode(inquiry.Simulation{
			Outcome: inquiry.Preempts, Reason: "WaitingForQuota", Message: "needs 16 GPUs", ClusterQueue: "research", Flavors: []string{"h100"}, Position: 1, Pending: 4, Pods: 2, GPUs: 16,
			Nodes:     []inquiry.NodePods{{PodSet: "main", Node: "n2", Pods: 1}, {PodSet: "main", Node: "n1", Pods: 1}},
			Preempted: []inquiry.Stopped{{Kind: "TrainJob", Namespace: "nlp", Name: "apple", GPUs: 16, Reason: "InClusterQueue"}},
		})
	}))
	defer server.Close()
	scheduler, err := ReachScheduler(&rest.Config{BearerToken: "secret"}, server.URL, "", true)
	if err != nil {
		t.Fatal(err)
	}
	created := 0
	c := &Cluster{now: func() time.Time { return noon }, client: fake.NewClientBuilder().WithScheme(newScheme()).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			var o client.CreateOptions
			if o.ApplyOptions(opts); len(o.DryRun) == 0 {
				t.Error("it is really created")
			}
			created++
			obj.SetAnnotations(map[string]string{"by": "webhook"})
			return nil
		},
	}).Build()}
	compare(t, `
Job team/urgent would start when others have been stopped for it
  Size       16 GPUs, 2 pods
  Quota      ClusterQueue research, flavor h100
  Position   1 of 4 in ClusterQueue research
  Why        WaitingForQuota: needs 16 GPUs
  stops TrainJob nlp/apple  16 GPUs, priority 0, InClusterQueue
  n1: 1 of main
  n2: 1 of main
`, shown(t, "", func(o Output) error {
		return c.ShowSimulation(t.Context(), o, strings.NewReader(oneJob), "team", scheduler)
	}))
	if created != 1 || sent.GetName() != "urgent" || sent.GetNamespace() != "team" || sent.GetAnnotations()["by"] != "webhook" {
		t.Errorf("%d dry runs, sent %v", created, sent.Object)
	}
}

func TestWhyTheSchedulerDoesNotAnswerIsSaid(t *testing.T) {
	code := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "because", code) }))
	defer server.Close()
	scheduler, err := ReachScheduler(&rest.Config{}, server.URL, "", true)
	if err != nil {
		t.Fatal(err)
	}
	for c, want := range map[int]string{401: "who you are", 403: "muster-viewer", 429: "busy", 503: "because"} {
		code = c
		if _, err := scheduler.Explain(t.Context(), "a", "b"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v", c, err)
		}
	}
	if _, err := ReachScheduler(&rest.Config{}, "127.0.0.1:1", "", false); err == nil {
		t.Error("an address without https is taken")
	}
}

func TestABusySchedulerIsAskedAgain(t *testing.T) {
	asked := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked < 3 {
			w.Header().Set("Retry-After", "0")
			http.Error(w, "busy", http.StatusTooManyRequests)
			return
		}
		_ = json.NewEncoder(w).Encode(inquiry.Standing{State: "pending"})
	}))
	defer server.Close()
	scheduler, err := ReachScheduler(&rest.Config{}, server.URL, "", true)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := scheduler.Explain(t.Context(), "a", "b"); err != nil || s.State != "pending" || asked != 3 {
		t.Errorf("asked %d times: %+v %v", asked, s, err)
	}
}

func TestCredentialsGoToNobodyWhoIsNotVerified(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("asked") }))
	defer server.Close()
	scheduler, err := ReachScheduler(&rest.Config{BearerToken: "secret"}, server.URL, "", false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := scheduler.Explain(t.Context(), "a", "b"); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Error(err)
	}
}

func TestAJobWithoutANameIsSimulatedUnderThatOfItsDryRun(t *testing.T) {
	c := &Cluster{client: fake.NewClientBuilder().WithScheme(newScheme()).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.CreateOption) error {
			obj.SetName(obj.GetGenerateName() + "x")
			return nil
		},
	}).Build()}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGenerateName("train-")
	if got, err := c.admitted(t.Context(), u); err != nil || got.GetName() != "train-x" {
		t.Errorf("%v %v", got, err)
	}
}
