package audit

import (
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/workload"
)

// kind is one kind of which objects are sent to the webhook too.
type kind struct {
	resource schema.GroupVersionResource
	// specs are where the specs of its pods are, if only those objects matter that ask for
	// GPUs, have a queue or are in a group; none if all do.
	specs [][]string
}

// pods may be members of a group, and matter then too.
var pods = of("", "v1", "pods")

// kinds are those that the webhook is asked about (manifests/base/webhook/registration/validating.yaml).
var kinds = append([]kind{
	{resource: pods, specs: [][]string{{"spec"}}},
	{resource: of("batch", "v1", "jobs"), specs: [][]string{{"spec", "template", "spec"}}},
	{resource: of("batch", "v1", "cronjobs"), specs: [][]string{{"spec", "jobTemplate", "spec", "template", "spec"}}},
	{resource: of("apps", "v1", "deployments"), specs: [][]string{{"spec", "template", "spec"}}},
	{resource: of("apps", "v1", "statefulsets"), specs: [][]string{{"spec", "template", "spec"}}},
	{resource: of("leaderworkerset.x-k8s.io", "v1", "leaderworkersets"), specs: [][]string{
		{"spec", "leaderWorkerTemplate", "leaderTemplate", "spec"}, {"spec", "leaderWorkerTemplate", "workerTemplate", "spec"},
	}},
}, all(
	of("trainer.kubeflow.org", "v1alpha1", "trainjobs"), of("jobset.x-k8s.io", "v1alpha2", "jobsets"),
	of("kubeflow.org", "v1", "pytorchjobs"), of("kubeflow.org", "v1", "tfjobs"), of("kubeflow.org", "v1", "xgboostjobs"),
	of("kubeflow.org", "v1", "paddlejobs"), of("kubeflow.org", "v1", "jaxjobs"), of("kubeflow.org", "v2beta1", "mpijobs"),
	of("kubeflow.org", "v1", "notebooks"), of("kubeflow.org", "v1beta1", "experiments"),
	of("ray.io", "v1", "rayjobs"), of("ray.io", "v1", "rayclusters"),
)...)

// Resources are those that are audited.
func Resources() []schema.GroupVersionResource {
	out := make([]schema.GroupVersionResource, len(kinds))
	for i := range kinds {
		out[i] = kinds[i].resource
	}
	return out
}

func of(group, version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
}

// all are kinds of which all objects matter.
func all(resources ...schema.GroupVersionResource) []kind {
	out := make([]kind, len(resources))
	for i, r := range resources {
		out[i].resource = r
	}
	return out
}

// concerns says that the webhook would be asked about the object if it were created.
func (k *kind) concerns(object *unstructured.Unstructured) bool {
	if len(k.specs) == 0 || object.GetLabels()[workload.QueueLabel] != "" {
		return true
	}
	for _, path := range k.specs {
		fields, found, _ := unstructured.NestedFieldNoCopy(object.Object, path...)
		var pod corev1.Pod
		if body, err := json.Marshal(fields); !found || err != nil || json.Unmarshal(body, &pod.Spec) != nil {
			continue
		}
		if asks(&pod.Spec) {
			return true
		}
		if k.resource == pods {
			pod.Labels = object.GetLabels()
			_, group := workload.GroupOf(&pod)
			return group != ""
		}
	}
	return false
}

// asks says that the pods ask for GPUs, by name or by a claim.
func asks(spec *corev1.PodSpec) bool {
	for _, list := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range list {
			r := &list[i].Resources
			if len(r.Claims) > 0 {
				return true
			}
			for _, amounts := range []corev1.ResourceList{r.Limits, r.Requests} {
				for name := range amounts {
					if gpu.Is(name) || strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix) {
						return true
					}
				}
			}
		}
	}
	return false
}
