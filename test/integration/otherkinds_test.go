package integration

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/internal/testcluster"
	"github.com/muster-gpu/muster/workload"
)

// otherKinds are defined for the scenarios of this file.
var otherKinds = []schema.GroupVersionKind{
	testcluster.RayVersion.WithKind("RayJob"), testcluster.RayVersion.WithKind("RayCluster"), workload.ReplicaGVK, workload.ExperimentGVK,
}

// rayTemplate is a pod template of a Ray cluster.
func rayTemplate(gpus int) map[string]any {
	container := map[string]any{"name": "ray", "image": "example.com/ray"}
	if gpus > 0 {
		container["resources"] = map[string]any{"limits": map[string]any{"nvidia.com/gpu": strconv.Itoa(gpus)}}
	}
	return map[string]any{"spec": map[string]any{"schedulerName": "muster", "containers": []any{container}}}
}

// raySpec is a cluster of a head and so many workers.
func raySpec(workers, gpus int) map[string]any {
	return map[string]any{
		"headGroupSpec":    map[string]any{"template": rayTemplate(0)},
		"workerGroupSpecs": []any{map[string]any{"groupName": "gpu", "replicas": int64(workers), "minReplicas": int64(0), "maxReplicas": int64(16), "template": rayTemplate(gpus)}},
	}
}

func (e *env) object(gvk schema.GroupVersionKind, name, queue string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(gvk)
	u.SetNamespace(e.namespace)
	u.SetName(name)
	if queue != "" {
		u.SetLabels(queued(queue))
	}
	return u
}

func (e *env) rayCluster(name, queue string, workers, gpus int) *unstructured.Unstructured {
	spec := raySpec(workers, gpus)
	spec["suspend"] = true
	return e.object(testcluster.RayVersion.WithKind("RayCluster"), name, queue, spec)
}

// scale gives a cluster another number of workers.
func (e *env) scale(t *testing.T, cluster *unstructured.Unstructured, workers int) {
	t.Helper()
	testcluster.Eventually(t, cluster.GetName()+" to be scaled", func(ctx context.Context) error {
		if err := e.Client.Get(ctx, client.ObjectKeyFromObject(cluster), cluster); err != nil {
			return err
		}
		groups, _, _ := unstructured.NestedSlice(cluster.Object, "spec", "workerGroupSpecs")
		groups[0].(map[string]any)["replicas"] = int64(workers)
		if err := unstructured.SetNestedSlice(cluster.Object, groups, "spec", "workerGroupSpecs"); err != nil {
			return err
		}
		return e.Client.Update(ctx, cluster)
	})
}

// labelled waits until so many pods with the labels are on nodes, of as many as
// there are, and returns those.
func (e *env) labelled(t *testing.T, labels client.MatchingLabels, bound, all int) []corev1.Pod {
	t.Helper()
	var on []corev1.Pod
	testcluster.Eventually(t, fmt.Sprintf("%d of %d pods with %v to be on nodes", bound, all, labels), func(ctx context.Context) error {
		var pods corev1.PodList
		if err := e.Client.List(ctx, &pods, client.InNamespace(e.namespace), labels); err != nil {
			return err
		}
		on = nil
		for _, pod := range pods.Items {
			if pod.Spec.NodeName != "" {
				on = append(on, pod)
			}
		}
		if len(on) != bound || len(pods.Items) != all {
			return fmt.Errorf("%d of %d are", len(on), len(pods.Items))
		}
		return nil
	})
	return on
}

func ofCluster(name string) client.MatchingLabels {
	return client.MatchingLabels{"ray.io/cluster": name}
}

// keptPod is a pod of Deployment web by a template with that hash.
func (e *env) keptPod(name, hash, queue string, gpuCount int64) *corev1.Pod {
	pod := e.pod(name, gpuCount, queued(queue))
	pod.Labels["pod-template-hash"] = hash
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-" + hash, UID: types.UID("rs-" + hash), Controller: new(true)}}
	return pod
}

