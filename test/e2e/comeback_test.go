package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/internal/sandbox"
	"github.com/muster-gpu/muster/internal/simulator"
)

// shortGrace gives up nodes and gangs soon.
const shortGrace = `
apiVersion: config.muster.dev/v1alpha1
kind: SchedulerConfiguration
profiles: [muster, default-scheduler]
topology: {levels: [example.com/rack]}
admission:
  nodeLossGrace: 1s
  # A Job makes a pod that failed anew after 10 s.
  recoveryTimeout: 20s
  requeue: {backoffBase: 1s, limitCount: null}
`

// perRack is how many nodes each of the two racks has.
const perRack = 4

// mishap is what happens to a JobSet of three pods that run.
type mishap struct {
	name string
	// leaves is how many nodes the JobSet leaves to others, at least for a while.
	leaves int32
	// backoffLimit is how many pods the Job makes anew before it fails, and with it
	// the JobSet starts all over.
	backoffLimit int32
	// happens returns the pods that are to be replaced, and how many will run.
	happens func(t *testing.T, tm team, pods []corev1.Pod) (gone []corev1.Pod, run int)
}

var mishaps = []mishap{
	{"a container restarts in place", 0, 6, func(t *testing.T, tm team, pods []corev1.Pod) ([]corev1.Pod, int) {
		tm.restartContainer(t, pods[1])
		return nil, 3
	}},
	{"a pod is evicted", 0, 6, func(t *testing.T, tm team, pods []corev1.Pod) ([]corev1.Pod, int) {
		tm.evict(t, pods[2])
		return pods[2:], 3
	}},
	{"a pod is evicted, and nobody waits for one that has succeeded", 1, 6, func(t *testing.T, tm team, pods []corev1.Pod) ([]corev1.Pod, int) {
		tm.succeed(t, pods[2:])
		tm.evict(t, pods[1])
		return pods[1:], 2
	}},
	{"a pod fails, and the JobSet starts all over", 0, 0, func(t *testing.T, tm team, pods []corev1.Pod) ([]corev1.Pod, int) {
		tm.behave(t, &pods[0], map[string]string{simulator.RunForAnnotation: "0s", simulator.ExitCodeAnnotation: "1"})
		return pods, 3
	}},
	{"the JobSet starts all over after one of its pods has succeeded", 1, 0, func(t *testing.T, tm team, pods []corev1.Pod) ([]corev1.Pod, int) {
		tm.succeed(t, pods[2:])
		tm.evict(t, pods[1])
		return pods, 3
	}},
}

// TestMembersComeBack tells, with the real controllers of Jobs, JobSets and nodes, how
// the pods of a gang come back to it: to their own nodes, although others wait for
// the room; else near the rest. Each is told with a scheduler that goes on, and
// with one that is dead when it happens.
func TestMembersComeBack(t *testing.T) {
	config := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(config, []byte(shortGrace), 0o600); err != nil {
		t.Fatal(err)
	}
	c := up(t, "comeback", func(o *sandbox.Options) {
		o.Config, o.Nodes = config, 2*perRack
		o.With = []string{sandbox.WithScheduler, sandbox.WithWebhook, sandbox.WithJobSet}
	})
	for i := range 2 * perRack {
		c.node(t, i, func(n *corev1.Node) { n.Labels[rackLabel] = []string{"r0", "r1"}[i/perRack] })
	}
	var stories []story[team]
	for _, dead := range []bool{false, true} {
		as := func(name string) string {
			if dead {
				return name + ", and the scheduler is dead"
			}
			return name
		}
		for _, m := range mishaps {
			stories = append(stories, story[team]{as(m.name), func(t *testing.T, tm team) { comeBack(t, tm, m, dead) }})
		}
		stories = append(stories,
			story[team]{as("a node is lost, and its pod comes to the rack of the others"), func(t *testing.T, tm team) { loseOneNode(t, tm, dead) }},
			story[team]{as("a node is lost, there is no other, and the gang is released whole"), func(t *testing.T, tm team) { loseTheOnlyNode(t, tm, dead) }})
	}
	// Nobody waits for quota.
	tellAll(t, c, "comeback", func(t *testing.T, tm team) team {
		tm.queueUp(t, "q", 2*8*2*perRack)
		return tm
	}, stories)
}

