package quota

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestWhatIsPromisedIsNotFree(t *testing.T) {
	tests := map[string]struct {
		do func(*Tree)
		// now and text are what a request of 6 GPUs is told; "" is that it fits.
		text string
		// waits says that it would fit when those that leave have left.
		waits bool
	}{
		"a claim is kept for its job": {
			do:   func(t *Tree) { t.Claim("other", "alpha", Usage{h100GPUs: 4}) },
			text: "needs 6 GPUs in queue alpha, 8 of 8 free, 4 of it promised to other jobs",
		},
		"a job's own claim is free to it": {
			do: func(t *Tree) { t.Claim("asks", "alpha", Usage{h100GPUs: 8}) },
		},
		"a claim that has ended is free": {
			do: func(t *Tree) { t.Claim("other", "alpha", Usage{h100GPUs: 4}); t.Unclaim("other") },
		},
		"a second claim replaces the first": {
			do: func(t *Tree) {
				t.Claim("other", "alpha", Usage{h100GPUs: 8})
				t.Claim("other", "alpha", Usage{h100GPUs: 2})
			},
		},
		"a charge ends the job's claim": {
			do: func(t *Tree) {
				t.Claim("other", "alpha", Usage{h100GPUs: 4})
				t.Charge("other", "alpha", Usage{h100GPUs: 2}, Holder{})
			},
		},
		"what a head withholds is used": {
			do:   func(t *Tree) { t.Withhold("head", "alpha", Usage{h100GPUs: 4}) },
			text: "needs 6 GPUs in queue alpha, 4 of 8 free, 4 reserved for a job of ClusterQueue alpha",
		},
		"what a job withholds is free to it": {
			do: func(t *Tree) { t.Withhold("asks", "alpha", Usage{h100GPUs: 8}) },
		},
		"a charge ends what the job withholds": {
			do: func(t *Tree) {
				t.Withhold("head", "alpha", Usage{h100GPUs: 8})
				t.Charge("head", "alpha", Usage{h100GPUs: 2}, Holder{})
			},
		},
		"the quota of one that leaves is not free yet": {
			do: func(t *Tree) {
				t.Charge("leaves", "alpha", Usage{h100GPUs: 5}, Holder{})
				t.Leave("leaves")
			},
			text:  "needs 6 GPUs in queue alpha, 3 of 8 free, 5 more when jobs that are leaving have gone",
			waits: true,
		},
		"leaving twice is leaving once": {
			do: func(t *Tree) {
				t.Charge("leaves", "alpha", Usage{h100GPUs: 5}, Holder{})
				t.Leave("leaves")
				t.Leave("leaves")
				t.Release("leaves")
			},
		},
		"one that is charged anew does not leave": {
			do: func(t *Tree) {
				t.Charge("stays", "alpha", Usage{h100GPUs: 5}, Holder{})
				t.Leave("stays")
				t.Charge("stays", "alpha", Usage{h100GPUs: 5}, Holder{})
			},
			text: "needs 6 GPUs in queue alpha, 3 of 8 free",
		},
		"what is claimed of those that leave is gone": {
			do: func(t *Tree) {
				t.Charge("leaves", "alpha", Usage{h100GPUs: 8}, Holder{})
				t.Leave("leaves")
				t.Claim("other", "alpha", Usage{h100GPUs: 8})
			},
			text: "needs 6 GPUs in queue alpha, 0 of 8 free",
		},
		"leaving without a charge, and ending what never was": {
			do: func(t *Tree) {
				t.Leave("nobody")
				t.Unclaim("nobody")
				t.Unwithhold("nobody")
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tree := world(queueIn("", "alpha", gpus(8)))
			tc.do(tree)
			r := ask("alpha", 6, 0)
			a, no := tree.Assign(r)
			if diff := cmp.Diff(tc.text, no.String()); diff != "" {
				t.Fatalf("reason (-want +got):\n%s", diff)
			}
			if tc.text == "" {
				return
			}
			if waits := tree.Preemption(r, a).Fits(); waits != tc.waits {
				t.Errorf("fits when those that leave have left: %v", waits)
			}
		})
	}
}

