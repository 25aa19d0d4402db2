package integration

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/internal/testcluster"
	"github.com/muster-gpu/muster/internal/testobject"
)

func init() {
	scenarios = append(scenarios, scenario{name: "a job that has no place in one flavor starts in the next, and waits for a place in both", run: func(t *testing.T, e *env) {
		for _, n := range []struct{ name, tier string }{{"node-0", "spot"}, {"node-1", "spot"}, {"node-2", "ondemand"}} {
			testobject.Change(t, e.Client, e.Node(t, n.name, 8), func(node *corev1.Node) { node.Labels["tier"] = n.tier })
		}
		e.tiers(t, "team", 32, "spot", "ondemand")
		first := e.job("first", "team", 2, 6)
		e.Create(t, first)
		e.runs(t, first, 2)
		e.inFlavor(t, first, "spot")
		// Four GPUs are free there, and no node has them.
		next := e.job("next", "team", 1, 4)
		e.Create(t, next)
		e.runs(t, next, 1)
		e.inFlavor(t, next, "ondemand")
		waits := e.job("waits", "team", 1, 8)
		e.Create(t, waits)
		e.pending(t, waits, "NoPlacement", "flavor "+e.namespace+"-ondemand: needs 8 GPUs; 4 GPUs are free")
		e.pending(t, waits, "NoPlacement", "flavor "+e.namespace+"-spot: needs 8 GPUs; 4 GPUs are free")
		e.finish(t, next)
		e.runs(t, waits, 1)
		e.inFlavor(t, waits, "ondemand")
		e.finish(t, first)
		last := e.job("last", "team", 2, 8)
		e.Create(t, last)
		e.runs(t, last, 2)
		e.inFlavor(t, last, "spot")
	}})
}

// tiers makes a queue with so many GPUs in each of the flavors given, which are for
// nodes of that tier.
func (e *env) tiers(t *testing.T, name string, gpus int64, tiers ...string) {
	t.Helper()
	e.Queue(t, e.namespace, name, gpus)
	var flavors []kueue.FlavorQuotas
	for _, tier := range tiers {
		flavor := &kueue.ResourceFlavor{
			ObjectMeta: metav1.ObjectMeta{Name: e.namespace + "-" + tier},
			Spec:       kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"tier": tier}},
		}
		e.Create(t, flavor)
		flavors = append(flavors, kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(flavor.Name), Resources: []kueue.ResourceQuota{
			{Name: testcluster.GPU, NominalQuota: *resource.NewQuantity(gpus, resource.DecimalSI)},
		}})
	}
	testcluster.Eventually(t, "the flavors to be set", func(ctx context.Context) error {
		cq := &kueue.ClusterQueue{}
		if err := e.Client.Get(ctx, client.ObjectKey{Name: e.namespace + "-" + name}, cq); err != nil {
			return err
		}
		cq.Spec.ResourceGroups[0].Flavors = flavors
		return e.Client.Update(ctx, cq)
	})
}

// inFlavor checks in which flavor a job was admitted.
func (e *env) inFlavor(t *testing.T, job client.Object, tier string) {
	t.Helper()
	wl, err := e.workload(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	want := kueue.ResourceFlavorReference(e.namespace + "-" + tier)
	for _, set := range wl.Status.Admission.PodSetAssignments {
		if got := set.Flavors[corev1.ResourceName(testcluster.GPU)]; got != want {
			t.Errorf("pod set %s of %s is in flavor %s, want %s", set.Name, job.GetName(), got, want)
		}
	}
}
