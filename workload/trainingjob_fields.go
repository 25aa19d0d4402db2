package workload

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload/identity"
)

// The jobs of the Training Operator are read as they come: their Go types would
// pull its controllers' dependencies in for a handful of fields. This file is
// all that knows these.
const (
	trainingOperator  = identity.TrainingGroup + "/training-operator"
	trainingSucceeded = "Succeeded"
	trainingFailed    = "Failed"
)

var trainingVersion = schema.GroupVersion{Group: identity.TrainingGroup, Version: "v1"}

// trainingJob reads and writes the fields of a training job that Muster speaks
// of. A field of the wrong type, which the API server lets no one write, reads
// as unset.
type trainingJob struct {
	*unstructured.Unstructured
	// specs is the field of spec that holds the replicas.
	specs string
	// replicas are those of known types, in their order; they must not be
	// changed. wrong is why they cannot be read.
	replicas []replica
	wrong    *reason.Reason
}

// replica is the replicas of one type: identical pods.
type replica struct {
	// kind is the type as the operator writes it, key as the job's author did:
	// the operator does not mind the case.
	kind, key string
	replicaSpec
}

type replicaSpec struct {
	Replicas *int32                 `json:"replicas"`
	Template corev1.PodTemplateSpec `json:"template"`
}

func (r *replica) count() int32 { return ptr.Deref(r.Replicas, 1) }

// podSet is the name of the pod set, as Kueue writes it: the type in lower case,
// which is also what the operator writes on the pods.
func (r *replica) podSet() string { return strings.ToLower(r.kind) }

// open reads the replicas of a job.
func (k trainingKind) open(obj client.Object) (*trainingJob, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("a %T was given where a %s is read as unstructured", obj, k.kind)
	}
	t := &trainingJob{Unstructured: u, specs: k.specs}
	specs, _, _ := unstructured.NestedMap(u.Object, "spec", k.specs)
	for _, kind := range k.types {
		for _, key := range slices.Sorted(maps.Keys(specs)) {
			if !strings.EqualFold(key, kind) {
				continue
			}
			r := replica{kind: kind, key: key}
			fields, _ := specs[key].(map[string]any)
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &r.replicaSpec); err != nil {
				t.wrong = reason.New(reason.Misconfigured, "spec.%s.%s cannot be read: %v", k.specs, key, err)
				return t, nil
			}
			t.replicas = append(t.replicas, r)
		}
	}
	if len(t.replicas) != len(specs) {
		t.wrong = k.unknown(specs)
		return t, nil
	}
	for i := 1; i < len(t.replicas); i++ {
		if t.replicas[i].kind == t.replicas[i-1].kind {
			t.wrong = reason.New(reason.Misconfigured, "spec.%s has both %s and %s, which are the same", k.specs, t.replicas[i-1].key, t.replicas[i].key)
		}
	}
	return t, nil
}

// unknown names the first type of replicas that the operator does not know.
func (k trainingKind) unknown(specs map[string]any) *reason.Reason {
	for _, key := range slices.Sorted(maps.Keys(specs)) {
		if !slices.ContainsFunc(k.types, func(kind string) bool { return strings.EqualFold(kind, key) }) {
			return reason.New(reason.Misconfigured, "spec.%s has %q, which is none of %s", k.specs, key, strings.Join(k.types, ", "))
		}
	}
	return nil
}

// authored are the replicas with their templates as their author wrote them, in
// copies that may be changed.
func (t *trainingJob) authored() ([]replica, *reason.Reason) {
	if t.wrong != nil {
		return nil, t.wrong
	}
	replicas := slices.Clone(t.replicas)
	for i := range replicas {
		template := replicas[i].Template.DeepCopy()
		if _, err := restore(template); err != nil {
			return nil, reason.New(reason.Misconfigured, "pod template of the replicas %s: %v", replicas[i].kind, err)
		}
		replicas[i].Template = *template
	}
	return replicas, nil
}

func (t *trainingJob) str(path ...string) string {
	s, _, _ := unstructured.NestedString(t.Object, path...)
	return s
}

func (t *trainingJob) suspended() bool {
	suspend, _, _ := unstructured.NestedBool(t.Object, "spec", "runPolicy", "suspend")
	return suspend
}

func (t *trainingJob) managedBy() *string {
	name := t.str("spec", "runPolicy", "managedBy")
	return &name
}

// priorityClass is the one that the scheduling policy names.
func (t *trainingJob) priorityClass() string {
	return t.str("spec", "runPolicy", "schedulingPolicy", "priorityClass")
}

// timeLimit is when the operator ends the job, in seconds after its start. With
// cleanPodPolicy None, which is the default, pods go on running then.
func (t *trainingJob) timeLimit() *int64 {
	if policy := t.str("spec", "runPolicy", "cleanPodPolicy"); policy != "Running" && policy != "All" {
		return nil
	}
	return positive(t.Unstructured, "spec", "runPolicy", "activeDeadlineSeconds")
}

func (t *trainingJob) conditions() []metav1.Condition { return conditionsOf(t.Unstructured) }

// patch writes the suspension, and of the templates what an injection touches.
// Only the differences are sent, so that fields which this version does not
// know are not lost. replicas are those of the job, with other templates.
func (t *trainingJob) patch(ctx context.Context, c client.Client, replicas []replica, suspend bool) error {
	var operations []operation
	for i := range replicas {
		operations = append(operations, templateOperations(
			"/spec/"+t.specs+"/"+replicas[i].key+"/template", &t.replicas[i].Template, &replicas[i].Template)...)
	}
	if len(operations) > 0 {
		// The values replace all that is there in this version, and no other.
		operations = append(operations, operation{Op: "add", Path: "/metadata/resourceVersion", Value: t.GetResourceVersion()})
	}
	if suspend != t.suspended() {
		policy, _, _ := unstructured.NestedFieldNoCopy(t.Object, "spec", "runPolicy")
		if policy == nil {
			operations = append(operations, operation{Op: "add", Path: "/spec/runPolicy", Value: map[string]any{}})
		}
		operations = append(operations, operation{Op: "add", Path: "/spec/runPolicy/suspend", Value: suspend})
	}
	return send(ctx, c, t.DeepCopy(), operations)
}
