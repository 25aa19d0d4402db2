package quota

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// The benchmarks stand for a large cluster: 1,000 ClusterQueues in as many
// Cohorts as the name says, 20 jobs in each, and 50,000 requests of 36 shapes
// that wait.
const (
	benchQueues  = 1000
	benchPending = 50_000
	benchShapes  = 36
)

// benchFlavors gives a ClusterQueue so many flavors of 60 GPUs each.
func benchQueue(i, cohorts, flavors int, reclaim kueue.PreemptionPolicy) *kueue.ClusterQueue {
	var quotas []kueue.FlavorQuotas
	for f := range flavors {
		quotas = append(quotas, of(fmt.Sprint("f", f), "nvidia.com/gpu", "60", "cpu", "1k", "memory", "8Ti"))
	}
	return preempting(queueIn(fmt.Sprint("c", i%cohorts), fmt.Sprint("q", i), quotas...), lower, reclaim)
}

func benchTree(cohorts, flavors int, within, reclaim kueue.PreemptionPolicy) *Tree {
	t := New()
	for f := range flavors {
		t.SetFlavor(flavorOf(fmt.Sprint("f", f), map[string]string{"gpu": fmt.Sprint("f", f)}))
	}
	for c := range cohorts {
		t.SetCohort(cohortIn("org", fmt.Sprint("c", c)))
	}
	for i := range benchQueues {
		cq := benchQueue(i, cohorts, flavors, reclaim)
		cq.Spec.Preemption.WithinClusterQueue = within
		t.SetClusterQueue(cq)
		t.SetLocalQueue(localQ(types.NamespacedName{Namespace: "nlp", Name: cq.Name}, cq.Name))
		for j := range 20 {
			flavor := fmt.Sprint("f", j%flavors)
			// Half of the queues borrow from the others, and all GPUs are in use.
			gpus := int64(flavors * 60 / 20)
			if i%2 == 0 {
				gpus += gpus / 2
			} else {
				gpus -= gpus / 2
			}
			t.Charge(types.UID(fmt.Sprint(i, "-", j)), cq.Name, Usage{
				{flavor, nvidiaGPU}: gpus, {flavor, "cpu"}: 10_000, {flavor, "memory"}: 64 << 30,
			}, Holder{Priority: int32(j % 3), Reserved: time.Unix(int64(j), 0)})
		}
	}
	return t
}

func benchRequests() []Request {
	out := make([]Request, benchPending)
	for i := range out {
		shape := i % benchShapes
		out[i] = Request{
			ID:       types.UID(fmt.Sprint("pending", i)),
			Queue:    types.NamespacedName{Namespace: "nlp", Name: fmt.Sprint("q", i%benchQueues)},
			Priority: int32(shape % 4),
			PodSets: []PodSet{
				pods("launcher", 1, "cpu", "1", "memory", "1Gi"),
				pods("node", int32(1+shape), "nvidia.com/gpu", fmt.Sprint(1+shape%8), "cpu", "8", "memory", "64Gi"),
			},
		}
	}
	return out
}

// BenchmarkHeads asks for the head of every ClusterQueue once.
func BenchmarkHeads(b *testing.B) {
	requests := benchRequests()
	for _, cohorts := range []int{5, 50} {
		for _, flavors := range []int{1, 2} {
			for _, policy := range []struct {
				name            string
				within, reclaim kueue.PreemptionPolicy
			}{{"no preemption", nobody, nobody}, {"preemption", lower, anyOf}} {
				b.Run(fmt.Sprintf("%d cohorts/%d flavors/%s", cohorts, flavors, policy.name), func(b *testing.B) {
					tree := benchTree(cohorts, flavors, policy.within, policy.reclaim)
					b.ReportAllocs()
					for i := 0; b.Loop(); i++ {
						first := i * benchQueues % benchPending
						for _, r := range requests[first : first+benchQueues] {
							tree.Assign(r)
						}
					}
				})
			}
		}
	}
}

// BenchmarkPreemption looks for the victims of one request.
func BenchmarkPreemption(b *testing.B) {
	for _, fair := range []bool{false, true} {
		b.Run(fmt.Sprintf("fair sharing %v", fair), func(b *testing.B) {
			tree := benchTree(50, 1, lower, anyOf)
			tree.SetFairSharing(fair)
			r := ask("q1", 32, 5)
			a, _ := tree.Assign(r)
			b.ReportAllocs()
			for b.Loop() {
				if p := tree.Preemption(r, a); len(p.Victims()) == 0 {
					b.Fatal("no victims")
				}
			}
		})
	}
}

func BenchmarkChanges(b *testing.B) {
	tree := benchTree(5, 2, lower, anyOf)
	b.Run("charge and release", func(b *testing.B) {
		u := Usage{{"f0", nvidiaGPU}: 8, {"f0", "cpu"}: 8000, {"f0", "memory"}: 1 << 30}
		b.ReportAllocs()
		for b.Loop() {
			tree.Charge("one", "q7", u, Holder{})
			tree.Release("one")
		}
	})
	b.Run("set a ClusterQueue", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			tree.SetClusterQueue(benchQueue(7, 5, 2, anyOf))
		}
	})
	b.Run("move a ClusterQueue", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			tree.SetClusterQueue(benchQueue(7, 2+i%4, 2, anyOf))
		}
	})
}
