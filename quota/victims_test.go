package quota

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// victimsOf names those that would leave for a request, and says whether there
// is an assignment that waits for them.
func victimsOf(tree *Tree, r Request) ([]types.UID, bool) {
	a, no := tree.Assign(r)
	if a == nil || no == nil {
		return nil, false
	}
	var ids []types.UID
	for _, v := range tree.Preemption(r, a).Victims() {
		ids = append(ids, v.ID)
	}
	slices.Sort(ids)
	return ids, true
}

func TestVictimsAreAsFewAsKueues(t *testing.T) {
	tests := map[string]struct {
		world   func() *Tree
		jobs    []running
		request Request
		want    []types.UID
		// none says that the request only waits, with no right to anything.
		none bool
	}{
		"the lowest priority is spared if it is not enough": {
			world:   func() *Tree { return world(preempting(queueIn("", "alpha", gpus(6)), lower, nobody)) },
			jobs:    []running{{"low", "alpha", 1, -1, 0}, {"mid", "alpha", 2, 0, 0}, {"high", "alpha", 3, 1, 0}},
			request: ask("alpha", 2, 1),
			want:    []types.UID{"mid"},
		},
		"nobody leaves if all together are not enough": {
			world:   func() *Tree { return world(preempting(queueIn("", "alpha", gpus(6)), lower, nobody)) },
			jobs:    []running{{"low", "alpha", 1, -1, 0}, {"mid", "alpha", 2, 0, 0}, {"high", "alpha", 3, 1, 0}},
			request: ask("alpha", 4, 1),
		},
		"what is reclaimed is the lowest priority of the queue above its nominal quota": {
			world: func() *Tree {
				return world(preempting(queueIn("team", "alpha", gpus(4)), nobody, anyOf),
					queueIn("team", "beta", gpus(4)), queueIn("team", "gamma", gpus(4)))
			},
			jobs:    []running{{"within", "beta", 4, -9, 0}, {"b", "gamma", 4, 5, 0}, {"a", "gamma", 4, 7, 0}},
			request: ask("alpha", 4, 0),
			want:    []types.UID{"b"},
		},
		"equal priority is reclaimed with Any": {
			world: func() *Tree {
				return world(preempting(queueIn("team", "alpha", gpus(4)), nobody, anyOf), queueIn("team", "beta", gpus(4)))
			},
			jobs:    []running{{"b", "beta", 8, 0, 0}},
			request: ask("alpha", 4, 0),
			want:    []types.UID{"b"},
		},
		"equal priority is not reclaimed with LowerPriority": {
			world: func() *Tree {
				return world(preempting(queueIn("team", "alpha", gpus(4)), nobody, lower), queueIn("team", "beta", gpus(4)))
			},
			jobs:    []running{{"b", "beta", 8, 0, 0}},
			request: ask("alpha", 4, 0),
		},
		"nobody leaves so that somebody can borrow": {
			world: func() *Tree {
				return world(preempting(queueIn("team", "alpha", gpus(4)), lower, anyOf), queueIn("team", "beta", gpus(4)))
			},
			jobs:    []running{{"b", "beta", 8, 0, 0}},
			request: ask("alpha", 5, 9),
			none:    true,
		},
		"own ones leave rather than that the queue borrows by reclaiming": {
			world: func() *Tree {
				return world(preempting(queueIn("team", "alpha", gpus(4)), lower, anyOf), queueIn("team", "beta", gpus(4)))
			},
			jobs:    []running{{"a", "alpha", 2, 0, 0}, {"b1", "beta", 2, 0, 0}, {"b2", "beta", 4, 0, 1}},
			request: ask("alpha", 4, 9),
			want:    []types.UID{"a", "b2"},
		},
		"with borrowWithinCohort lower priority leaves so that somebody can borrow": {
			world: func() *Tree {
				return world(borrowing(preempting(queueIn("team", "alpha", gpus(4)), nobody, lower), nil),
					queueIn("team", "beta", gpus(2)), queueIn("team", "gamma", gpus(2)))
			},
			jobs:    []running{{"low", "beta", 3, 0, 0}, {"high", "gamma", 3, 9, 0}},
			request: ask("alpha", 5, 5),
			want:    []types.UID{"low"},
		},
		"but not above the threshold": {
			world: func() *Tree {
				return world(borrowing(preempting(queueIn("team", "alpha", gpus(4)), nobody, lower), ptr(int32(-1))),
					queueIn("team", "beta", gpus(2)), queueIn("team", "gamma", gpus(2)))
			},
			jobs:    []running{{"low", "beta", 3, 0, 0}, {"high", "gamma", 3, 9, 0}},
			request: ask("alpha", 5, 5),
		},
		"a guaranteed sub-cohort reclaims from an outsider of higher priority": {
			world: func() *Tree {
				return world(cohortIn("org", "guaranteed", gpus(8)), cohortIn("org", "rest"),
					preempting(queueIn("guaranteed", "alpha", gpus(0)), nobody, anyOf),
					preempting(queueIn("rest", "outsider", gpus(0)), nobody, anyOf))
			},
			jobs:    []running{{"out1", "outsider", 4, 100, 0}, {"out2", "outsider", 4, 100, 1}},
			request: ask("alpha", 4, 0),
			want:    []types.UID{"out2"},
		},
		"an outsider does not reclaim from a guaranteed sub-cohort": {
			world: func() *Tree {
				return world(cohortIn("org", "guaranteed", gpus(8)), cohortIn("org", "rest", gpus(4)),
					queueIn("guaranteed", "alpha", gpus(0)),
					preempting(queueIn("rest", "outsider", gpus(0)), nobody, anyOf), queueIn("rest", "other", gpus(0)))
			},
			jobs:    []running{{"in", "alpha", 8, -100, 0}, {"o", "other", 4, 0, 0}},
			request: ask("outsider", 4, 100),
			none:    true,
		},
		"the quota of those that leave already is enough": {
			world:   func() *Tree { return world(preempting(queueIn("", "alpha", gpus(8)), lower, nobody)) },
			jobs:    []running{{"leaves", "alpha", 4, 0, 0}, {"stays", "alpha", 4, 0, 0}},
			request: ask("alpha", 4, 1),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tree := tc.world()
			run(tree, tc.jobs)
			tree.Leave("leaves")
			got, waits := victimsOf(tree, tc.request)
			if waits == tc.none {
				t.Fatalf("it has a right to preempt: %v", waits)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("victims (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFlavorsAreChosenAsTheClusterQueueSays(t *testing.T) {
	const next, stop = kueue.TryNextFlavor, kueue.MayStopSearch
	fungible := func(whenCanBorrow, whenCanPreempt kueue.FlavorFungibilityPolicy, preference ...kueue.FlavorFungibilityPreference) func() *Tree {
		cq := preempting(queueIn("team", "alpha", gpus(4), gpusOf("a100", 4)), lower, anyOf)
		cq.Spec.FlavorFungibility = &kueue.FlavorFungibility{WhenCanBorrow: whenCanBorrow, WhenCanPreempt: whenCanPreempt}
		if len(preference) > 0 {
			cq.Spec.FlavorFungibility.Preference = &preference[0]
		}
		return func() *Tree { return world(cq, queueIn("team", "beta", gpus(4), gpusOf("a100", 4))) }
	}
	a100 := FlavorResource{"a100", nvidiaGPU}
	type cell map[FlavorResource]int64
	tests := map[string]struct {
		world func() *Tree
		// alpha is used by jobs of lower priority in alpha, beta by such in beta.
		alpha, beta Usage
		gpus        int64
		flavor      string
		mode        Mode
	}{
		"borrowing stops the search":                           {fungible(stop, next), Usage{h100GPUs: 2}, nil, 4, "h100", Fit},
		"Borrow is the old name of that":                       {fungible("Borrow", next), Usage{h100GPUs: 2}, nil, 4, "h100", Fit},
		"borrowing does not stop the search":                   {fungible(next, next), Usage{h100GPUs: 2}, nil, 4, "a100", Fit},
		"borrowing is better than nothing":                     {fungible(next, next), Usage{h100GPUs: 2, a100: 2}, nil, 4, "h100", Fit},
		"preemption stops the search":                          {fungible(stop, stop), Usage{h100GPUs: 4}, Usage{h100GPUs: 4}, 4, "h100", Preempt},
		"Preempt is the old name of that":                      {fungible(stop, "Preempt"), Usage{h100GPUs: 4}, Usage{h100GPUs: 4}, 4, "h100", Preempt},
		"preemption does not stop the search":                  {fungible(stop, next), Usage{h100GPUs: 4}, Usage{h100GPUs: 4}, 4, "a100", Fit},
		"that is the default":                                  {fungible("", ""), Usage{h100GPUs: 4}, Usage{h100GPUs: 4}, 4, "a100", Fit},
		"preemption that finds nobody does not stop it either": {fungible(stop, stop), nil, Usage{h100GPUs: 4}, 5, "a100", Fit},
		"reclaiming is better than preempting one's own":       {fungible(next, next), Usage{h100GPUs: 4, a100: 1}, Usage{h100GPUs: 4, a100: 7}, 3, "a100", Preempt},
		"preemption stops the search before a flavor to borrow": {
			fungible(next, stop), Usage{h100GPUs: 4, a100: 2}, Usage{h100GPUs: 4}, 4, "h100", Preempt},
		"preemption stops the search behind a flavor to borrow, and is what is taken": {
			fungible(next, stop), Usage{h100GPUs: 2, a100: 4}, Usage{a100: 4}, 4, "a100", Preempt},
		"borrowing is better than preemption": {
			fungible(next, next, kueue.BorrowingOverPreemption), Usage{h100GPUs: 4, a100: 2}, Usage{h100GPUs: 4}, 4, "a100", Fit},
		"preemption is better than borrowing": {
			fungible(next, next, kueue.PreemptionOverBorrowing), Usage{h100GPUs: 4, a100: 2}, Usage{h100GPUs: 4}, 4, "h100", Preempt},
		"quota that is about to be free is better than victims": {fungible(next, next), Usage{h100GPUs: 4, a100: 4}, Usage{h100GPUs: 4, a100: 4}, 4, "a100", Preempt},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tree := tc.world()
			for fr, v := range tc.alpha {
				tree.Charge(types.UID("alpha "+fr.Flavor), "alpha", Usage{fr: v}, Holder{Priority: -1})
			}
			for fr, v := range tc.beta {
				tree.Charge(types.UID("beta "+fr.Flavor), "beta", Usage{fr: v}, Holder{Priority: -1})
			}
			if name == "quota that is about to be free is better than victims" {
				tree.Leave("alpha a100")
			}
			a, _ := tree.Assign(ask("alpha", tc.gpus, 0))
			if a == nil {
				t.Fatal("no assignment")
			}
			want, got := cell{{tc.flavor, nvidiaGPU}: tc.gpus}, cell(a.Usage)
			if diff := cmp.Diff(want, got); diff != "" || a.Mode != tc.mode {
				t.Errorf("mode %d, want %d; usage (-want +got):\n%s", a.Mode, tc.mode, diff)
			}
		})
	}
}

func TestVictimsWithFairSharing(t *testing.T) {
	weighted := func(cq *kueue.ClusterQueue, w string) *kueue.ClusterQueue {
		q := resource.MustParse(w)
		cq.Spec.FairSharing = &kueue.FairSharing{Weight: &q}
		return cq
	}
	three := func(weight string) *Tree {
		return world(
			weighted(preempting(queueIn("team", "alpha", gpus(2)), lower, anyOf), weight),
			preempting(queueIn("team", "beta", gpus(2)), lower, anyOf),
			preempting(queueIn("team", "gamma", gpus(8)), lower, anyOf))
	}
	tests := map[string]struct {
		tree    *Tree
		jobs    []running
		request Request
		want    []Candidate
	}{
		"the queue with the larger share gives, down to an equal share": {
			tree: three("1"),
			jobs: []running{{"b1", "beta", 2, 0, 0}, {"b2", "beta", 2, 0, 1}, {"b3", "beta", 2, 0, 2}, {"b4", "beta", 2, 0, 3},
				{"a1", "alpha", 2, 0, 0}, {"a2", "alpha", 2, 0, 1}},
			request: ask("alpha", 2, 0),
			want:    []Candidate{{ID: "b4", ClusterQueue: "beta", Reason: kueue.InCohortFairSharingReason}},
		},
		"nobody gives to a larger share": {
			tree: three("1"),
			jobs: []running{{"b1", "beta", 2, 0, 0}, {"b2", "beta", 2, 0, 1}, {"b3", "beta", 2, 0, 2},
				{"a1", "alpha", 2, 0, 0}, {"a2", "alpha", 2, 0, 1}, {"a3", "alpha", 2, 0, 2}},
			request: ask("alpha", 2, 0),
		},
		"but to one of more weight": {
			tree: three("4"),
			jobs: []running{{"b1", "beta", 2, 0, 0}, {"b2", "beta", 2, 0, 1}, {"b3", "beta", 2, 0, 2},
				{"a1", "alpha", 2, 0, 0}, {"a2", "alpha", 2, 0, 1}, {"a3", "alpha", 2, 0, 2}},
			request: ask("alpha", 2, 0),
			want:    []Candidate{{ID: "b3", ClusterQueue: "beta", Reason: kueue.InCohortFairSharingReason}},
		},
		"whoever borrows with weight zero gives first": {
			tree: world(weighted(queueIn("team", "alpha", gpus(0)), "0"), queueIn("team", "beta", gpus(0)),
				preempting(queueIn("team", "gamma", gpus(8)), lower, anyOf)),
			jobs:    []running{{"a", "alpha", 2, 9, 0}, {"b", "beta", 6, 0, 0}},
			request: ask("gamma", 2, 0),
			want:    []Candidate{{ID: "a", ClusterQueue: "alpha", Reason: kueue.InCohortReclamationReason}},
		},
		"a queue that borrows nothing is left alone": {
			tree: three("1"),
			jobs: []running{{"g", "gamma", 8, -9, 0}, {"b", "beta", 3, 0, 0}, {"a", "alpha", 1, 0, 0}},
			// gamma has its 8, beta borrows 1 of alpha's.
			request: ask("alpha", 1, 0),
			want:    []Candidate{{ID: "b", ClusterQueue: "beta", Reason: kueue.InCohortReclamationReason}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.tree.SetFairSharing(true)
			run(tc.tree, tc.jobs)
			fill := 12 - func() (sum int64) {
				for _, j := range tc.jobs {
					sum += j.gpus
				}
				return sum
			}()
			// What is left is used by gamma, within its quota.
			if tc.jobs[len(tc.jobs)-1].cq == "alpha" && fill > 0 {
				tc.tree.Charge("g0", "gamma", Usage{h100GPUs: fill}, Holder{})
			}
			a, no := tc.tree.Assign(tc.request)
			if no == nil {
				t.Fatalf("it fits: %+v", a)
			}
			var got []Candidate
			if a != nil {
				p := tc.tree.Preemption(tc.request, a)
				got = p.Victims()
				for _, v := range got {
					if !p.Remove(v.ID) {
						t.Errorf("%s is a victim, and may not be removed", v.ID)
					}
				}
				if len(got) > 0 && !p.Fits() {
					t.Error("it does not fit without the victims")
				}
			}
			for i := range got {
				got[i].Holder = Holder{}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("victims (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTheOracleSaysWhatTheSearchFinds compares the short cut that chooses
// flavors with the search for victims.
func TestTheOracleSaysWhatTheSearchFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := newModelTree()
		for _, c := range modelCohorts[:3] {
			obj := drawCohort(t, c)
			obj.Spec.ParentName = ""
			if c != "c0" {
				obj.Spec.ParentName = "c0"
			}
			tree.SetCohort(obj)
		}
		for _, q := range modelQueues {
			tree.SetClusterQueue(drawQueue(t, q))
		}
		for i := range rapid.IntRange(1, 12).Draw(t, "jobs") {
			tree.Charge(types.UID(rune('a'+i)), rapid.SampledFrom(modelQueues).Draw(t, "queue"),
				Usage{modelCells[0]: rapid.Int64Range(1, 6).Draw(t, "GPUs")},
				Holder{Priority: rapid.Int32Range(-2, 2).Draw(t, "priority"), Reserved: at(rapid.Int64Range(0, 3).Draw(t, "reserved"))})
		}
		r := drawRequest(t)
		q := tree.clusterQueues[r.Queue.Name]
		fr, need := modelCells[0], rapid.Int64Range(1, 10).Draw(t, "need")
		if !q.cells[fr].available(afterwards).less(amountOf(need)) {
			return
		}
		s := &search{tree: tree, queue: q, request: &r}
		// The search with the fair sharing turned off is Kueue's classical one.
		want := s.withFairVictims(fr, need, 7)
		got := s.withVictims(fr, need, 7, true)
		if want != got {
			t.Fatalf("the oracle says %+v, the search %+v", got, want)
		}
	})
}

func TestJobsThatCameSinceAreSeen(t *testing.T) {
	tree := world(preempting(queueIn("", "alpha", gpus(4), gpusOf("a100", 4)), lower, nobody))
	tree.Charge("high", "alpha", Usage{h100GPUs: 4}, Holder{Priority: 9})
	tree.Charge("half", "alpha", Usage{{"a100", nvidiaGPU}: 2}, Holder{Priority: 9})
	if a, _ := tree.Assign(ask("alpha", 3, 0)); a == nil || a.Flavors[0][nvidiaGPU] != "h100" {
		t.Fatalf("nobody may be preempted, and it is not the first flavor: %+v", a)
	}
	tree.Charge("low", "alpha", Usage{{"a100", nvidiaGPU}: 2}, Holder{Priority: -1})
	if a, _ := tree.Assign(ask("alpha", 2, 0)); a == nil || a.Flavors[0][nvidiaGPU] != "a100" {
		t.Errorf("the flavor whose job may be preempted is not chosen: %+v", a)
	}
}
