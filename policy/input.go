package policy

import (
	"fmt"
	"maps"
	"reflect"

	"github.com/open-policy-agent/opa/v1/ast"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
)

// subject is one object of a request as all policies see it, read once. What of it
// no policy looks at is never converted for OPA, which costs more than most policies.
// It is for one goroutine.
type subject struct {
	// object and old are the objects themselves, nil if the request has none.
	object, old map[string]any
	// request is the AdmissionRequest with the objects in it; review is the same as
	// Gatekeeper hands it out, with the old object in place of a deleted one.
	request, review ast.Object
	// workload is nil if nothing is known.
	workload ast.Value
}

// newSubject reads a request about an object, nil if it has none, in place of its own
// new one. workload is what is known of it; nil leaves it out.
func newSubject(r *admissionv1.AdmissionRequest, object, old map[string]any, workload any) (*subject, error) {
	head := *r
	head.Object, head.OldObject, head.Options = runtime.RawExtension{}, runtime.RawExtension{}, runtime.RawExtension{}
	body, err := json.Marshal(&head)
	if err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	// Absent objects are null in it.
	request, err := read(body)
	if err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	options, err := read(r.Options.Raw)
	if err != nil {
		return nil, fmt.Errorf("reading the request's options: %w", err)
	}
	for field, part := range map[string]map[string]any{"object": object, "oldObject": old, "options": options} {
		if part != nil {
			request[field] = part
		}
	}
	s := &subject{object: object, old: old}
	s.request = ast.LazyObject(request)
	s.review = s.request
	if r.Operation == admissionv1.Delete && s.object == nil && s.old != nil {
		review := maps.Clone(request)
		review["object"], s.object = s.old, s.old
		s.review = ast.LazyObject(review)
	}
	s.workload, err = lazily(workload)
	if err != nil {
		return nil, fmt.Errorf("describing the object: %w", err)
	}
	return s, nil
}

// read is a document as Kubernetes reads it: whole numbers are int64. It is nil of
// nothing.
func read(raw []byte) (map[string]any, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var out map[string]any
	return out, json.Unmarshal(raw, &out)
}

// input is what one policy sees of the subject.
func (s *subject) input(kind string, parameters ast.Value) ast.Value {
	if kind == inputManifest {
		return ast.LazyObject(s.object)
	}
	in := map[string]any{
		"apiVersion": admissionv1.SchemeGroupVersion.String(), "kind": "AdmissionReview",
		"request": s.request, "review": s.review, "parameters": parameters,
	}
	if s.workload != nil {
		in["workload"] = s.workload
	}
	return ast.LazyObject(in)
}

// unchanged says that an update changes nothing that a policy could mind: its
// status, or what controllers keep in an object's metadata, finalizers among them.
// An object that cannot lose its finalizer can never be deleted.
func unchanged(before, after map[string]any) bool {
	matters := func(object map[string]any) map[string]any {
		kept := maps.Clone(object)
		delete(kept, "status")
		delete(kept, "metadata")
		metadata, _ := object["metadata"].(map[string]any)
		for _, field := range []string{"labels", "annotations", "ownerReferences"} {
			kept["metadata."+field] = metadata[field]
		}
		return kept
	}
	return reflect.DeepEqual(matters(before), matters(after))
}
