package policy

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testclock "k8s.io/utils/clock/testing"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// object is a Pod with the labels given; fields are put over it.
func object(labels map[string]any, spec map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "p", "namespace": "team-a", "labels": labels},
		"spec":     spec,
	}
}

func raw(t testing.TB, o any) runtime.RawExtension {
	t.Helper()
	if o == nil {
		return runtime.RawExtension{}
	}
	body, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return runtime.RawExtension{Raw: body}
}

// create asks to create an object.
func create(t testing.TB, o map[string]any) *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{
		UID: "u", Operation: admissionv1.Create, Namespace: "team-a", Name: "p",
		Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Object: raw(t, o),
		UserInfo: authenticationv1.UserInfo{Username: "ann", Groups: []string{"users"}},
	}
}

// update asks to change one into another.
func update(t testing.TB, before, after map[string]any) *admissionv1.AdmissionRequest {
	r := create(t, after)
	r.Operation, r.OldObject = admissionv1.Update, raw(t, before)
	return r
}

func engine(policies ...Policy) *Engine {
	e := New(Options{Clock: testclock.NewFakeClock(noon), PolicyTime: time.Minute, ReviewTime: time.Minute})
	e.SetPolicies(context.Background(), policies)
	return e
}

func one(name, rego string) Policy {
	return Policy{Name: name, Files: []File{{Name: name + ".rego", Rego: rego}}}
}

func review(t testing.TB, e *Engine, r *admissionv1.AdmissionRequest) Decision {
	t.Helper()
	d, err := e.Review(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
