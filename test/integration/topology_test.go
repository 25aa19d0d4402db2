package integration

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/internal/testcluster"
	"github.com/muster-gpu/muster/internal/testobject"
)

const (
	blockLevel = "example.com/block"
	rackLevel  = rackLabel
)

// closeRacks makes nodes of 8 GPUs in racks of one block: a-0, a-1, ... b-0, ...
func (e *env) closeRacks(t *testing.T, sizes ...int) {
	t.Helper()
	for i, n := range sizes {
		for k := range n {
			rack := string(rune('a' + i))
			testobject.Change(t, e.Client, e.Node(t, fmt.Sprintf("%s-%d", rack, k), 8), func(node *corev1.Node) {
				node.Labels[blockLevel], node.Labels[rackLevel], node.Labels["flavor"] = "x", rack, "close"
			})
		}
	}
}

// closeQueue is a queue with a flavor that names a Topology.
func (e *env) closeQueue(t *testing.T, name string, gpus int64) *kueue.Topology {
	t.Helper()
	full := e.namespace + "-" + name
	topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: full}, Spec: kueue.TopologySpec{
		Levels: []kueue.TopologyLevel{{NodeLabel: blockLevel}, {NodeLabel: rackLevel}, {NodeLabel: corev1.LabelHostname}},
	}}
	e.Create(t, topology)
	e.Create(t, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: full}, Spec: kueue.ResourceFlavorSpec{
		NodeLabels: map[string]string{"flavor": "close"}, TopologyName: new(kueue.TopologyReference(full)),
	}})
	e.Create(t, &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: full},
		Spec: kueue.ClusterQueueSpec{
			NamespaceSelector: &metav1.LabelSelector{},
			ResourceGroups: []kueue.ResourceGroup{{
				CoveredResources: []corev1.ResourceName{testcluster.GPU},
				Flavors: []kueue.FlavorQuotas{{Name: kueue.ResourceFlavorReference(full), Resources: []kueue.ResourceQuota{
					{Name: testcluster.GPU, NominalQuota: *resource.NewQuantity(gpus, resource.DecimalSI)},
				}}},
			}},
		},
	})
	e.Create(t, &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name},
		Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(full)},
	})
	return topology
}

// asks gives the pods of a JobSet's replicated jobs an annotation.
func asks(js *jobset.JobSet, annotation, value string) *jobset.JobSet {
	for i := range js.Spec.ReplicatedJobs {
		pods := &js.Spec.ReplicatedJobs[i].Template.Spec.Template
		if pods.Annotations == nil {
			pods.Annotations = map[string]string{}
		}
		pods.Annotations[annotation] = value
	}
	return js
}

// nodesByRank are the nodes of a JobSet's pods, by job and completion index.
func (e *env) nodesByRank(t *testing.T, js *jobset.JobSet) []string {
	t.Helper()
	pods, err := e.Pods(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	rank := func(p corev1.Pod) int {
		job, _ := strconv.Atoi(p.Labels[jobset.JobIndexKey])
		index, _ := strconv.Atoi(p.Labels[batchv1.JobCompletionIndexAnnotation])
		return job*1000 + index
	}
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return rank(a) - rank(b) })
	var nodes []string
	for _, p := range pods {
		nodes = append(nodes, p.Spec.NodeName)
	}
	return nodes
}

