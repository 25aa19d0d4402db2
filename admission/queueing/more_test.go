package queueing

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	ownedByRayJob = `"ownerReferences":[{"apiVersion":"ray.io/v1","kind":"RayJob","name":"tune","uid":"u1","controller":true}]`
	rayClusterOf  = `"headGroupSpec":{"template":{"spec":{}}},"workerGroupSpecs":[{"template":{"spec":{"schedulerName":""}}},null,{"groupName":"x"},{"template":{"spec":{"schedulerName":"other"}}}]`
)

func TestDecideOfRayAndOfWhatServes(t *testing.T) {
	const (
		queued  = `"labels":{"kueue.x-k8s.io/queue-name":"team"}`
		suspend = `{"op":"add","path":"/spec/suspend","value":true}`
		gpu     = `"containers":[{"resources":{"limits":{"nvidia.com/gpu":"1"}}}]`
	)
	stamp := func(path string) string {
		return `{"op":"add","path":"/spec/` + path + `/spec/schedulerName","value":"muster"}`
	}
	for name, tc := range map[string]struct {
		kind         schema.GroupKind
		object       string
		defaultQueue string
		want         []string
	}{
		"a RayCluster is suspended, and its templates are stamped": {
			kind: RayCluster, object: `{"metadata":{` + queued + `},"spec":{` + rayClusterOf + `}}`,
			want: []string{suspend, stamp("headGroupSpec/template"), stamp("workerGroupSpecs/0/template")},
		},
		"a RayJob too, with the submitter's if it has one": {
			kind: RayJob, object: `{"metadata":{` + queued + `},"spec":{"suspend":false,"submitterPodTemplate":{"spec":{}},"rayClusterSpec":{` + rayClusterOf + `}}}`,
			want: []string{suspend, stamp("rayClusterSpec/headGroupSpec/template"), stamp("rayClusterSpec/workerGroupSpecs/0/template"), stamp("submitterPodTemplate")},
		},
		"the RayCluster of a RayJob is left":  {kind: RayCluster, object: `{"metadata":{` + queued + `,` + ownedByRayJob + `},"spec":{` + rayClusterOf + `}}`},
		"the Job of a RayJob is left":         {kind: Job, object: `{"metadata":{` + queued + `,` + ownedByRayJob + `},"spec":{` + podOf(`""`) + `}}`},
		"a RayJob on another cluster is left": {kind: RayJob, object: `{"metadata":{` + queued + `},"spec":{"clusterSelector":{"ray.io/cluster":"ray"}}}`},
		"a RayJob of a foreign controller is left": {
			kind: RayJob, object: `{"metadata":{` + queued + `},"spec":{"managedBy":"kueue.x-k8s.io/multikueue","rayClusterSpec":{` + rayClusterOf + `}}}`,
		},
		"a RayCluster with GPUs goes to the default queue": {
			kind: RayCluster, defaultQueue: "default", object: `{"metadata":{},"spec":{"workerGroupSpecs":[{"template":{"spec":{` + gpu + `}}}]}}`,
			want: []string{`{"op":"add","path":"/metadata/labels","value":{"kueue.x-k8s.io/queue-name":"default"}}`, suspend, stamp("workerGroupSpecs/0/template")},
		},
		"a Deployment passes its queue and its priority on": {
			kind:   Deployment,
			object: `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"team","kueue.x-k8s.io/priority-class":"high"}},"spec":{"template":{"metadata":{"labels":{"app":"web"}},"spec":{"schedulerName":"default-scheduler"}}}}`,
			want: []string{
				`{"op":"add","path":"/spec/template/metadata/labels/kueue.x-k8s.io~1queue-name","value":"team"}`,
				`{"op":"add","path":"/spec/template/metadata/labels/kueue.x-k8s.io~1priority-class","value":"high"}`, stamp("template"),
			},
		},
		"a StatefulSet whose template names another queue keeps it": {
			kind: StatefulSet, object: `{"metadata":{` + queued + `},"spec":{"template":{"metadata":{` + `"labels":{"kueue.x-k8s.io/queue-name":"own"}` + `},"spec":{}}}}`, want: []string{stamp("template")},
		},
		"a StatefulSet of a Notebook is left": {
			kind: StatefulSet, object: `{"metadata":{` + queued + `,"ownerReferences":[{"apiVersion":"kubeflow.org/v1","kind":"Notebook","name":"n","uid":"u","controller":true}]},"spec":{"template":{"spec":{}}}}`,
		},
		"a Deployment without a queue is left, whatever it asks for": {kind: Deployment, defaultQueue: "default", object: `{"metadata":{},"spec":{"template":{"spec":{` + gpu + `}}}}`},
		"a LeaderWorkerSet passes its queue on to both templates": {
			kind: LeaderWorkerSet, object: `{"metadata":{` + queued + `},"spec":{"leaderWorkerTemplate":{"leaderTemplate":{"metadata":{},"spec":{}},"workerTemplate":{"spec":{}}}}}`,
			want: []string{
				`{"op":"add","path":"/spec/leaderWorkerTemplate/leaderTemplate/metadata/labels","value":{"kueue.x-k8s.io/queue-name":"team"}}`,
				`{"op":"add","path":"/spec/leaderWorkerTemplate/workerTemplate/metadata","value":{"labels":{"kueue.x-k8s.io/queue-name":"team"}}}`,
				stamp("leaderWorkerTemplate/leaderTemplate"), stamp("leaderWorkerTemplate/workerTemplate"),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := Parse(tc.kind, []byte(tc.object))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, op := range Decide(o, Surroundings{SchedulerName: "muster", DefaultQueue: tc.defaultQueue}) {
				data, err := json.Marshal(op)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, string(data))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("operations (-want +got):\n%s", diff)
			}
		})
	}
}
