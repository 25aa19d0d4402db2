package invariants

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// trainingGroup is the API group of the jobs of the Training Operator and of the
// MPI Operator.
const trainingGroup = "kubeflow.org"

// trainingJobs are examples of their kinds.
func trainingJobs() []client.Object {
	var out []client.Object
	for _, k := range []struct{ kind, version string }{
		{"PyTorchJob", "v1"}, {"TFJob", "v1"}, {"XGBoostJob", "v1"}, {"PaddleJob", "v1"}, {"JAXJob", "v1"},
		// A cluster has one of the two.
		{"MPIJob", "v2beta1"}, {"MPIJob", "v1"},
	} {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: trainingGroup, Version: k.version, Kind: k.kind})
		out = append(out, u)
	}
	return out
}

// seeTraining takes in a training job. It is like a JobSet of which every type
// of replicas is a replicated job.
func (c *Checker) seeTraining(o *unstructured.Unstructured, gone bool) {
	js := &jobSet{ref: ref(o.GetKind(), o), namespace: o.GetNamespace(), phases: map[string]int{}}
	// A field of another type counts as absent.
	managedBy, _, _ := unstructured.NestedString(o.Object, "spec", "runPolicy", "managedBy")
	js.suspended, _, _ = unstructured.NestedBool(o.Object, "spec", "runPolicy", "suspend")
	js.queued = o.GetLabels()[queueLabel] != "" && (managedBy == "" || strings.HasPrefix(managedBy, trainingGroup+"/"))
	if policy, _, _ := unstructured.NestedString(o.Object, "spec", "launcherCreationPolicy"); policy == "WaitForWorkersReady" {
		js.phases["launcher"] = 1
	}
	c.keepJobSet(o.GetUID(), js, gone)
}

func isTraining(ref *metav1.OwnerReference) bool {
	return ref != nil && strings.HasPrefix(ref.APIVersion, trainingGroup+"/") && strings.HasSuffix(ref.Kind, "Job")
}