func TestWhatAHeadWithholds(t *testing.T) {
	limited := func(reclaim kueue.PreemptionPolicy) func() *Tree {
		return func() *Tree {
			return world(borrowing(preempting(queueIn("team", "alpha", gpus(4, borrow(3))), nobody, reclaim), nil), queueIn("team", "beta", gpus(8)))
		}
	}
	tests := map[string]struct {
		world func() *Tree
		jobs  []running
		gpus  int64
		want  Usage
	}{
		"what it asks, within the nominal quota": {
			world: limited(lower), jobs: []running{{"b", "beta", 12, 9, 0}}, gpus: 3, want: Usage{h100GPUs: 3},
		},
		"nothing where it can always be reclaimed": {
			world: limited(anyOf), jobs: []running{{"b", "beta", 12, 9, 0}}, gpus: 3,
		},
		"up to the borrowing limit if it borrows": {
			world: limited(lower), jobs: []running{{"a", "alpha", 2, 0, 0}, {"b", "beta", 10, 9, 0}}, gpus: 5, want: Usage{h100GPUs: 5},
		},
		"all of it if there is no borrowing limit": {
			world: func() *Tree {
				return world(borrowing(preempting(queueIn("team", "alpha", gpus(4)), nobody, lower), nil), queueIn("team", "beta", gpus(8)))
			},
			jobs: []running{{"a", "alpha", 2, 0, 0}, {"b", "beta", 10, 9, 0}}, gpus: 9, want: Usage{h100GPUs: 9},
		},
		"only what is left of the nominal quota": {
			world: func() *Tree { return world(queueIn("", "alpha", gpus(4))) },
			jobs:  []running{{"a", "alpha", 3, 0, 0}}, gpus: 4, want: Usage{h100GPUs: 1},
		},
		"all of it if nodes are missing and not quota": {
			world: func() *Tree { return world(queueIn("team", "alpha", gpus(4)), queueIn("team", "beta", gpus(8))) },
			gpus:  9, want: Usage{h100GPUs: 9},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tree := tc.world()
			run(tree, tc.jobs)
			r := ask("alpha", tc.gpus, 0)
			a, _ := tree.Assign(r)
			if a == nil {
				t.Fatal("no assignment")
			}
			got := tree.Withheld(r, a)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Fatalf("withheld (-want +got):\n%s", diff)
			}
			// Asking again, with it withheld, does not change the answer.
			tree.Withhold(r.ID, "alpha", got)
			if diff := cmp.Diff(tc.want, tree.Withheld(r, a)); diff != "" {
				t.Errorf("withheld again (-want +got):\n%s", diff)
			}
		})
	}
}

func TestALenderWithABlockedHead(t *testing.T) {
	for reclaim, want := range map[kueue.PreemptionPolicy]bool{anyOf: true, lower: false, nobody: false} {
		tree := world(preempting(queueIn("team", "lender", gpus(8)), nobody, reclaim), queueIn("team", "neighbour", gpus(0)))
		run(tree, []running{{"mine", "lender", 4, 0, 0}})
		head := ask("lender", 8, 0)
		a, _ := tree.Assign(head)
		tree.Withhold(head.ID, "lender", tree.Withheld(head, a))
		other := ask("neighbour", 4, 0)
		other.ID = "other"
		if _, no := tree.Assign(other); (no == nil) != want {
			t.Errorf("reclaimWithinCohort %s: the neighbour borrows %v, want %v (%s)", reclaim, no == nil, want, no)
		}
	}
}

