package integration

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/internal/testcluster"
	"github.com/muster-gpu/muster/internal/testobject"
	"github.com/muster-gpu/muster/workload"
)

const rackLabel = "example.com/rack"

func init() {
	scenarios = append(scenarios,
		scenario{name: "exclusive topology gives the large Job the large rack, whatever comes first", run: func(t *testing.T, e *env) {
			e.racks(t, 3, 1)
			e.Queue(t, e.namespace, "team", 64)
			js := e.exclusive("train", 8, parts{"small", 1, 1}, parts{"large", 1, 3})
			e.Create(t, js)
			e.runs(t, js, 4)
			if got := e.racksOf(t, js); got["small-0"] != "r1" || got["large-0"] != "r0" {
				t.Errorf("the racks are %v", got)
			}
		}},
		scenario{name: "exclusive topology with more Jobs than racks waits with that reason, and holds nothing", run: func(t *testing.T, e *env) {
			e.racks(t, 2, 2)
			e.Queue(t, e.namespace, "team", 64)
			js, all := e.exclusive("train", 1, parts{"node", 3, 2}), e.job("all", "team", 4, 8)
			e.Create(t, js)
			e.pending(t, js, "NoPlacement", `pod set "node[2]": no node with a free GPU passes: 4 node(s) didn't match pod anti-affinity rules`)
			e.usage(t, "team", 0, 0, 1)
			e.Create(t, all)
			e.runs(t, all, 4)
		}},
		scenario{name: "jobs without exclusive topology keep out of an exclusive job's rack, and it out of theirs", run: func(t *testing.T, e *env) {
			e.racks(t, 1, 2)
			e.Queue(t, e.namespace, "team", 64)
			alone, plain, more := e.exclusive("alone", 1, parts{"node", 1, 1}), e.job("plain", "team", 2, 8), e.job("more", "team", 1, 1)
			e.Create(t, alone)
			e.runs(t, alone, 1)
			e.Create(t, plain)
			e.runs(t, plain, 2)
			if got := e.racksOf(t, plain); got["node-0"] != "r1" {
				t.Errorf("the plain job is in %v", got)
			}
			e.Create(t, more)
			e.pending(t, more, "NoPlacement", "existing pods anti-affinity")
			second := e.exclusive("second", 1, parts{"node", 1, 1})
			e.Create(t, second)
			e.pending(t, second, "NoPlacement", "anti-affinity")
		}},
		scenario{name: "leaders do not wait for the pods that follow them, also after a restart in between", run: func(t *testing.T, e *env) {
			e.racks(t, 2, 2)
			e.Queue(t, e.namespace, "team", 64)
			js, waiter := e.exclusive("train", 8, parts{"node", 2, 2}), e.job("waiter", "team", 1, 8)
			e.jobs.Withhold("train-node-0-1", true)
			e.Create(t, js)
			// The other follower waits for this one.
			e.bound(t, js, 2)
			e.restart(t)
			e.Create(t, waiter)
			e.pending(t, waiter, "NoPlacement", "")
			e.bound(t, js, 2)
			e.jobs.Withhold("train-node-0-1", false)
			e.runs(t, js, 4)
			e.usage(t, "team", 32, 1, 1)
		}},
		scenario{name: "a pod that follows and loses its node gets another one in the rack of its leader", run: func(t *testing.T, e *env) {
			e.racks(t, 4, 3)
			e.Queue(t, e.namespace, "team", 64)
			js := e.exclusive("train", 8, parts{"node", 1, 2})
			e.jobs.Withhold("train-node-0-1", true)
			e.Create(t, js)
			e.bound(t, js, 1)
			wl, err := e.workload(t.Context(), js)
			if err != nil {
				t.Fatal(err)
			}
			nodes, err := workload.DecodeNodes(wl.Status.Admission.PodSetAssignments[0].TopologyAssignment)
			if err != nil || len(nodes) != 2 {
				t.Fatalf("it is admitted to %v (%v)", nodes, err)
			}
			if err := e.Client.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodes[1]}}); err != nil {
				t.Fatal(err)
			}
			e.jobs.Withhold("train-node-0-1", false)
			e.runs(t, js, 2)
			if got := e.racksOf(t, js); got["node-0"] != "r1" {
				t.Errorf("the racks are %v", got)
			}
		}},
		scenario{name: "a leader that is lost comes back to its slot while those that follow it run", run: func(t *testing.T, e *env) {
			e.racks(t, 2, 2)
			e.Queue(t, e.namespace, "team", 64)
			js, waiter := e.exclusive("train", 8, parts{"node", 2, 2}), e.job("waiter", "team", 1, 8)
			e.Create(t, js)
			e.runs(t, js, 4)
			e.Create(t, waiter)
			e.pending(t, waiter, "NoPlacement", "")
			e.jobs.Withhold("train-node-1-0", true)
			lost := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "train-node-1-0"}}
			if err := e.Client.Delete(t.Context(), lost, client.GracePeriodSeconds(0)); err != nil {
				t.Fatal(err)
			}
			e.bound(t, js, 3)
			e.jobs.Withhold("train-node-1-0", false)
			e.runs(t, js, 4)
			e.pending(t, waiter, "NoPlacement", "")
		}},
		scenario{name: "pods that must be on nodes of their own wait for enough nodes, and are never stacked", run: func(t *testing.T, e *env) {
			e.racks(t, 3)
			e.Queue(t, e.namespace, "team", 64)
			js := e.job("train", "team", 4, 1)
			js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Affinity = apart(corev1.LabelHostname, &metav1.LabelSelector{
				MatchLabels: map[string]string{jobset.JobSetNameKey: "train"}})
			e.Create(t, js)
			e.pending(t, js, "NoPlacement", "finds nodes for 3 of 4 pods; for the rest no node with a free GPU passes: 3 node(s) didn't match pod anti-affinity rules")
			e.usage(t, "team", 0, 0, 1)
			e.Node(t, "node-3", 8)
			e.runs(t, js, 4)
			pods, err := e.Pods(t.Context(), js)
			if err != nil {
				t.Fatal(err)
			}
			nodes := map[string]bool{}
			for i := range pods {
				nodes[pods[i].Spec.NodeName] = true
			}
			if len(nodes) != 4 {
				t.Errorf("four pods are on %v", nodes)
			}
		}},
		scenario{name: "pods told apart by their index are planned one by one", run: func(t *testing.T, e *env) {
			e.racks(t, 1, 1)
			e.Queue(t, e.namespace, "team", 64)
			// The first pod of each Job wants a rack of its own among the first
			// pods; the others go anywhere.
			js := e.job("train", "team", 3, 2)
			js.Spec.ReplicatedJobs[0].Replicas = 2
			js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: rackLabel, WhenUnsatisfiable: corev1.DoNotSchedule,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{jobset.JobSetNameKey: "train", "batch.kubernetes.io/job-completion-index": "0"}},
			}}
			e.Create(t, js)
			e.runs(t, js, 6)
			pods, err := e.Pods(t.Context(), js)
			if err != nil {
				t.Fatal(err)
			}
			nodes := map[string]bool{}
			for i := range pods {
				if pods[i].Labels["batch.kubernetes.io/job-completion-index"] == "0" {
					nodes[pods[i].Spec.NodeName] = true
				}
			}
			if len(nodes) != 2 {
				t.Errorf("the first pods are on %v", nodes)
			}
		}},
		scenario{name: "phases start one after the other on nodes that were held for them, also after a restart", run: func(t *testing.T, e *env) {
			e.racks(t, 2)
			e.Queue(t, e.namespace, "team", 64)
			js, waiter := e.job("train", "team", 2, 8), e.job("waiter", "team", 1, 1)
			js.Spec.ReplicatedJobs = []jobset.ReplicatedJob{
				testcluster.Replicated("init", 1, 0), testcluster.Replicated("node", 2, 8), testcluster.Replicated("launcher", 1, 0),
			}
			js.Spec.ReplicatedJobs[1].DependsOn = []jobset.DependsOn{{Name: "init", Status: jobset.DependencyComplete}}
			js.Spec.ReplicatedJobs[2].DependsOn = []jobset.DependsOn{{Name: "node", Status: jobset.DependencyReady}}
			e.Create(t, js)
			e.bound(t, js, 1)
			e.restart(t)
			e.Create(t, waiter)
			e.pending(t, waiter, "NoPlacement", "")
			e.partSucceeds(t, js, "init")
			e.bound(t, js, 4)
			e.usage(t, "team", 16, 1, 1)
			e.finish(t, js)
			e.runs(t, waiter, 1)
		}},
		scenario{name: "what depends on another thing does not keep a replicated job waiting", run: func(t *testing.T, e *env) {
			e.racks(t, 2)
			e.Queue(t, e.namespace, "team", 64)
			js := e.job("train", "team", 2, 8)
			js.Spec.ReplicatedJobs = []jobset.ReplicatedJob{
				testcluster.Replicated("server", 1, 0), testcluster.Replicated("data", 1, 0),
				testcluster.Replicated("ready", 2, 4), testcluster.Replicated("last", 2, 4),
			}
			js.Spec.ReplicatedJobs[2].DependsOn = []jobset.DependsOn{{Name: "server", Status: jobset.DependencyReady}}
			js.Spec.ReplicatedJobs[3].DependsOn = []jobset.DependsOn{{Name: "data", Status: jobset.DependencyComplete}}
			e.Create(t, js)
			e.bound(t, js, 4)
			e.partSucceeds(t, js, "data")
			e.bound(t, js, 6)
		}},
	)
}

