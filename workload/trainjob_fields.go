package workload

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The Trainer's Go types do not compile against this version of Kubernetes, so
// its objects are read as they come. This file is all that knows their fields.
const (
	trainerGroup        = "trainer.kubeflow.org"
	trainJobController  = trainerGroup + "/trainjob-controller"
	clusterRuntimeKind  = "ClusterTrainingRuntime"
	runtimeKind         = "TrainingRuntime"
	trainJobComplete    = "Complete"
	trainJobFailed      = "Failed"
	runtimeNotSupported = "TrainingRuntimeNotSupported"
)

var trainerVersion = schema.GroupVersion{Group: trainerGroup, Version: "v1alpha1"}

// trainJob reads and writes the fields of a TrainJob that Muster speaks of. A
// field of the wrong type, which the API server lets no one write, reads as
// unset.
type trainJob struct{ *unstructured.Unstructured }

func asTrainJob(obj client.Object) (trainJob, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return trainJob{}, fmt.Errorf("a %T was given where a TrainJob is read as unstructured", obj)
	}
	return trainJob{u}, nil
}

func isTrainJob(ref *metav1.OwnerReference) bool {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && gv.Group == trainerGroup && ref.Kind == "TrainJob"
}

func (t trainJob) copy() trainJob { return trainJob{t.DeepCopy()} }

func (t trainJob) str(path ...string) string {
	s, _, _ := unstructured.NestedString(t.Object, path...)
	return s
}

func (t trainJob) suspended() bool {
	suspend, _, _ := unstructured.NestedBool(t.Object, "spec", "suspend")
	return suspend
}

func (t trainJob) setSuspended(suspend bool) {
	t.Object["spec"].(map[string]any)["suspend"] = suspend
}

func (t trainJob) managedBy() *string {
	name := t.str("spec", "managedBy")
	return &name
}

// runtimeRef is the runtime that the job names, with the API's defaults.
func (t trainJob) runtimeRef() (gk schema.GroupKind, name string) {
	gk = schema.GroupKind{Group: t.str("spec", "runtimeRef", "apiGroup"), Kind: t.str("spec", "runtimeRef", "kind")}
	if gk.Group == "" {
		gk.Group = trainerGroup
	}
	if gk.Kind == "" {
		gk.Kind = clusterRuntimeKind
	}
	return gk, t.str("spec", "runtimeRef", "name")
}

// timeLimit is when the Trainer ends the job, in seconds after it was last resumed;
// nil if it does not.
func (t trainJob) timeLimit() *int64 {
	return positive(t.Unstructured, "spec", "activeDeadlineSeconds")
}

// positive is a number of an object, nil if it is unset or none above zero.
func positive(u *unstructured.Unstructured, path ...string) *int64 {
	if n, _, _ := unstructured.NestedInt64(u.Object, path...); n > 0 {
		return &n
	}
	return nil
}

func (t trainJob) conditions() []metav1.Condition { return conditionsOf(t.Unstructured) }

// conditionsOf are the conditions in the status of an object.
func conditionsOf(u *unstructured.Unstructured) []metav1.Condition {
	list, _, _ := unstructured.NestedFieldNoCopy(u.Object, "status", "conditions")
	items, _ := list.([]any)
	conditions := make([]metav1.Condition, 0, len(items))
	for _, item := range items {
		fields, _ := item.(map[string]any)
		field := func(name string) string { s, _ := fields[name].(string); return s }
		conditions = append(conditions, metav1.Condition{
			Type:    field("type"),
			Status:  metav1.ConditionStatus(field("status")),
			Reason:  field("reason"),
			Message: field("message"),
		})
	}
	return conditions
}

// patches are the entries of spec.runtimePatches, not copied.
func (t trainJob) patches() []any {
	list, _, _ := unstructured.NestedFieldNoCopy(t.Object, "spec", "runtimePatches")
	entries, _ := list.([]any)
	return entries
}

func (t trainJob) setPatches(entries []any) {
	spec := t.Object["spec"].(map[string]any)
	if len(entries) == 0 {
		delete(spec, "runtimePatches")
		return
	}
	spec["runtimePatches"] = entries
}

func patchManager(entry any) string {
	fields, _ := entry.(map[string]any)
	manager, _ := fields["manager"].(string)
	return manager
}

// runtimePatch is an entry of spec.runtimePatches with the fields that Muster
// writes. It is a strategic merge patch on the runtime's JobSet spec, in which
// the tolerations of a pod are one value: a patch replaces all of them.
type runtimePatch struct {
	Manager             string           `json:"manager"`
	TrainingRuntimeSpec runtimeSpecPatch `json:"trainingRuntimeSpec"`
}

type runtimeSpecPatch struct {
	Template jobSetTemplatePatch `json:"template"`
}

type jobSetTemplatePatch struct {
	Spec jobSetSpecPatch `json:"spec"`
}

type jobSetSpecPatch struct {
	ReplicatedJobs []replicatedJobPatch `json:"replicatedJobs"`
}

type replicatedJobPatch struct {
	Name     string           `json:"name"`
	Template jobTemplatePatch `json:"template"`
}

type jobTemplatePatch struct {
	Spec jobSpecPatch `json:"spec"`
}

type jobSpecPatch struct {
	Template podTemplatePatch `json:"template"`
}

type podTemplatePatch struct {
	Metadata podMetadata  `json:"metadata"`
	Spec     podSpecPatch `json:"spec"`
}

type podMetadata struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type podSpecPatch struct {
	NodeSelector map[string]string   `json:"nodeSelector,omitempty"`
	Tolerations  []corev1.Toleration `json:"tolerations,omitempty"`
}

// toEntry is the patch as an entry of the list.
func (p *runtimePatch) toEntry() (map[string]any, error) {
	entry, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	if err != nil {
		return nil, fmt.Errorf("writing the runtime patch %s: %w", p.Manager, err)
	}
	entry["time"] = time.Now().UTC().Format(time.RFC3339)
	return entry, nil
}

// readPatch reads an entry; the fields that Muster does not write are left out.
func readPatch(entry any) (*runtimePatch, error) {
	p := &runtimePatch{}
	fields, _ := entry.(map[string]any)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, p); err != nil {
		return nil, fmt.Errorf("reading the runtime patch %s: %w", patchManager(entry), err)
	}
	return p, nil
}