func TestWhoGoesFirstWithFairSharing(t *testing.T) {
	head := func(tree *Tree, cq string, gpus int64, priority int32, created int64) *Head {
		r := ask(cq, gpus, priority)
		r.ID, r.Created = "head of "+r.ID, time.Unix(created, 0)
		a, _ := tree.Assign(r)
		return &Head{Request: r, Assignment: a}
	}
	half := resource.MustParse("500m")
	light := queueIn("team", "light", gpus(2))
	light.Spec.FairSharing = &kueue.FairSharing{Weight: &half}
	tests := map[string]struct {
		jobs  []running
		heads func(*Tree) []*Head
		want  string
	}{
		"whoever borrows less": {
			heads: func(t *Tree) []*Head { return []*Head{head(t, "alpha", 6, 9, 0), head(t, "beta", 5, 0, 1)} },
			want:  "beta",
		},
		"whoever does not borrow, before a smaller share of another": {
			jobs:  []running{{"b", "beta", 2, 0, 0}},
			heads: func(t *Tree) []*Head { return []*Head{head(t, "alpha", 2, 0, 1), head(t, "beta", 1, 9, 0)} },
			want:  "alpha",
		},
		"whoever does not borrow what it asks for, before a smaller share of another": {
			// sided has borrowed of flavor a100, and has h100 of its own.
			jobs: []running{{"b", "beta", 2, 0, 0}},
			heads: func(t *Tree) []*Head {
				t.Charge("old", "sided", Usage{{"a100", nvidiaGPU}: 9}, Holder{})
				return []*Head{head(t, "sided", 2, 0, 1), head(t, "beta", 1, 9, 0)}
			},
			want: "sided",
		},
		"of equal shares the higher priority": {
			heads: func(t *Tree) []*Head { return []*Head{head(t, "alpha", 4, 0, 0), head(t, "beta", 4, 1, 1)} },
			want:  "beta",
		},
		"of equal priority the older": {
			heads: func(t *Tree) []*Head { return []*Head{head(t, "alpha", 4, 1, 1), head(t, "beta", 4, 1, 0)} },
			want:  "beta",
		},
		"a small weight makes a large share": {
			heads: func(t *Tree) []*Head { return []*Head{head(t, "light", 4, 9, 0), head(t, "alpha", 5, 0, 1)} },
			want:  "alpha",
		},
		"the sides of a Cohort are compared, not their heads": {
			// beta's side has borrowed 4 by gamma already.
			jobs:  []running{{"g", "gamma", 8, 0, 0}},
			heads: func(t *Tree) []*Head { return []*Head{head(t, "delta", 1, 9, 0), head(t, "alpha", 4, 0, 1)} },
			want:  "alpha",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tree := world(cohortIn("team", "side"),
				queueIn("team", "alpha", gpus(2)), queueIn("team", "beta", gpus(2)), light,
				queueIn("side", "gamma", gpus(2)), queueIn("side", "delta", gpus(2)), queueIn("team", "lender", gpus(10), gpusOf("a100", 10)),
				queueIn("team", "sided", gpus(2), gpusOf("a100", 0)))
			run(tree, tc.jobs)
			heads := tc.heads(tree)
			got := tree.FairFirst(heads)
			if got == nil || got.Assignment.ClusterQueue != tc.want {
				t.Errorf("head %+v goes first, want that of %s", got, tc.want)
			}
		})
	}
	if got := New().FairFirst(nil); got != nil {
		t.Errorf("of no heads %+v goes first", got)
	}
}

