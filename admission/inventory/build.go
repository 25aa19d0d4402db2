package inventory

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/quota"
)

// Objects are what an inventory is made of.
type Objects struct {
	// Namespaces are their labels.
	Namespaces    map[string]labels.Set
	LocalQueues   []*kueue.LocalQueue
	ClusterQueues []*kueue.ClusterQueue
	Cohorts       []*kueue.Cohort
	Defaults      []*v1alpha1.RuntimeDefaults
	Nodes         []*v1alpha1.GPUNode
}

// Build is the inventory of the objects, which it does not change, at a time. Queues that
// lead nowhere are left out. What queues use is what their statuses say.
func Build(o Objects, now time.Time) policy.Inventory {
	out := policy.Inventory{
		Namespaces: make(map[string]policy.Namespace, len(o.Namespaces)), Queues: map[string]map[string]policy.Queue{},
		RuntimeDefaults: make(map[string]policy.Defaults, len(o.Defaults)), GPUNodes: map[string]policy.GPUNode{},
	}
	for name, set := range o.Namespaces {
		out.Namespaces[name] = policy.Namespace{Labels: orEmpty(set)}
	}
	for _, d := range o.Defaults {
		out.RuntimeDefaults[d.Name] = policy.Defaults{Generation: d.Generation}
	}
	addNodes(&out, o.Nodes, now)
	tree := quota.New()
	for _, c := range o.Cohorts {
		tree.SetCohort(c)
	}
	for _, q := range o.ClusterQueues {
		tree.SetClusterQueue(q)
	}
	type known struct {
		reach       int64
		preemptible bool
	}
	queues := make(map[string]known, len(o.ClusterQueues))
	for _, q := range o.ClusterQueues {
		queues[q.Name] = known{sum(tree.Reach(q.Name)), tree.Preemptible(q.Name)}
	}
	for _, q := range o.LocalQueues {
		of, exists := queues[string(q.Spec.ClusterQueue)]
		if !exists {
			continue // that its jobs wait is no reason to refuse them
		}
		if out.Queues[q.Namespace] == nil {
			out.Queues[q.Namespace] = map[string]policy.Queue{}
		}
		out.Queues[q.Namespace][q.Name] = policy.Queue{
			ClusterQueue: string(q.Spec.ClusterQueue), Reach: of.reach, Used: used(q), Preemptible: of.preemptible,
		}
	}
	return out
}

// sum is how many GPUs of all kinds these are.
func sum(amounts map[corev1.ResourceName]int64) (n int64) {
	for name, v := range amounts {
		if gpu.Is(name) {
			n += v
		}
	}
	return n
}

// used is how many GPUs the jobs of a queue have.
func used(q *kueue.LocalQueue) (n int64) {
	for _, flavor := range q.Status.FlavorsUsage {
		for i := range flavor.Resources {
			if r := &flavor.Resources[i]; gpu.Is(r.Name) {
				n += r.Total.Value()
			}
		}
	}
	return n
}

func orEmpty(set labels.Set) labels.Set {
	if set == nil {
		return labels.Set{}
	}
	return set
}
