package workload

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// operation is one step of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// set gives the member at path a value, or takes it away if there is none.
// had says that the member is there now.
func set(path string, value any, empty, had bool) []operation {
	switch {
	case !empty:
		return []operation{{Op: "add", Path: path, Value: value}}
	case had:
		return []operation{{Op: "remove", Path: path}}
	}
	return nil
}

// patchJobSet writes the differences between two versions of a JobSet: its
// suspension and the parts of the pod templates that may change. Only those
// are sent, by a JSON patch, so that fields of a later JobSet API than the one
// compiled in here are not lost in the list of replicated jobs.
func patchJobSet(ctx context.Context, c client.Client, from, to *jobset.JobSet) error {
	var operations []operation
	for i := range to.Spec.ReplicatedJobs {
		operations = append(operations, templateOperations(
			fmt.Sprintf("/spec/replicatedJobs/%d/template/spec/template", i),
			&from.Spec.ReplicatedJobs[i].Template.Spec.Template,
			&to.Spec.ReplicatedJobs[i].Template.Spec.Template)...)
	}
	if len(operations) > 0 {
		// The indices in the paths hold for this version alone; the API server
		// answers with a conflict if there is a later one.
		operations = append(operations, operation{Op: "add", Path: "/metadata/resourceVersion", Value: from.ResourceVersion})
	}
	if suspend := ptr.Deref(to.Spec.Suspend, false); suspend != ptr.Deref(from.Spec.Suspend, false) {
		operations = append(operations, operation{Op: "add", Path: "/spec/suspend", Value: suspend})
	}
	if len(operations) == 0 {
		return nil
	}
	// Not one that was deleted and created again under the same name.
	operations = append(operations, operation{Op: "add", Path: "/metadata/uid", Value: from.UID})
	body, err := json.Marshal(operations)
	if err != nil {
		return err
	}
	return c.Patch(ctx, from.DeepCopy(), client.RawPatch(types.JSONPatchType, body))
}

func templateOperations(path string, from, to *corev1.PodTemplateSpec) []operation {
	var operations []operation
	if equality.Semantic.DeepEqual(from.ObjectMeta, metav1.ObjectMeta{}) {
		// Its author left metadata out, so its members cannot be added one by one.
		if len(to.Labels)+len(to.Annotations) > 0 {
			metadata := podMetadata{Labels: to.Labels, Annotations: to.Annotations}
			operations = append(operations, operation{Op: "add", Path: path + "/metadata", Value: metadata})
		}
	} else {
		operations = append(operations, setMap(path+"/metadata/labels", from.Labels, to.Labels)...)
		operations = append(operations, setMap(path+"/metadata/annotations", from.Annotations, to.Annotations)...)
	}
	operations = append(operations, setMap(path+"/spec/nodeSelector", from.Spec.NodeSelector, to.Spec.NodeSelector)...)
	if !equality.Semantic.DeepEqual(from.Spec.Tolerations, to.Spec.Tolerations) {
		operations = append(operations, set(path+"/spec/tolerations", to.Spec.Tolerations,
			len(to.Spec.Tolerations) == 0, len(from.Spec.Tolerations) > 0)...)
	}
	return operations
}

func setMap(path string, from, to map[string]string) []operation {
	if equality.Semantic.DeepEqual(from, to) {
		return nil
	}
	return set(path, to, len(to) == 0, len(from) > 0)
}
