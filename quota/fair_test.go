package quota

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func weighing(cq *kueue.ClusterQueue, weight string) *kueue.ClusterQueue {
	q := resource.MustParse(weight)
	cq.Spec.FairSharing = &kueue.FairSharing{Weight: &q}
	return cq
}

func TestAStrategySaysWhoGivesFairly(t *testing.T) {
	const final, initial = LessThanOrEqualToFinalShare, LessThanInitialShare
	// 12 GPUs, all borrowed; alpha asks for more.
	two := func() *Tree {
		return world(cohortIn("", "team", gpus(12)),
			preempting(queueIn("team", "alpha", gpus(0)), lower, anyOf), preempting(queueIn("team", "beta", gpus(0)), lower, anyOf))
	}
	tests := map[string]struct {
		tree    func() *Tree
		jobs    []running
		request Request
		// want is by strategies.
		final, initial, both []types.UID
	}{
		"what is left to the other one is as much": {
			tree: two, jobs: []running{{"a", "alpha", 4, 0, 0}, {"b1", "beta", 2, 0, 1}, {"b2", "beta", 6, 0, 0}}, request: ask("alpha", 2, 0),
			final: []types.UID{"b1"}, initial: []types.UID{"b1"}, both: []types.UID{"b1"},
		},
		"what is left to the other one is less, but it had more": {
			tree: two, jobs: []running{{"a", "alpha", 4, 0, 0}, {"b", "beta", 8, 0, 0}}, request: ask("alpha", 3, 0),
			final: nil, initial: []types.UID{"b"}, both: []types.UID{"b"},
		},
		"the other one had as much": {
			tree: two, jobs: []running{{"a", "alpha", 4, 0, 0}, {"b", "beta", 8, 0, 0}}, request: ask("alpha", 4, 0),
		},
		"small jobs are taken before large ones where the share is to stay": {
			tree: two, jobs: []running{{"a", "alpha", 2, 0, 0}, {"low", "beta", 6, -1, 0}, {"b1", "beta", 2, 0, 1}, {"b2", "beta", 2, 0, 0}}, request: ask("alpha", 4, 0),
			final: []types.UID{"b1", "b2"}, initial: []types.UID{"low"}, both: []types.UID{"b1", "b2"},
		},
		"weight zero gives to whoever borrows with a weight": {
			tree: func() *Tree {
				return world(cohortIn("", "team", gpus(12)),
					preempting(queueIn("team", "alpha", gpus(0)), lower, anyOf), weighing(queueIn("team", "beta", gpus(0)), "0"))
			},
			jobs: []running{{"a", "alpha", 8, 0, 0}, {"b1", "beta", 2, 0, 1}, {"b2", "beta", 2, 0, 0}}, request: ask("alpha", 2, 0),
			final: []types.UID{"b1"}, initial: []types.UID{"b1"}, both: []types.UID{"b1"},
		},
		"and takes from nobody": {
			tree: func() *Tree {
				return world(cohortIn("", "team", gpus(12)),
					weighing(preempting(queueIn("team", "alpha", gpus(0)), lower, anyOf), "0"), queueIn("team", "beta", gpus(0)))
			},
			jobs: []running{{"b1", "beta", 6, 0, 1}, {"b2", "beta", 6, 0, 0}}, request: ask("alpha", 2, 0),
		},
		"in nested Cohorts the sides below the lowest one in common are compared": {
			// left has 8 of 12 in all, right 4; alpha alone has none of left's.
			tree: func() *Tree {
				return world(cohortIn("", "team", gpus(12)), cohortIn("team", "left"), cohortIn("team", "right"),
					preempting(queueIn("left", "alpha", gpus(0)), lower, anyOf), queueIn("left", "gamma", gpus(0)), queueIn("right", "beta", gpus(0)))
			},
			jobs: []running{{"g1", "gamma", 4, 0, 0}, {"g2", "gamma", 4, 0, 1}, {"b1", "beta", 2, 0, 0}, {"b2", "beta", 2, 0, 1}}, request: ask("alpha", 2, 0),
			final: []types.UID{"g2"}, initial: []types.UID{"g2"}, both: []types.UID{"g2"},
		},
		"without reclaimWithinCohort nobody gives": {
			tree: func() *Tree {
				return world(cohortIn("", "team", gpus(12)), preempting(queueIn("team", "alpha", gpus(0)), lower, nobody), queueIn("team", "beta", gpus(0)))
			},
			jobs: []running{{"b", "beta", 12, 0, 0}}, request: ask("alpha", 2, 0),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for _, by := range []struct {
				strategies []FairStrategy
				want       []types.UID
			}{{[]FairStrategy{final}, tc.final}, {[]FairStrategy{initial}, tc.initial}, {[]FairStrategy{final, initial}, tc.both}, {nil, tc.both}} {
				tree := tc.tree()
				tree.SetFairSharing(true, by.strategies...)
				run(tree, tc.jobs)
				got, _ := victimsOf(tree, tc.request)
				if diff := cmp.Diff(by.want, got); diff != "" {
					t.Errorf("%v: victims (-want +got):\n%s", by.strategies, diff)
				}
			}
		})
	}
}

