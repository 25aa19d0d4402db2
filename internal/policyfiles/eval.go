package policyfiles

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/policy/facts"
	"github.com/muster-gpu/muster/policy/library"
)

// Request is what is evaluated.
type Request struct {
	// Objects are files with the objects that are created, or changed. Training runtimes
	// among them are those that TrainJobs name, and ResourceClaims and their templates those
	// that pods name.
	Objects []string
	// Old is a file with the objects as they were before: those found in it are updated.
	Old string
	// Inventory is a file with data.inventory; empty for none.
	Inventory string
	// Library says that Muster's own policies are asked too, at their default levels.
	Library bool
	User    string
	Groups  []string
}

// evaluationTime is how long a policy may take: an admin waits longer than an API
// server.
const evaluationTime = 5 * time.Second

// Eval writes what the policies say of the objects. It returns ErrFindings if one would
// be refused or a policy does not compile.
func Eval(ctx context.Context, out io.Writer, paths []string, r Request) error {
	policies, err := policiesOf(paths, r.Library)
	if err != nil {
		return err
	}
	objects, err := objectsOf(r.Objects)
	if err != nil {
		return err
	}
	var before []*unstructured.Unstructured
	if r.Old != "" {
		if before, err = Objects(r.Old); err != nil {
			return err
		}
	}
	e := policy.New(policy.Options{PolicyTime: evaluationTime, ReviewTime: time.Minute, Describer: facts.NewReader(around(objects), claimsAmong(objects))})
	e.SetPolicies(ctx, policies)
	if r.Inventory != "" {
		inventory, err := Objects(r.Inventory)
		if err != nil {
			return err
		}
		if err := setInventory(e, r.Inventory, inventory); err != nil {
			return err
		}
	}
	var found error
	for _, s := range e.Statuses() {
		if !s.Compiled {
			fmt.Fprintf(out, "%s: %v\n", s.Name, s.Errors)
			found = ErrFindings
		}
	}
	if found != nil {
		return found
	}
	for _, o := range objects {
		request, err := requestOf(o, before, r)
		if err != nil {
			return err
		}
		d, err := e.Review(ctx, request)
		if err != nil {
			return err
		}
		write(out, o, &d)
		if !d.Allowed {
			found = ErrFindings
		}
	}
	return found
}

func policiesOf(paths []string, own bool) ([]policy.Policy, error) {
	var out []policy.Policy
	if own {
		var err error
		if out, err = library.Policies(nil); err != nil {
			return nil, err
		}
	}
	if len(paths) == 0 && own {
		return out, nil
	}
	files, err := Load(paths)
	if err != nil {
		return nil, err
	}
	return append(out, files.Policies...), nil
}

func objectsOf(paths []string) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, path := range paths {
		objects, err := Objects(path)
		if err != nil {
			return nil, err
		}
		out = append(out, objects...)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("there are no objects in %s", strings.Join(paths, ", "))
	}
	return out, nil
}

// setInventory takes the one document of a file, which has a kind like any object.
func setInventory(e *policy.Engine, path string, documents []*unstructured.Unstructured) error {
	if len(documents) != 1 || documents[0].GetKind() != "Inventory" {
		return fmt.Errorf("%s has not one document with kind: Inventory", path)
	}
	return e.SetInventory(documents[0].Object)
}

// requestOf is the request that the API server would make.
func requestOf(o *unstructured.Unstructured, before []*unstructured.Unstructured, r Request) (*admissionv1.AdmissionRequest, error) {
	body, err := o.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("writing %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	gvk := o.GroupVersionKind()
	request := &admissionv1.AdmissionRequest{
		UID: "1", Operation: admissionv1.Create, Namespace: o.GetNamespace(), Name: o.GetName(),
		Kind:     metav1.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind},
		UserInfo: authenticationv1.UserInfo{Username: r.User, Groups: r.Groups},
	}
	request.Object.Raw = body
	for _, old := range before {
		if old.GroupVersionKind().GroupKind() == gvk.GroupKind() && old.GetNamespace() == o.GetNamespace() && old.GetName() == o.GetName() {
			if request.OldObject.Raw, err = old.MarshalJSON(); err != nil {
				return nil, fmt.Errorf("writing %s %s: %w", o.GetKind(), o.GetName(), err)
			}
			request.Operation = admissionv1.Update
		}
	}
	return request, nil
}

func write(out io.Writer, o *unstructured.Unstructured, d *policy.Decision) {
	name := o.GetName()
	if namespace := o.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	verdict := "allowed"
	if !d.Allowed {
		verdict = "denied"
	}
	fmt.Fprintf(out, "%s %s: %s\n", o.GetKind(), name, verdict)
	if message := d.Message(); message != "" {
		fmt.Fprintf(out, "  deny   %s\n", strings.ReplaceAll(message, "\n", "\n  deny   "))
	}
	for _, line := range d.WarningLines() {
		fmt.Fprintf(out, "  warn   %s\n", line)
	}
	for _, v := range d.Recorded {
		fmt.Fprintf(out, "  dryrun [%s] %s\n", v.Policy, v.Message)
	}
}

// around finds training runtimes among the objects. Owners do not exist, nor do groups.
type around []*unstructured.Unstructured

// Runtime implements facts.Around.
func (a around) Runtime(_ context.Context, namespace, kind, name string) (*unstructured.Unstructured, error) {
	for _, o := range a {
		if o.GetKind() == kind && o.GetName() == name && (o.GetNamespace() == "" || o.GetNamespace() == namespace) {
			return o, nil
		}
	}
	return nil, nil
}

// Owner implements facts.Around.
func (around) Owner(context.Context, string, metav1.OwnerReference) (*metav1.PartialObjectMetadata, error) {
	return nil, nil
}

// Group implements facts.Around.
func (around) Group(context.Context, string, schema.GroupVersionKind, string) (*metav1.PartialObjectMetadata, error) {
	return nil, nil
}