func init() {
	scenarios = append(scenarios,
		scenario{name: "of two racks with 4 and 6 free nodes a job of 4 takes the smaller, and one of 6 still fits", run: func(t *testing.T, e *env) {
			e.closeRacks(t, 6, 4)
			e.closeQueue(t, "team", 1000)
			four := asks(e.job("four", "team", 4, 8), kueue.PodSetRequiredTopologyAnnotation, rackLevel)
			six := asks(e.job("six", "team", 6, 8), kueue.PodSetRequiredTopologyAnnotation, rackLevel)
			e.Create(t, four)
			e.runs(t, four, 4)
			if got := strings.Join(e.nodesByRank(t, four), " "); got != "b-0 b-1 b-2 b-3" {
				t.Errorf("the job of 4 is on %s", got)
			}
			e.condition(t, four, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "in one domain of "+rackLevel)
			e.Create(t, six)
			e.runs(t, six, 6)
			more := asks(e.job("more", "team", 2, 8), kueue.PodSetRequiredTopologyAnnotation, rackLevel)
			e.Create(t, more)
			e.pending(t, more, "NoPlacement", "")
		}},
		scenario{name: "ranks follow the topology, over several Jobs of a JobSet, and a pod that comes back has its rank's node", run: func(t *testing.T, e *env) {
			e.closeRacks(t, 3, 2, 1)
			e.closeQueue(t, "team", 1000)
			js := asks(e.job("ranks", "team", 5, 4), kueue.PodSetPreferredTopologyAnnotation, rackLevel)
			js.Spec.ReplicatedJobs[0].Replicas = 2
			e.Create(t, js)
			e.runs(t, js, 10)
			want := "a-0 a-0 a-1 a-1 a-2 a-2 b-0 b-0 b-1 b-1"
			if got := strings.Join(e.nodesByRank(t, js), " "); got != want {
				t.Errorf("the ranks are on %s, want %s", got, want)
			}
			e.condition(t, js, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "in 2 domains of "+rackLevel+", no fewer would do")
			pods, err := e.Pods(t.Context(), js)
			if err != nil {
				t.Fatal(err)
			}
			e.loseOne(t, js)
			e.jobs.Withhold(pods[0].Name, false)
			e.runs(t, js, 10)
			if got := strings.Join(e.nodesByRank(t, js), " "); got != want {
				t.Errorf("after one has come back the ranks are on %s, want %s", got, want)
			}
		}},
		scenario{name: "a job in a rack that loses a node gets another one of the rack, and starts whole in the next rack if there is none", configure: func(c *configv1alpha1.SchedulerConfiguration) {
			graceOf(time.Second)(c)
			c.Admission.RecoveryTimeout.Duration = 6 * time.Second
		}, run: func(t *testing.T, e *env) {
			e.closeRacks(t, 4, 3)
			e.closeQueue(t, "team", 1000)
			js := asks(e.job("two", "team", 2, 8), kueue.PodSetRequiredTopologyAnnotation, rackLevel)
			e.Create(t, js)
			e.runs(t, js, 2)
			for _, step := range []struct{ on, lost string }{{"b-0 b-1", "b-0"}, {"b-2 b-1", "b-2"}} {
				if got := strings.Join(e.nodesByRank(t, js), " "); got != step.on {
					t.Fatalf("it is on %s, want %s", got, step.on)
				}
				lost := e.podOn(t, js, step.lost)
				e.dies(t, step.lost)
				e.delete(t, lost)
				e.reborn(t, lost)
				if step.lost == "b-0" {
					e.restart(t)
					e.runs(t, js, 2)
				}
			}
			e.event(t, js, "Replanning", "needs 1 pod of 8 GPUs in one "+rackLevel+", where the rest of the gang is")
			e.condition(t, js, kueue.WorkloadEvicted, metav1.ConditionTrue, kueue.WorkloadEvictedByPodsReadyTimeout, "1 of 2 pods has been gone for 6s; all are released")
			e.event(t, js, "Suspended", "1 of 2 pods has been gone for 6s; all are released")
			e.runs(t, js, 2)
			if got := strings.Join(e.nodesByRank(t, js), " "); got != "a-0 a-1" {
				t.Errorf("it starts again on %s", got)
			}
			e.usage(t, "team", 16, 1, 0)
		}},
		scenario{name: "pods of a group that are numbered have the nodes of their ranks, whichever comes first", run: func(t *testing.T, e *env) {
			e.closeRacks(t, 3, 2)
			e.closeQueue(t, "team", 1000)
			pods := e.group("ring", "team", 6, 4)
			for i, pod := range pods {
				pod.Annotations[kueue.PodSetPreferredTopologyAnnotation] = rackLevel
				pod.Labels[kueue.PodGroupPodIndexLabel] = strconv.Itoa((i*5 + 2) % 6)
				e.Create(t, pod)
			}
			e.onNode(t, pods...)
			byRank := make([]string, len(pods))
			for i, pod := range pods {
				if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
					t.Fatal(err)
				}
				byRank[(i*5+2)%6] = pod.Spec.NodeName
			}
			if got := strings.Join(byRank, " "); got != "a-0 a-0 a-1 a-1 a-2 a-2" {
				t.Errorf("the ranks are on %s", got)
			}
		}},
		scenario{name: "slices within slices: pods that follow each other share a node, and more of them a rack", run: func(t *testing.T, e *env) {
			e.closeRacks(t, 3, 2, 1)
			e.closeQueue(t, "team", 1000)
			js := asks(e.job("nested", "team", 8, 4), kueue.PodSetSliceRequiredTopologyConstraintsAnnotation,
				fmt.Sprintf(`[{"topology":%q,"size":4},{"topology":%q,"size":2}]`, rackLevel, corev1.LabelHostname))
			e.Create(t, js)
			e.runs(t, js, 8)
			if got := strings.Join(e.nodesByRank(t, js), " "); got != "a-0 a-0 a-1 a-1 b-0 b-0 b-1 b-1" {
				t.Errorf("the ranks are on %s", got)
			}
		}},
		scenario{name: "a required rack that is too small keeps a job pending with numbers, until a node comes", run: func(t *testing.T, e *env) {
			e.closeRacks(t, 2, 1)
			e.closeQueue(t, "team", 1000)
			js := asks(e.job("three", "team", 3, 8), kueue.PodSetRequiredTopologyAnnotation, rackLevel)
			e.Create(t, js)
			e.pending(t, js, "ExceedsCluster", "needs 3 pods of 8 GPUs in one "+rackLevel)
			testobject.Change(t, e.Client, e.Node(t, "a-2", 8), func(node *corev1.Node) {
				node.Labels[blockLevel], node.Labels[rackLevel], node.Labels["flavor"] = "x", "a", "close"
			})
			e.runs(t, js, 3)
		}},
		scenario{name: "a level that the Topology does not have is named, and so is a Topology that does not exist", run: func(t *testing.T, e *env) {
			e.closeRacks(t, 2)
			topology := e.closeQueue(t, "team", 1000)
			odd := asks(e.job("odd", "team", 2, 8), kueue.PodSetRequiredTopologyAnnotation, "example.com/row")
			e.Create(t, odd)
			e.pending(t, odd, "NoMatchingFlavor", "has no level example.com/row")
			torn := asks(e.job("torn", "team", 2, 8), kueue.PodSetRequiredTopologyAnnotation, rackLevel)
			asks(torn, kueue.PodSetPreferredTopologyAnnotation, blockLevel)
			e.Create(t, torn)
			e.event(t, torn, "Pending", "has more than one of the annotations")
			if err := e.Client.Delete(t.Context(), topology); err != nil {
				t.Fatal(err)
			}
			queue := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: topology.Name}}
			testcluster.Eventually(t, "the ClusterQueue to say that its Topology is gone", func(ctx context.Context) error {
				if err := e.Client.Get(ctx, client.ObjectKeyFromObject(queue), queue); err != nil {
					return err
				}
				for _, c := range queue.Status.Conditions {
					if c.Type == kueue.ClusterQueueActive && c.Status == metav1.ConditionFalse && c.Reason == kueue.ClusterQueueActiveReasonTopologyNotFound {
						return nil
					}
				}
				return fmt.Errorf("the conditions are %+v", queue.Status.Conditions)
			})
			js := asks(e.job("waits", "team", 2, 8), kueue.PodSetRequiredTopologyAnnotation, rackLevel)
			e.Create(t, js)
			e.pending(t, js, "QueueInactive", "Topology "+topology.Name)
			topology.ResourceVersion, topology.UID = "", ""
			if err := e.Client.Create(t.Context(), topology); err != nil {
				t.Fatal(err)
			}
			e.runs(t, js, 2)
		}},
		scenario{name: "a level that is preferred by configuration keeps jobs together that ask for nothing", configure: func(c *configv1alpha1.SchedulerConfiguration) {
			c.Topology.Levels, c.Topology.PreferredLevel = []string{blockLevel, rackLevel}, rackLevel
		}, run: func(t *testing.T, e *env) {
			e.closeRacks(t, 2, 3)
			e.Queue(t, e.namespace, "team", 1000)
			js := e.job("plain", "team", 3, 8)
			e.Create(t, js)
			e.runs(t, js, 3)
			if got := strings.Join(e.nodesByRank(t, js), " "); got != "b-0 b-1 b-2" {
				t.Errorf("the job is on %s", got)
			}
		}},
		scenario{name: "a job that requires a rack starts in the flavor that has one", configure: func(c *configv1alpha1.SchedulerConfiguration) {
			c.Topology.Levels = []string{blockLevel, rackLevel}
		}, run: func(t *testing.T, e *env) {
			for _, n := range []struct{ name, rack, tier string }{{"a-0", "a", "spot"}, {"b-0", "b", "spot"}, {"c-0", "c", "ondemand"}, {"c-1", "c", "ondemand"}} {
				testobject.Change(t, e.Client, e.Node(t, n.name, 8), func(node *corev1.Node) {
					node.Labels[blockLevel], node.Labels[rackLevel], node.Labels["tier"] = "x", n.rack, n.tier
				})
			}
			e.tiers(t, "team", 32, "spot", "ondemand")
			first := asks(e.job("first", "team", 2, 4), kueue.PodSetRequiredTopologyAnnotation, rackLevel)
			e.Create(t, first)
			e.runs(t, first, 2)
			e.inFlavor(t, first, "spot")
			next := asks(e.job("next", "team", 2, 8), kueue.PodSetRequiredTopologyAnnotation, rackLevel)
			e.Create(t, next)
			e.runs(t, next, 2)
			e.inFlavor(t, next, "ondemand")
			e.condition(t, next, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "in one domain of "+rackLevel)
			e.finish(t, first)
			waits := asks(e.job("waits", "team", 2, 8), kueue.PodSetRequiredTopologyAnnotation, rackLevel)
			e.Create(t, waits)
			e.pending(t, waits, "NoPlacement", "flavor "+e.namespace+"-ondemand: needs 2 pods of 8 GPUs; 0 GPUs are free")
			e.pending(t, waits, "NoPlacement", "flavor "+e.namespace+"-spot: needs 2 pods of 8 GPUs in one "+rackLevel+"; even empty, the largest, a, has room for 1")
			e.finish(t, next)
			e.runs(t, waits, 2)
			e.inFlavor(t, waits, "ondemand")
		}},
	)
}
