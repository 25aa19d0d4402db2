package workload

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// workersOf is a suspended training job of one worker.
func workersOf(kind string) *unstructured.Unstructured {
	specs := map[string]string{"PyTorchJob": "pytorchReplicaSpecs", "TFJob": "tfReplicaSpecs", "XGBoostJob": "xgbReplicaSpecs", "PaddleJob": "paddleReplicaSpecs", "MPIJob": "mpiReplicaSpecs"}[kind]
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kubeflow.org/v1", "kind": kind,
		"metadata": map[string]any{"namespace": namespace, "name": "train", "uid": "v1-1", "labels": map[string]any{QueueLabel: "main"}},
		"spec": map[string]any{
			"runPolicy": map[string]any{"suspend": true},
			specs:       map[string]any{"Worker": map[string]any{"replicas": int64(1), "template": rayPods("1")}},
		},
	}}
}

func deadline(seconds int64) func(*jobset.ReplicatedJob) {
	return func(rj *jobset.ReplicatedJob) { rj.Template.Spec.ActiveDeadlineSeconds = &seconds }
}

func restarts(most int32, rules ...jobset.FailurePolicyAction) func(*jobset.JobSet) {
	return func(js *jobset.JobSet) {
		js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: most}
		for _, action := range rules {
			js.Spec.FailurePolicy.Rules = append(js.Spec.FailurePolicy.Rules, jobset.FailurePolicyRule{Action: action})
		}
	}
}

// A job that may run longer than was thought would keep a reservation's nodes from
// it, so what is not an end for sure is none.
func TestHowLongJobsOfAKindMayRun(t *testing.T) {
	spec := func(kind string, fields map[string]any) *unstructured.Unstructured {
		var u *unstructured.Unstructured
		switch kind {
		case "TrainJob":
			u = newTrainJob(nil)
		case "RayJob":
			u = newRayJob()
		default:
			u = workersOf(kind)
		}
		for k, v := range fields {
			u.Object["spec"].(map[string]any)[k] = v
		}
		return u
	}
	policy := func(clean string) map[string]any {
		return map[string]any{"runPolicy": map[string]any{"suspend": true, "cleanPodPolicy": clean, "activeDeadlineSeconds": int64(60)}}
	}
	hour := deadline(3600)
	for name, tc := range map[string]struct {
		kind string
		obj  client.Object
		more []client.Object
		want time.Duration
	}{
		"a JobSet whose Jobs have an end":               {"JobSet", newJobSet(nil, replicated("node", 1, 2, hour)), nil, time.Hour},
		"one of whose Jobs have none":                   {"JobSet", newJobSet(nil, replicated("node", 1, 2, hour), replicated("log", 1, 1)), nil, 0},
		"one that makes them anew twice":                {"JobSet", newJobSet(restarts(2), replicated("node", 1, 2, hour)), nil, 3 * time.Hour},
		"one with a rule that counts":                   {"JobSet", newJobSet(restarts(1, jobset.RestartJobSet, jobset.FailJobSet), replicated("node", 1, 2, hour)), nil, 2 * time.Hour},
		"one with a rule that does not":                 {"JobSet", newJobSet(restarts(1, jobset.FailJobSet, jobset.RestartJobSetAndIgnoreMaxRestarts), replicated("node", 1, 2, hour)), nil, 0},
		"one with such a rule for single Jobs":          {"JobSet", newJobSet(restarts(1, jobset.RestartJobAndIgnoreMaxRestarts), replicated("node", 1, 2, hour)), nil, 0},
		"a TrainJob with an end":                        {"TrainJob", spec("TrainJob", map[string]any{"activeDeadlineSeconds": int64(60)}), []client.Object{childOf(replicated("node", 1, 2))}, time.Minute},
		"one whose JobSet ends before":                  {"TrainJob", spec("TrainJob", map[string]any{"activeDeadlineSeconds": int64(7200)}), []client.Object{childOf(replicated("node", 1, 2, hour))}, time.Hour},
		"one whose JobSet ends after":                   {"TrainJob", spec("TrainJob", map[string]any{"activeDeadlineSeconds": int64(60)}), []client.Object{childOf(replicated("node", 1, 2, hour))}, time.Minute},
		"one without":                                   {"TrainJob", spec("TrainJob", nil), []client.Object{childOf(replicated("node", 1, 2))}, 0},
		"a PyTorchJob that deletes its pods at the end": {"PyTorchJob", spec("PyTorchJob", policy("Running")), nil, time.Minute},
		"a TFJob":                        {"TFJob", spec("TFJob", policy("All")), nil, time.Minute},
		"one that leaves its pods":       {"PyTorchJob", spec("PyTorchJob", policy("None")), nil, 0},
		"an MPIJob":                      {"MPIJob", spec("MPIJob", policy("Running")), nil, time.Minute},
		"a RayJob that leaves a cluster": {"RayJob", spec("RayJob", map[string]any{"activeDeadlineSeconds": int64(60)}), nil, 0},
		"a RayJob that shuts it down":    {"RayJob", spec("RayJob", map[string]any{"activeDeadlineSeconds": int64(60), "shutdownAfterJobFinishes": true}), nil, time.Minute},
		"a RayJob that is tried three times, and its cluster stays a while": {"RayJob", spec("RayJob", map[string]any{
			"activeDeadlineSeconds": int64(60), "shutdownAfterJobFinishes": true, "backoffLimit": int64(2), "ttlSecondsAfterFinished": int64(30),
		}), nil, 3*time.Minute + 30*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			objects := append([]client.Object{tc.obj, trainingRuntime(clusterRuntimeKind, "", "torch")}, tc.more...)
			job, managed, no, err := kindNamed(t, tc.kind).Read(t.Context(), fakeClient(t, objects...), tc.obj)
			if !managed || no != nil || err != nil {
				t.Fatalf("managed %v, no %v, err %v", managed, no, err)
			}
			if got, bounded := job.Deadline(); got != tc.want || bounded != (tc.want > 0) {
				t.Errorf("it may run for %s, %v, want %s", got, bounded, tc.want)
			}
		})
	}
}

func TestTrainingJobsThatGrowAndShrink(t *testing.T) {
	for name, tc := range map[string]struct {
		kind   string
		fields map[string]any
		want   bool
	}{
		"a PyTorchJob with an elastic policy":     {"PyTorchJob", map[string]any{"elasticPolicy": map[string]any{"minReplicas": int64(1)}}, true},
		"a PaddleJob with an elastic policy":      {"PaddleJob", map[string]any{"elasticPolicy": map[string]any{}}, true},
		"a TFJob with dynamic workers":            {"TFJob", map[string]any{"enableDynamicWorker": true}, true},
		"a PyTorchJob without":                    {"PyTorchJob", nil, false},
		"a TFJob without":                         {"TFJob", map[string]any{"enableDynamicWorker": false}, false},
		"a kind whose operator has no such field": {"XGBoostJob", map[string]any{"elasticPolicy": map[string]any{}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			u := workersOf(tc.kind)
			for k, v := range tc.fields {
				u.Object["spec"].(map[string]any)[k] = v
			}
			job, _, _, err := kindNamed(t, tc.kind).Read(t.Context(), fakeClient(t), u)
			if err != nil || job.Elastic != tc.want {
				t.Errorf("elastic is %v (%v), want %v", job.Elastic, err, tc.want)
			}
		})
	}
}