// racks creates nodes of 8 GPUs, as many in each rack as is said.
func (e *env) racks(t *testing.T, nodes ...int) {
	t.Helper()
	number := 0
	for rack, n := range nodes {
		for range n {
			node := e.Node(t, fmt.Sprintf("node-%d", number), 8)
			number++
			changed := node.DeepCopy()
			changed.Labels[rackLabel] = fmt.Sprintf("r%d", rack)
			if err := e.Client.Patch(t.Context(), changed, client.MergeFrom(node)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// parts is a replicated job of replicas Jobs of pods pods.
type parts struct {
	name           string
	replicas, pods int32
}

// exclusive is a JobSet each of whose Jobs has a rack to itself.
func (e *env) exclusive(name string, gpus int64, of ...parts) *jobset.JobSet {
	js := e.job(name, "team", 1, gpus)
	js.Annotations = map[string]string{jobset.ExclusiveKey: rackLabel}
	js.Spec.ReplicatedJobs = nil
	for _, p := range of {
		rj := testcluster.Replicated(p.name, p.pods, gpus)
		rj.Replicas = p.replicas
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, rj)
	}
	return js
}

func apart(topology string, from *metav1.LabelSelector) *corev1.Affinity {
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: topology, LabelSelector: from}},
	}}
}

// bound waits until n pods of a JobSet are on nodes.
func (e *env) bound(t *testing.T, js *jobset.JobSet, n int) {
	t.Helper()
	testcluster.Eventually(t, fmt.Sprintf("%d pods of %s to be on nodes", n, js.Name), func(ctx context.Context) error {
		return e.Bound(ctx, js, n)
	})
	e.condition(t, js, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "")
}

// racksOf are the racks of a JobSet's Jobs, by "<replicated job>-<index>"; it
// fails the test if a Job is in more than one.
func (e *env) racksOf(t *testing.T, js *jobset.JobSet) map[string]string {
	t.Helper()
	pods, err := e.Pods(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for i := range pods {
		node := &corev1.Node{}
		if err := e.Client.Get(t.Context(), client.ObjectKey{Name: pods[i].Spec.NodeName}, node); err != nil {
			t.Fatal(err)
		}
		job, rack := pods[i].Labels[jobset.ReplicatedJobNameKey]+"-"+pods[i].Labels[jobset.JobIndexKey], node.Labels[rackLabel]
		if before, found := out[job]; found && before != rack {
			t.Errorf("pods of Job %s are in %s and %s", job, before, rack)
		}
		out[job] = rack
	}
	return out
}

// partSucceeds lets the pods of a replicated job succeed.
func (e *env) partSucceeds(t *testing.T, js *jobset.JobSet, replicated string) {
	t.Helper()
	pods, err := e.Pods(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods {
		if pods[i].Labels[jobset.ReplicatedJobNameKey] != replicated {
			continue
		}
		testobject.ChangeStatus(t, e.Client, &pods[i], func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded })
	}
}