func TestWhatAHeadThatBorrowsKeeps(t *testing.T) {
	tests := map[string]struct {
		do   func(*Tree)
		r    Request
		text string
		// victims are those who would have to leave.
		victims []string
	}{
		"not from the nominal quota of another ClusterQueue": {
			do: func(t *Tree) { t.WithholdFromBorrowers("head", "poor", Usage{h100GPUs: 12}) },
			r:  ask("owner", 8, 0),
		},
		"from others who borrow": {
			do:   func(t *Tree) { t.WithholdFromBorrowers("head", "poor", Usage{h100GPUs: 12}) },
			r:    ask("neighbour", 1, 0),
			text: "needs 1 GPU in queue neighbour, 0 of 0 free, none can be borrowed from cohort team, 12 kept for the first job of ClusterQueue poor, which is StrictFIFO",
		},
		"from one that would borrow a part of what it needs": {
			do:   func(t *Tree) { t.WithholdFromBorrowers("head", "poor", Usage{h100GPUs: 12}) },
			r:    ask("owner", 9, 0),
			text: "needs 9 GPUs in queue owner, 0 of 8 free, 8 lent in cohort team, 12 kept for the first job of ClusterQueue poor, which is StrictFIFO",
		},
		"not from who reclaims its nominal quota": {
			do: func(t *Tree) {
				run(t, []running{{"b", "poor", 12, -1, 0}})
				t.WithholdFromBorrowers("head", "poor", Usage{h100GPUs: 8})
			},
			r:       ask("owner", 8, 0),
			text:    "needs 8 GPUs in queue owner, 0 of 8 free, 8 lent in cohort team",
			victims: []string{"b"},
		},
		"nor from who stops others of its own ClusterQueue to stay within it": {
			do: func(t *Tree) {
				run(t, []running{{"own", "owner", 8, -1, 0}, {"b", "poor", 4, 9, 0}})
				t.WithholdFromBorrowers("head", "poor", Usage{h100GPUs: 8})
			},
			r:       ask("owner", 8, 0),
			text:    "needs 8 GPUs in queue owner, 0 of 8 free, none can be borrowed from cohort team, 8 kept for the first job of ClusterQueue poor, which is StrictFIFO",
			victims: []string{"own"},
		},
		"it makes nobody of its ClusterQueue a victim who stays within the nominal quota": {
			do: func(t *Tree) {
				run(t, []running{{"b", "neighbour", 5, 9, 0}, {"w", "lends", 4, -1, 0}})
				t.WithholdFromBorrowers("head", "lends", Usage{h100GPUs: 8})
			},
			r:    ask("owner", 8, 0),
			text: "needs 8 GPUs in queue owner, 3 of 8 free, 5 lent in cohort team",
		},
		"no head keeps from a job what others have left for it": {
			do: func(t *Tree) {
				t.Claim("asks", "neighbour", Usage{h100GPUs: 8})
				t.WithholdFromBorrowers("head", "poor", Usage{h100GPUs: 12})
				t.Withhold("starved", "lends", Usage{h100GPUs: 4})
			},
			r: ask("neighbour", 8, 0),
		},
		"they keep from it what it asks for beside that": {
			do: func(t *Tree) {
				t.Claim("asks", "neighbour", Usage{h100GPUs: 7})
				t.Withhold("starved", "lends", Usage{h100GPUs: 5})
			},
			r:    ask("neighbour", 8, 0),
			text: "needs 8 GPUs in queue neighbour, 0 of 0 free, 7 more can be borrowed from cohort team, 5 reserved for a job of ClusterQueue lends",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			poor := queueIn("team", "poor", gpus(0))
			poor.Spec.QueueingStrategy = kueue.StrictFIFO
			tree := world(poor, queueIn("team", "neighbour", gpus(0)), queueIn("team", "lends", gpus(4)),
				preempting(queueIn("team", "owner", gpus(8)), lower, lower))
			tc.do(tree)
			a, no := tree.Assign(tc.r)
			if diff := cmp.Diff(tc.text, no.String()); diff != "" {
				t.Fatalf("reason (-want +got):\n%s", diff)
			}
			if tc.text == "" {
				return
			}
			var victims []string
			if a != nil {
				for _, v := range tree.Preemption(tc.r, a).Victims() {
					victims = append(victims, string(v.ID))
				}
			}
			if diff := cmp.Diff(tc.victims, victims); diff != "" {
				t.Errorf("victims (-want +got):\n%s", diff)
			}
		})
	}
}