func TestWhoHasToGoBeforeOthersToShareFairly(t *testing.T) {
	alpha := preempting(queueIn("team", "alpha", gpus(0)), lower, anyOf)
	inner := preempting(queueIn("mid", "alpha", gpus(0)), lower, anyOf)
	tests := map[string]struct {
		tree    *Tree
		jobs    []running
		request Request
		// first has to go before then.
		first, then types.UID
	}{
		"one of the own queue, so that the own share is smaller": {
			tree:    world(cohortIn("", "team", gpus(8)), alpha, queueIn("team", "beta", gpus(0))),
			jobs:    []running{{"own", "alpha", 2, -1, 0}, {"b1", "beta", 3, 0, 1}, {"b2", "beta", 3, 0, 0}},
			request: ask("alpha", 3, 0), first: "own", then: "b1",
		},
		"one of a queue that is nearer": {
			tree:    world(cohortIn("", "team", gpus(19)), cohortIn("team", "mid"), inner, queueIn("mid", "near", gpus(0)), queueIn("team", "beta", gpus(0))),
			jobs:    []running{{"n1", "near", 4, 0, 1}, {"n2", "near", 4, 0, 0}, {"b1", "beta", 3, 0, 1}, {"b2", "beta", 8, 0, 0}},
			request: ask("alpha", 4, 0), first: "n1", then: "b1",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.tree.SetFairSharing(true, LessThanOrEqualToFinalShare)
			run(tc.tree, tc.jobs)
			a, _ := tc.tree.Assign(tc.request)
			if a == nil {
				t.Fatal("it may preempt nobody")
			}
			p := tc.tree.Preemption(tc.request, a)
			if p.Remove(tc.then) {
				t.Errorf("%s may go before %s", tc.then, tc.first)
			}
			if !p.RemoveAll([]types.UID{tc.then, tc.first}) || !p.Legal() {
				t.Fatalf("%s may not go together with %s", tc.then, tc.first)
			}
			p.Restore(tc.first)
			if p.Legal() {
				t.Errorf("%s may go without %s", tc.then, tc.first)
			}
			p.Restore(tc.then)
			if p.RemoveAll([]types.UID{tc.then}) || len(p.removed()) > 0 {
				t.Errorf("%s may go alone", tc.then)
			}
			if p.RemoveAll([]types.UID{tc.first, "nobody"}) || len(p.removed()) > 0 {
				t.Error("somebody may go who is no candidate")
			}
		})
	}
}

// From how far away a flavor would be borrowed is looked at with all of its
// victims gone, also where they could not go in the order in which they are
// named.
func TestAFlavorIsJudgedWithAllItsVictimsGone(t *testing.T) {
	of := func(a, b int64) []kueue.FlavorQuotas {
		return []kueue.FlavorQuotas{gpusOf("h100", a), gpusOf("a100", b)}
	}
	cell := func(flavor string) FlavorResource { return FlavorResource{flavor, nvidiaGPU} }
	alpha := weighing(preempting(queueIn("mid", "alpha", of(7, 5)...), kueue.PreemptionPolicyLowerOrNewerEqualPriority, anyOf), "0")
	prefer := kueue.PreemptionOverBorrowing
	alpha.Spec.FlavorFungibility = &kueue.FlavorFungibility{WhenCanBorrow: kueue.TryNextFlavor, WhenCanPreempt: kueue.TryNextFlavor, Preference: &prefer}
	three := resource.MustParse("3")
	mid := cohortIn("team", "mid")
	mid.Spec.FairSharing = &kueue.FairSharing{Weight: &three}
	tree := world(cohortIn("", "team"), mid, alpha, queueIn("team", "beta", of(0, 3)...), queueIn("mid", "gamma", of(8, 4)...))
	tree.SetFairSharing(true)
	for _, j := range []struct {
		id       types.UID
		cq       string
		usage    Usage
		priority int32
		at       int64
	}{
		{"j0", "gamma", Usage{cell("h100"): 5}, -1, 13}, {"j1", "gamma", Usage{cell("h100"): 4}, -1, 13}, {"j2", "gamma", Usage{cell("a100"): 1}, -1, 11},
		{"j3", "beta", Usage{cell("h100"): 1}, 3, 10}, {"j5", "beta", Usage{cell("a100"): 4}, 3, 12}, {"j6", "gamma", Usage{cell("h100"): 1}, 0, 10},
		{"j7", "beta", Usage{cell("h100"): 2}, -1, 11}, {"j8", "beta", Usage{cell("a100"): 5}, -1, 11}, {"j10", "alpha", Usage{cell("a100"): 3}, 1, 11},
		{"j11", "alpha", Usage{cell("h100"): 3}, -1, 11}, {"j12", "beta", Usage{cell("a100"): 4}, 2, 13}, {"j14", "alpha", Usage{cell("h100"): 2}, -1, 10},
	} {
		tree.Charge(j.id, j.cq, j.usage, Holder{Priority: j.priority, Created: at(0), Reserved: at(j.at)})
	}
	a, no := tree.Assign(ask("alpha", 7, 2))
	if a == nil || no == nil || a.Flavors[0][nvidiaGPU] != "h100" {
		t.Errorf("it gets %+v (%s), want h100", a, no)
	}
}