// memberPod is a pod of replica 0 of a LeaderWorkerSet; number 0 leads.
func (e *env) memberPod(set string, number int, gpuCount int64) *corev1.Pod {
	pod := e.pod(fmt.Sprintf("%s-0-%d", set, number), gpuCount, map[string]string{
		"leaderworkerset.sigs.k8s.io/name": set, "leaderworkerset.sigs.k8s.io/group-index": "0", "leaderworkerset.sigs.k8s.io/worker-index": strconv.Itoa(number),
	})
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: set, UID: "sts", Controller: new(true)}}
	return pod
}

func init() {
	scenarios = append(scenarios,
		scenario{name: "a RayCluster is admitted whole, grows when there is quota, shrinks, and is suspended", run: func(t *testing.T, e *env) {
			e.RunRay(t, e.namespace)
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 8)
			cluster, other := e.rayCluster("ray", "team", 2, 2), e.job("other", "team", 1, 4)
			e.Create(t, cluster)
			e.labelled(t, ofCluster("ray"), 3, 3)
			e.condition(t, cluster, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "4 GPUs")
			e.Create(t, other)
			e.runs(t, other, 1)
			e.scale(t, cluster, 4)
			e.event(t, cluster, "GrowthWaits", "2 of gpu")
			e.labelled(t, ofCluster("ray"), 3, 5)
			e.usage(t, "team", 8, 2, 0)
			e.finish(t, other)
			e.labelled(t, ofCluster("ray"), 5, 5)
			e.event(t, cluster, "Resized", "8 GPUs")
			e.usage(t, "team", 8, 1, 0)
			e.restart(t)
			e.usage(t, "team", 8, 1, 0)
			e.scale(t, cluster, 1)
			e.labelled(t, ofCluster("ray"), 2, 2)
			e.usage(t, "team", 2, 1, 0)
			e.setActive(t, cluster, false)
			e.labelled(t, ofCluster("ray"), 0, 0)
			e.usage(t, "team", 0, 0, 0)
		}},
		scenario{name: "a RayJob takes its cluster and its submitter into one job, and a RayCluster of a RayJob without a queue runs", run: func(t *testing.T, e *env) {
			e.RunRay(t, e.namespace)
			e.RunBatchJobs(t)
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 8)
			// The queue covers no CPU, which KubeRay's own submitter asks for.
			submitter := rayTemplate(0)
			submitter["spec"].(map[string]any)["restartPolicy"] = "Never"
			job := e.object(testcluster.RayVersion.WithKind("RayJob"), "tune", "team", map[string]any{
				"suspend": true, "rayClusterSpec": raySpec(2, 4), "submitterPodTemplate": submitter,
			})
			e.Create(t, job)
			e.labelled(t, ofCluster("tune-x7k2p"), 3, 3)
			e.labelled(t, client.MatchingLabels{"batch.kubernetes.io/job-name": "tune"}, 1, 1)
			e.usage(t, "team", 8, 1, 0)
			testcluster.Eventually(t, "the RayJob to be complete", func(ctx context.Context) error {
				if err := e.Client.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
					return err
				}
				job.Object["status"].(map[string]any)["jobDeploymentStatus"] = "Complete"
				job.Object["status"].(map[string]any)["jobStatus"] = "SUCCEEDED"
				return e.Client.Status().Update(ctx, job)
			})
			// Its cluster stays, and is charged, until somebody deletes it.
			e.usage(t, "team", 8, 1, 0)
			if err := e.Client.Delete(t.Context(), job); err != nil {
				t.Fatal(err)
			}
			e.usage(t, "team", 0, 0, 0)
			free := e.object(testcluster.RayVersion.WithKind("RayJob"), "free", "", map[string]any{"rayClusterSpec": raySpec(1, 1)})
			e.Create(t, free)
			e.labelled(t, ofCluster("free-x7k2p"), 2, 2)
		}},
		scenario{name: "a replica of a LeaderWorkerSet starts whole, and keeps its place when its pods are made anew", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 8)
			set := e.object(workload.ReplicaGVK, "llm", "team", map[string]any{
				"replicas": int64(1), "startupPolicy": "LeaderCreated",
				"leaderWorkerTemplate": map[string]any{"size": int64(2), "workerTemplate": rayTemplate(4)},
			})
			e.Create(t, set)
			leader, worker := e.memberPod("llm", 0, 4), e.memberPod("llm", 1, 4)
			e.Create(t, leader)
			e.usage(t, "team", 8, 1, 0)
			e.waits(t, leader)
			e.Create(t, worker)
			e.onNode(t, leader, worker)
			waiter := e.job("waiter", "team", 1, 8)
			e.Create(t, waiter)
			e.pending(t, waiter, "WaitingForQuota", "")
			for _, pod := range []*corev1.Pod{leader, worker} {
				if err := e.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
					t.Fatal(err)
				}
			}
			leader, worker = e.memberPod("llm", 0, 4), e.memberPod("llm", 1, 4)
			e.Create(t, leader)
			e.Create(t, worker)
			e.onNode(t, leader, worker)
			e.usage(t, "team", 8, 1, 1)
		}},
		scenario{name: "the pod of an updated Deployment says how it gets a place, and takes that of an earlier pod before a job that waits", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 8)
			before := e.keptPod("web-a-1", "a", "team", 8)
			e.Create(t, before)
			e.onNode(t, before)
			waiter := e.job("waiter", "team", 1, 8)
			e.Create(t, waiter)
			e.pending(t, waiter, "WaitingForQuota", "")
			next := e.keptPod("web-b-1", "b", "team", 8)
			e.Create(t, next)
			e.podEvent(t, next, "Pending", "maxSurge: 0")
			if err := e.Client.Delete(t.Context(), before, client.GracePeriodSeconds(0)); err != nil {
				t.Fatal(err)
			}
			e.onNode(t, next)
			e.pending(t, waiter, "WaitingForQuota", "")
			e.usage(t, "team", 8, 1, 1)
		}},
		scenario{name: "a batch Job grows and shrinks while it runs", run: func(t *testing.T, e *env) {
			e.RunBatchJobs(t)
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 8)
			job := testcluster.BatchJob(e.namespace, "train", "team", 1, 2)
			job.Spec.Completions, job.Spec.CompletionMode = new(int32(8)), nil
			e.Create(t, job)
			had := uidsOf(e.jobRuns(t, job, 1))
			for _, n := range []int32{3, 2} {
				testcluster.Eventually(t, "parallelism to be changed", func(ctx context.Context) error {
					if err := e.Client.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
						return err
					}
					job.Spec.Parallelism = &n
					return e.Client.Update(ctx, job)
				})
				has := uidsOf(e.onNodes(t, job, int(n)))
				e.usage(t, "team", int64(2*n), 1, 0)
				if !has.IsSuperset(had) && !had.IsSuperset(has) {
					t.Errorf("with %d pods it has others than before: %v, and had %v", n, has, had)
				}
				had = has
			}
		}},
		scenario{name: "an Experiment is warned of more trials at a time than its queue can have", run: func(t *testing.T, e *env) {
			e.Queue(t, e.namespace, "team", 8)
			// The queue is known when a job of it waits.
			waiter := e.job("waiter", "team", 1, 8)
			e.Create(t, waiter)
			e.pending(t, waiter, "ExceedsCluster", "")
			experiment := e.object(workload.ExperimentGVK, "search", "", map[string]any{
				"parallelTrialCount": int64(4),
				"trialTemplate": map[string]any{"trialSpec": map[string]any{
					"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"labels": map[string]any{workload.QueueLabel: "team"}},
					"spec": map[string]any{"template": rayTemplate(4)},
				}},
			})
			e.Create(t, experiment)
			e.event(t, experiment, "ExceedsQueue", "set parallelTrialCount to 2")
		}},
	)
}

func uidsOf(pods []corev1.Pod) sets.Set[types.UID] {
	out := sets.Set[types.UID]{}
	for i := range pods {
		out.Insert(pods[i].UID)
	}
	return out
}
