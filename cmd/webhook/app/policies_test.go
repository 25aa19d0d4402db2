package app

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/utils/clock"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/metrics"
	"github.com/muster-gpu/muster/policy"
)

func TestTheMetricsOfPoliciesAreThoseOfReviewsAndOfTheAudit(t *testing.T) {
	config := configv1alpha1.DefaultWebhook()
	objects := converted()
	exempt := config.ExemptNamespaces[0]
	for namespace, names := range map[string][]string{"nlp": {"train", "serve"}, exempt: {"system"}} {
		for _, name := range names {
			if err := objects.Tracker().Add(&unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"namespace": namespace, "name": name},
				"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "resources": map[string]any{"limits": map[string]any{"nvidia.com/gpu": "1"}}}}},
			}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	s, err := newService(config, fake.NewClientset(), metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme()), objects, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	minds := func(name, rego string, enforcement policy.Enforcement) policy.Policy {
		return policy.Policy{Name: name, Enforcement: enforcement, Files: []policy.File{{Name: "p.rego", Rego: "package p\n\n" + rego}}}
	}
	s.engine.SetPolicies(t.Context(), []policy.Policy{
		minds("broken", "deny :=", policy.Deny),
		minds("counts", "deny contains \"no\"", policy.DryRun),
		minds("denies", "deny contains \"no\"\n\nwarn contains n if some n in [\"a\", \"b\", \"c\"]", policy.Deny),
		minds("fails", "deny contains \"no\" if 1 / count([]) > 0", policy.DryRun),
	})
	if _, err := s.engine.Review(t.Context(), &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Namespace: "nlp", Name: "new", Object: runtime.RawExtension{Raw: []byte("{}")},
	}); err != nil {
		t.Fatal(err)
	}
	want := []metrics.Policy{
		{Name: "broken", Reviews: 1, Failed: 1},
		{Name: "counts", Compiled: true, Reviews: 1, DryRun: 1},
		{Name: "denies", Compiled: true, Reviews: 1, Denied: 1, Warned: 3},
		{Name: "fails", Compiled: true, Reviews: 1, Failed: 1},
	}
	if diff := cmp.Diff(want, policyMetrics(s.engine, s.auditor)); diff != "" {
		t.Errorf("before the first audit (-want +got):\n%s", diff)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.auditor.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	if wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) { return s.auditor.Results() != nil, nil }) != nil {
		t.Fatal("nothing is audited")
	}
	audited := slices.Clone(want)
	for i, a := range []metrics.Audited{{}, {DryRun: 2}, {Denied: 2, Warned: 6}, {}} {
		audited[i].Audited = &a
	}
	if diff := cmp.Diff(audited, policyMetrics(s.engine, s.auditor)); diff != "" {
		t.Errorf("after it (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, policyMetrics(s.engine, nil)); diff != "" {
		t.Errorf("where nothing is audited (-want +got):\n%s", diff)
	}
}
