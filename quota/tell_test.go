package quota

import (
	"cmp"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestCells(t *testing.T) {
	lowered := func(name, cohort string, n int64) *kueue.ClusterQueue { return queueIn(cohort, name, gpus(n)) }
	tests := map[string]struct {
		do   func(*Tree)
		want map[string]int64
	}{
		"what is within the quota is no overuse": {
			do:   func(t *Tree) { t.Charge("a", "alpha", Usage{h100GPUs: 8}, Holder{}) },
			want: map[string]int64{"alpha": 0, "beta": 0, "alone": 0},
		},
		"what is borrowed is none either": {
			do:   func(t *Tree) { t.Charge("a", "alpha", Usage{h100GPUs: 16}, Holder{}) },
			want: map[string]int64{"alpha": 0, "beta": 0, "alone": 0},
		},
		"quota that is lowered under a job is, of a queue without a cohort": {
			do: func(t *Tree) {
				t.Charge("c", "alone", Usage{h100GPUs: 8}, Holder{})
				t.SetClusterQueue(lowered("alone", "", 5))
			},
			want: map[string]int64{"alpha": 0, "beta": 0, "alone": 3},
		},
		"in a cohort it is of all that borrow, up to what they borrow": {
			do: func(t *Tree) {
				t.Charge("a", "alpha", Usage{h100GPUs: 8}, Holder{})
				t.Charge("b", "beta", Usage{h100GPUs: 2}, Holder{})
				t.SetClusterQueue(lowered("alpha", "team", 1))
				t.SetClusterQueue(lowered("beta", "team", 0))
			},
			want: map[string]int64{"alpha": 7, "beta": 2, "alone": 0},
		},
		"and not of one that stays within its own quota": {
			do: func(t *Tree) {
				t.Charge("a", "alpha", Usage{h100GPUs: 8}, Holder{})
				t.Charge("b", "beta", Usage{h100GPUs: 2}, Holder{})
				t.SetClusterQueue(lowered("alpha", "team", 0))
				t.SetClusterQueue(lowered("beta", "team", 5))
			},
			want: map[string]int64{"alpha": 5, "beta": 0, "alone": 0},
		},
		"even where it lends only a part of that": {
			do: func(t *Tree) {
				t.Charge("a", "alpha", Usage{h100GPUs: 8}, Holder{})
				t.Charge("b", "beta", Usage{h100GPUs: 4}, Holder{})
				t.SetClusterQueue(lowered("alpha", "team", 0))
				beta := lowered("beta", "team", 5)
				beta.Spec.ResourceGroups[0].Flavors[0].Resources[0].LendingLimit = new(resource.MustParse("2"))
				t.SetClusterQueue(beta)
			},
			want: map[string]int64{"alpha": 7, "beta": 0, "alone": 0},
		},
		"nor of one that uses nothing": {
			do: func(t *Tree) {
				t.Charge("a", "alpha", Usage{h100GPUs: 8}, Holder{})
				t.SetClusterQueue(lowered("alpha", "team", 0))
				t.SetClusterQueue(lowered("beta", "team", 5))
			},
			want: map[string]int64{"alpha": 3, "beta": 0, "alone": 0},
		},
		"what leaves counts until it has left": {
			do: func(t *Tree) {
				t.Charge("c", "alone", Usage{h100GPUs: 8}, Holder{})
				t.SetClusterQueue(lowered("alone", "", 5))
				t.Leave("c")
			},
			want: map[string]int64{"alpha": 0, "beta": 0, "alone": 3},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tree := world(queueIn("team", "alpha", gpus(8)), queueIn("team", "beta", gpus(8)), queueIn("", "alone", gpus(8)))
			tc.do(tree)
			got := map[string]int64{}
			for _, cq := range tree.ClusterQueues() {
				for _, c := range tree.Cells(cq) {
					got[cq] += c.Overuse
				}
			}
			if diff := gocmp.Diff(tc.want, got); diff != "" {
				t.Errorf("overuse (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCellsHaveLimitsAndWhatIsTakenWithoutQuota(t *testing.T) {
	tree := world(queueIn("team", "alpha", gpus(8)))
	bounded := queueIn("team", "beta", gpus(8))
	cell := &bounded.Spec.ResourceGroups[0].Flavors[0].Resources[0]
	borrowing, lending := cell.NominalQuota.DeepCopy(), cell.NominalQuota.DeepCopy()
	borrowing.Set(4)
	lending.Set(2)
	cell.BorrowingLimit, cell.LendingLimit = &borrowing, &lending
	tree.SetClusterQueue(bounded)
	a100 := FlavorResource{Flavor: "a100", Resource: h100GPUs.Resource}
	tree.Charge("b", "beta", Usage{a100: 1}, Holder{})

	got := tree.Cells("beta")
	slices.SortFunc(got, func(a, b Cell) int { return cmp.Compare(a.Flavor, b.Flavor) })
	want := []Cell{
		{FlavorResource: a100, Overuse: 1},
		{FlavorResource: h100GPUs, Nominal: 8, Borrowing: new(int64(4)), Lending: new(int64(2))},
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if unlimited := tree.Cells("alpha"); len(unlimited) != 1 || unlimited[0].Borrowing != nil || unlimited[0].Lending != nil {
		t.Errorf("alpha has no limits: %+v", unlimited)
	}
	if tree.Cohort("beta") != "team" || tree.Cohort("gone") != "" || tree.Cells("gone") != nil {
		t.Error("beta is in team, and gone does not exist")
	}
}

func TestFloat(t *testing.T) {
	for fr, want := range map[FlavorResource]float64{{Resource: "cpu"}: 1.5, {Resource: "nvidia.com/gpu"}: 1500} {
		if got := fr.Float(1500); got != want {
			t.Errorf("%s: %v, want %v", fr.Resource, got, want)
		}
	}
}
