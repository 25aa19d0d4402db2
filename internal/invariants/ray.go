package invariants

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	rayGroup = "ray.io"
	// submitterSet is the pod set of the Job that submits a RayJob, which is made
	// when the cluster is ready.
	submitterSet = "submitter"
)

// rayKinds are examples of Ray's kinds.
func rayKinds() []client.Object {
	var out []client.Object
	for _, kind := range []string{"RayJob", "RayCluster"} {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: rayGroup, Version: "v1", Kind: kind})
		out = append(out, u)
	}
	return out
}

// seeRay takes in a RayCluster, which is like a JobSet of which every group is a
// replicated job, or the RayJob that it is made for.
func (c *Checker) seeRay(o *unstructured.Unstructured, gone bool) {
	js := &jobSet{ref: ref(o.GetKind(), o), namespace: o.GetNamespace(), phases: map[string]int{}}
	// A field of another type counts as absent.
	managedBy, _, _ := unstructured.NestedString(o.Object, "spec", "managedBy")
	js.suspended, _, _ = unstructured.NestedBool(o.Object, "spec", "suspend")
	js.queued = o.GetLabels()[queueLabel] != "" && (managedBy == "" || managedBy == "ray.io/kuberay-operator")
	if owner := metav1.GetControllerOfNoCopy(o); isRay(owner) && owner.Kind == "RayJob" {
		js.owner = owner.UID
	}
	js.phases[submitterSet] = 1
	c.keepJobSet(o.GetUID(), js, gone)
}

func isRay(ref *metav1.OwnerReference) bool {
	return ref != nil && strings.HasPrefix(ref.APIVersion, rayGroup+"/")
}