// meanwhile does something while the scheduler is dead, or not.
func (tm team) meanwhile(t *testing.T, dead bool, do func()) {
	t.Helper()
	if dead {
		tm.kill(t, "muster-scheduler")
	}
	do()
	if dead {
		tm.restart(t, "muster-scheduler")
	}
}

// cordon takes nodes out of scheduling, or lets them back in.
func (tm team) cordon(t *testing.T, out bool, nodes ...int) {
	t.Helper()
	for _, i := range nodes {
		tm.node(t, i, func(n *corev1.Node) { n.Spec.Unschedulable = out })
	}
}

func comeBack(t *testing.T, tm team, m mishap, dead bool) {
	rj := mending(3)
	rj.Template.Spec.BackoffLimit = &m.backoffLimit
	js := tm.jobSet("train", rj)
	js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 3}
	// The first node of its rack is free when pods come back, and as good as their own.
	tm.cordon(t, true, 0, perRack)
	t.Cleanup(func() { tm.cordon(t, false, 0, perRack) })
	tm.createJobSet(t, js)
	pods := byIndex(tm.runs(t, "train", 3))
	tm.podsReady(t, "train")
	tm.cordon(t, false, 0, perRack)
	// It would start if one node more were free than is to be.
	tm.createJobSet(t, tm.jobSet("waiter", replicated("node", 1, 2*perRack-3+m.leaves+1, 8)))
	tm.jobSetWaits(t, "waiter", "NoPlacement", "")
	run := 0
	tm.meanwhile(t, dead, func() {
		var gone []corev1.Pod
		gone, run = m.happens(t, tm, pods)
		tm.replaced(t, "train", gone, run)
	})
	want, got := placesOf(pods[:run]), placesOf(byIndex(tm.runs(t, "train", run)))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("nodes by rank (-want +got):\n%s", diff)
	}
	tm.jobSetWaits(t, "waiter", "NoPlacement", "")
	if wl, err := tm.workload(t.Context(), "train"); err != nil || wl == nil || apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadEvicted) {
		t.Errorf("%s (%v)", tm.describe(t.Context(), "train"), err)
	}
}

func loseOneNode(t *testing.T, tm team, dead bool) {
	tm.cordon(t, true, 0, 1, 2, 3)
	t.Cleanup(func() { tm.cordon(t, false, 0, 1, 2, 3) })
	tm.createJobSet(t, tm.jobSet("train", mending(2)))
	pods := byIndex(tm.runs(t, "train", 2))
	tm.cordon(t, false, 0, 1, 2, 3)
	lost := pods[0].Spec.NodeName
	t.Cleanup(func() { tm.dies(t, lost, false) })
	tm.meanwhile(t, dead, func() { tm.loseNode(t, pods[0]) })
	after := byIndex(tm.runs(t, "train", 2))
	if after[1].UID != pods[1].UID || after[0].Spec.NodeName == lost {
		t.Errorf("it was on %v and is on %v", placesOf(pods), placesOf(after))
	}
	if racks := tm.racksOf(t, after); len(racks["0"]) != 1 {
		t.Errorf("it is on %v, in the racks %v", placesOf(after), racks)
	}
}

func loseTheOnlyNode(t *testing.T, tm team, dead bool) {
	tm.createJobSet(t, tm.jobSet("train", mending(2*perRack)))
	pods := byIndex(tm.runs(t, "train", 2*perRack))
	tm.podsReady(t, "train")
	lost := pods[0].Spec.NodeName
	t.Cleanup(func() { tm.dies(t, lost, false) })
	tm.meanwhile(t, dead, func() { tm.loseNode(t, pods[0]) })
	eventually(t, "the gang to be released whole", func(ctx context.Context) error {
		wl, err := tm.workload(ctx, "train")
		if err != nil || wl == nil {
			return fmt.Errorf("its Workload is %v (%v)", wl, err)
		}
		c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted)
		if c == nil || c.Reason != kueue.WorkloadEvictedByPodsReadyTimeout || !strings.Contains(c.Message, "1 of 8 pods has been gone for 20s; all are released") {
			return fmt.Errorf("%s", tm.describe(ctx, "train"))
		}
		return nil
	})
	tm.jobSetWaits(t, "train", "NoPlacement", "needs 8 pods of 8 GPUs")
	tm.usage(t, "q", 0, 0, 1)
	tm.dies(t, lost, false)
	tm.runs(t, "train", 2*perRack)
}

