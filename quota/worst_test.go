package quota

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Of two resources of a flavor one is free, and borrowed, and for the other a job
// of the own queue would have to leave. With PreemptionOverBorrowing that is the
// better one of the two, and nevertheless it is not free.
func TestAFlavorFitsOnlyWhereAllItsResourcesDo(t *testing.T) {
	of := func(flavor string, gpus, fpgas int64) kueue.FlavorQuotas {
		f := gpusOf(flavor, gpus)
		f.Resources = append(f.Resources, kueue.ResourceQuota{Name: "example.com/fpga", NominalQuota: *resource.NewQuantity(fpgas, resource.DecimalSI)})
		return f
	}
	for _, preference := range []kueue.FlavorFungibilityPreference{kueue.PreemptionOverBorrowing, kueue.BorrowingOverPreemption} {
		for _, flavors := range []int{1, 2} {
			cq := preempting(queueIn("team", "alpha", []kueue.FlavorQuotas{of("h100", 1, 2), of("a100", 0, 0)}[:flavors]...), lower, nobody)
			cq.Spec.FlavorFungibility = &kueue.FlavorFungibility{Preference: &preference}
			tree := world(cq, queueIn("team", "beta", of("h100", 8, 0)))
			fpga := FlavorResource{"h100", "example.com/fpga"}
			tree.Charge("low", "alpha", Usage{fpga: 2}, Holder{Priority: -1})
			r := ask("alpha", 2, 0)
			r.PodSets[0].PerPod["example.com/fpga"] = 2
			a, no := tree.Assign(r)
			if a == nil || a.Mode != Preempt || no == nil {
				t.Errorf("%s, %d flavors: it fits beside what is used: %+v %v", preference, flavors, a, no)
				continue
			}
			if v := tree.Preemption(r, a).Victims(); len(v) != 1 || v[0].ID != "low" {
				t.Errorf("%s, %d flavors: the victims are %v", preference, flavors, v)
			}
		}
	}
}
