package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/internal/testcluster"
	"github.com/muster-gpu/muster/internal/testobject"
)

// busyNodes makes nodes of 8 GPUs of which pods that Muster does not manage have taken
// all but those given.
func (e *env) busyNodes(t *testing.T, free ...int64) {
	t.Helper()
	for i, n := range free {
		name := fmt.Sprintf("node-%d", i)
		e.Node(t, name, 8)
		if n == 8 {
			continue
		}
		e.Create(t, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "busy-" + name},
			Spec: corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{
				Name: "c", Image: "example.com/x", Resources: corev1.ResourceRequirements{Limits: gpus(8 - n)},
			}}},
		})
	}
}

// flavorEvent waits for an event on a ResourceFlavor.
func (e *env) flavorEvent(t *testing.T, flavor, why, part string) {
	t.Helper()
	testcluster.Eventually(t, fmt.Sprintf("event %s %q on flavor %s", why, part, flavor), func(ctx context.Context) error {
		var list eventsv1.EventList
		if err := e.Client.List(ctx, &list); err != nil {
			return err
		}
		var notes []string
		for _, ev := range list.Items {
			if ev.Regarding.Kind != "ResourceFlavor" || ev.Regarding.Name != flavor {
				continue
			}
			if ev.Reason == why && strings.Contains(ev.Note, part) {
				return nil
			}
			notes = append(notes, ev.Reason+": "+ev.Note)
		}
		return fmt.Errorf("its events are %q", notes)
	})
}