// mending is a replicated job of which pods are made anew, one by one.
func mending(pods int32) jobset.ReplicatedJob {
	rj := replicated("node", 1, pods, 8)
	rj.Template.Spec.BackoffLimit = new(int32(6))
	rj.Template.Spec.CompletionMode = new(batchv1.IndexedCompletion)
	return rj
}

// loseNode has the node of a pod die, and the pod with it.
func (tm team) loseNode(t *testing.T, pod corev1.Pod) {
	t.Helper()
	tm.dies(t, pod.Spec.NodeName, true)
	if err := tm.client.Delete(t.Context(), &pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
}

// dies has a node die, and the controller of nodes, which the sandbox does not run, say so
// by a taint; or both end.
func (tm team) dies(t *testing.T, name string, dead bool) {
	t.Helper()
	tm.ready(t, name, !dead)
	eventually(t, name+" to be tainted, or not", func(ctx context.Context) error {
		node := &corev1.Node{}
		if err := tm.client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return err
		}
		if node.Spec.Taints = nil; dead {
			node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}
		}
		return tm.client.Update(ctx, node)
	})
}

func (tm team) evict(t *testing.T, pod corev1.Pod) {
	t.Helper()
	if err := tm.client.SubResource("eviction").Create(t.Context(), &pod, &policyv1.Eviction{}); err != nil {
		t.Fatalf("evicting pod %s: %v", pod.Name, err)
	}
}

// restartContainer has a container of a pod end and begin anew, as its kubelet says it.
func (tm team) restartContainer(t *testing.T, pod corev1.Pod) {
	t.Helper()
	for _, ready := range []bool{false, true} {
		eventually(t, "the container to restart", func(ctx context.Context) error {
			if err := tm.client.Get(ctx, client.ObjectKeyFromObject(&pod), &pod); err != nil {
				return err
			}
			c := &pod.Status.ContainerStatuses[0]
			c.RestartCount, c.Ready = 1, ready
			for i := range pod.Status.Conditions {
				if k := &pod.Status.Conditions[i]; k.Type == corev1.PodReady || k.Type == corev1.ContainersReady {
					if k.Status = corev1.ConditionFalse; ready {
						k.Status = corev1.ConditionTrue
					}
				}
			}
			return tm.client.Status().Update(ctx, &pod)
		})
	}
}

// replaced waits until a job has n pods that have not ended, and none of those gone.
func (tm team) replaced(t *testing.T, name string, gone []corev1.Pod, n int) {
	t.Helper()
	eventually(t, "the pods that are gone to be replaced", func(ctx context.Context) error {
		pods, err := tm.pods(ctx, name)
		if err != nil {
			return err
		}
		for _, p := range pods {
			if slices.ContainsFunc(gone, func(old corev1.Pod) bool { return old.UID == p.UID }) {
				return fmt.Errorf("%s is there", p.Name)
			}
		}
		if len(pods) != n {
			return fmt.Errorf("there are %d pods, not %d", len(pods), n)
		}
		return nil
	})
}

// byIndex orders the pods of a Job by their completion index.
func byIndex(pods []corev1.Pod) []corev1.Pod {
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return strings.Compare(a.Labels[batchv1.JobCompletionIndexAnnotation], b.Labels[batchv1.JobCompletionIndexAnnotation])
	})
	return pods
}

// placesOf are the nodes of pods, by completion index.
func placesOf(pods []corev1.Pod) map[string]string {
	out := map[string]string{}
	for _, p := range pods {
		out[p.Labels[batchv1.JobCompletionIndexAnnotation]] = p.Spec.NodeName
	}
	return out
}
