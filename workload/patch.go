package workload

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// send sends a JSON patch of obj, which takes in the answer. No operations are
// no request. An object that was deleted and created again under the same name
// is not patched.
func send(ctx context.Context, c client.Client, obj client.Object, operations []operation) error {
	if len(operations) == 0 {
		return nil
	}
	operations = append(operations, operation{Op: "add", Path: "/metadata/uid", Value: obj.GetUID()})
	body, err := json.Marshal(operations)
	if err != nil {
		return err
	}
	return c.Patch(ctx, obj, client.RawPatch(types.JSONPatchType, body))
}

// suspend sets spec.suspend of an owner that has it there. It asks for no
// resource version, since suspending is right whatever else changed; but not
// for a job that was deleted and created again under the same name.
func suspend(ctx context.Context, c client.Client, obj client.Object) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": obj.GetUID()},
		"spec":     map[string]any{"suspend": true},
	})
	if err != nil {
		return err
	}
	return c.Patch(ctx, obj, client.RawPatch(types.MergePatchType, body))
}

// templateOperations are the changes from one pod template to another in what
// an injection touches.
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
	if !equality.Semantic.DeepEqual(from.Spec.SchedulingGates, to.Spec.SchedulingGates) {
		operations = append(operations, set(path+"/spec/schedulingGates", to.Spec.SchedulingGates,
			len(to.Spec.SchedulingGates) == 0, len(from.Spec.SchedulingGates) > 0)...)
	}
	return operations
}

func setMap(path string, from, to map[string]string) []operation {
	if equality.Semantic.DeepEqual(from, to) {
		return nil
	}
	return set(path, to, len(to) == 0, len(from) > 0)
}
