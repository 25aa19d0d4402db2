package static

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kind is one whose objects policies are about.
type kind struct {
	schema.GroupKind
	resource string
	// specs is an expression for the specs of its pods, where OBJECT is the object; empty
	// if it does not say them itself.
	specs string
}

// template is where most kinds have their pods.
const template = "[OBJECT.spec.template.spec]"

var kinds = []kind{
	{schema.GroupKind{Kind: "Pod"}, "pods", "[OBJECT.spec]"},
	{schema.GroupKind{Group: "batch", Kind: "Job"}, "jobs", template},
	{schema.GroupKind{Group: "batch", Kind: "CronJob"}, "cronjobs", "[OBJECT.spec.jobTemplate.spec.template.spec]"},
	{schema.GroupKind{Group: "apps", Kind: "Deployment"}, "deployments", template},
	{schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, "statefulsets", template},
	{schema.GroupKind{Group: "jobset.x-k8s.io", Kind: "JobSet"}, "jobsets", "OBJECT.spec.?replicatedJobs.orValue([]).map(r, r.template.spec.template.spec)"},
	{schema.GroupKind{Group: "kubeflow.org", Kind: "Notebook"}, "notebooks", template},
	{schema.GroupKind{Group: "kubeflow.org", Kind: "Experiment"}, "experiments", ""},
	{schema.GroupKind{Group: "kubeflow.org", Kind: "PyTorchJob"}, "pytorchjobs", replicas("pytorch")},
	{schema.GroupKind{Group: "kubeflow.org", Kind: "TFJob"}, "tfjobs", replicas("tf")},
	{schema.GroupKind{Group: "kubeflow.org", Kind: "XGBoostJob"}, "xgboostjobs", replicas("xgb")},
	{schema.GroupKind{Group: "kubeflow.org", Kind: "PaddleJob"}, "paddlejobs", replicas("paddle")},
	{schema.GroupKind{Group: "kubeflow.org", Kind: "JAXJob"}, "jaxjobs", replicas("jax")},
	{schema.GroupKind{Group: "kubeflow.org", Kind: "MPIJob"}, "mpijobs", replicas("mpi")},
	{schema.GroupKind{Group: "trainer.kubeflow.org", Kind: "TrainJob"}, "trainjobs", ""},
	{schema.GroupKind{Group: "ray.io", Kind: "RayCluster"}, "rayclusters", ray("OBJECT.spec")},
	{schema.GroupKind{Group: "ray.io", Kind: "RayJob"}, "rayjobs", "(!has(OBJECT.spec.rayClusterSpec) ? [] : " + ray("OBJECT.spec.rayClusterSpec") + ")"},
	{schema.GroupKind{Group: "leaderworkerset.x-k8s.io", Kind: "LeaderWorkerSet"}, "leaderworkersets",
		"['leaderTemplate', 'workerTemplate'].filter(t, t in OBJECT.spec.leaderWorkerTemplate).map(t, OBJECT.spec.leaderWorkerTemplate[t].spec)"},
}

// many are kinds whose objects matter only if they ask for GPUs or name a queue: most do
// neither.
var many = []string{"Pod", "Job", "CronJob", "Deployment", "StatefulSet", "LeaderWorkerSet"}

// replicas are the pods of a training job of Kubeflow's version 1.
func replicas(framework string) string {
	field := "OBJECT.spec." + framework + "ReplicaSpecs"
	return field + ".map(r, " + field + "[r].template.spec)"
}

// ray are the pods of a cluster of Ray.
func ray(cluster string) string {
	return "[" + cluster + ".headGroupSpec.template.spec] + " + cluster + ".?workerGroupSpecs.orValue([]).map(g, g.template.spec)"
}

// specs is an expression for the specs of the pods of an object of any of the kinds;
// none of one that is not there.
func specs(object string) string {
	var b strings.Builder
	if object == "oldObject" {
		b.WriteString("request.operation == 'CREATE' ? [] : ")
	}
	for _, k := range kinds {
		if k.specs != "" {
			b.WriteString("request.kind.kind == " + text(k.Kind) + " ? " + strings.ReplaceAll(k.specs, "OBJECT", object) + " : ")
		}
	}
	b.WriteString("[]")
	return b.String()
}