func init() {
	scenarios = append(scenarios,
		scenario{name: "6, 2, 2 and 2 free GPUs do not start 3 pods of 4, which hold nothing, and 2-GPU jobs behind them run", run: func(t *testing.T, e *env) {
			e.busyNodes(t, 6, 2, 2, 2)
			e.Queue(t, e.namespace, "team", 64)
			gang := e.job("gang", "team", 3, 4)
			e.Create(t, gang)
			e.pending(t, gang, "NoPlacement", "needs 3 pods of 4 GPUs; 12 GPUs are free, with room for 1 of them; 4 more GPUs are missing, on 2 nodes")
			e.usage(t, "team", 0, 0, 1)
			var behind []*jobset.JobSet
			for i := range 6 {
				js := e.job(fmt.Sprint("small-", i), "team", 1, 2)
				e.Create(t, js)
				behind = append(behind, js)
			}
			for _, js := range behind {
				e.runs(t, js, 1)
			}
			e.pending(t, gang, "NoPlacement", "needs 3 pods of 4 GPUs; 0 GPUs are free, with room for none of them; 12 more GPUs are missing, on 2 nodes")
			for _, js := range behind {
				e.finish(t, js)
			}
			e.usage(t, "team", 0, 0, 1)
			e.Node(t, "node-4", 8)
			e.runs(t, gang, 3)
		}},
		scenario{name: "of two gangs of 3 x 8 whose pods come in turn to four free nodes one runs whole, and the other holds nothing", run: func(t *testing.T, e *env) {
			e.busyNodes(t, 8, 8, 8, 8)
			e.Queue(t, e.namespace, "team", 64)
			first, second := e.group("first", "team", 3, 8), e.group("second", "team", 3, 8)
			for i := range first {
				e.Create(t, first[i])
				e.Create(t, second[i])
			}
			e.onNode(t, first...)
			for _, pod := range second {
				e.unschedulable(t, pod, true)
			}
			e.waits(t, second...)
			e.usage(t, "team", 24, 1, 1)
			e.podEvent(t, second[0], "Pending", "needs 3 pods of 8 GPUs; 8 GPUs are free, with room for 1 of them; 16 more GPUs are missing, on 2 nodes")
			// Nothing is kept on the fourth node.
			small := e.pod("small", 8, queued("team"))
			e.Create(t, small)
			e.onNode(t, small)
			e.succeed(t, append(first, small)...)
			e.onNode(t, second...)
		}},
		scenario{name: "a job without a place names the smallest job that is in its way, and starts when that has ended", run: func(t *testing.T, e *env) {
			e.busyNodes(t, 8, 8)
			e.Queue(t, e.namespace, "team", 64)
			large, small := e.job("large", "team", 1, 8), e.job("small", "team", 1, 4)
			e.Create(t, large)
			e.runs(t, large, 1)
			e.Create(t, small)
			e.runs(t, small, 1)
			waits := e.job("waits", "team", 1, 8)
			e.Create(t, waits)
			e.pending(t, waits, "NoPlacement", "needs 8 GPUs; 4 GPUs are free; 4 more GPUs are missing, on one node; it would fit if JobSet "+e.namespace+"/small (4 GPUs) left")
			e.finish(t, small)
			e.runs(t, waits, 1)
		}},
		scenario{name: "of ten pods nine would have a place: none starts until the tenth node comes", run: func(t *testing.T, e *env) {
			e.busyNodes(t, 8, 8, 8, 8, 8, 8, 8, 8, 8)
			e.Queue(t, e.namespace, "team", 128)
			gang := e.job("gang", "team", 10, 8)
			e.Create(t, gang)
			e.pending(t, gang, "ExceedsCluster", "needs 80 GPUs; the cluster has 72")
			e.usage(t, "team", 0, 0, 1)
			e.Node(t, "node-9", 8)
			e.runs(t, gang, 10)
			e.usage(t, "team", 80, 1, 0)
		}},
		scenario{name: "nodes without the label of a level are near no other, the flavor says so, and topologies that disagree are told", run: func(t *testing.T, e *env) {
			e.closeRacks(t, 2)
			for _, name := range []string{"c-0", "c-1"} {
				testobject.Change(t, e.Client, e.Node(t, name, 8), func(node *corev1.Node) {
					node.Labels[blockLevel], node.Labels["flavor"] = "x", "close"
				})
			}
			topology := e.closeQueue(t, "team", 1000)
			e.flavorEvent(t, topology.Name, "TopologyIncomplete", "2 of its 4 nodes lack the label "+rackLevel)
			three := asks(e.job("three", "team", 3, 8), kueue.PodSetRequiredTopologyAnnotation, rackLevel)
			e.Create(t, three)
			e.pending(t, three, "ExceedsCluster", "in one "+rackLevel+"; even empty, the largest, a, has room for 2; 2 nodes with room lack the label")
			two := asks(e.job("two", "team", 2, 8), kueue.PodSetRequiredTopologyAnnotation, rackLevel)
			e.Create(t, two)
			e.runs(t, two, 2)
			if got := strings.Join(e.nodesByRank(t, two), " "); got != "a-0 a-1" {
				t.Errorf("the job that requires a rack is on %s", got)
			}

			other := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: topology.Name + "-turned"}, Spec: kueue.TopologySpec{
				Levels: []kueue.TopologyLevel{{NodeLabel: rackLevel}, {NodeLabel: blockLevel}},
			}}
			e.Create(t, other)
			e.Create(t, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: other.Name}, Spec: kueue.ResourceFlavorSpec{
				NodeLabels: map[string]string{"flavor": "close"}, TopologyName: new(kueue.TopologyReference(other.Name)),
			}})
			testobject.Change(t, e.Client, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: topology.Name}}, func(queue *kueue.ClusterQueue) {
				flavors := &queue.Spec.ResourceGroups[0].Flavors
				*flavors = append(*flavors, kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(other.Name), Resources: []kueue.ResourceQuota{
					{Name: testcluster.GPU, NominalQuota: *resource.NewQuantity(64, resource.DecimalSI)},
				}})
			})
			e.flavorEvent(t, topology.Name, "TopologyIncomplete", "the other way round")
			e.flavorEvent(t, other.Name, "TopologyIncomplete", "its topology has "+blockLevel+" inside "+rackLevel)
			// The first job that asks for what both have runs, wherever that is.
			loose := asks(e.job("loose", "team", 2, 8), kueue.PodSetPreferredTopologyAnnotation, rackLevel)
			e.Create(t, loose)
			e.runs(t, loose, 2)
		}},
	)
}
