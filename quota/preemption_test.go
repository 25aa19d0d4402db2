package quota

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const (
	nobody  = kueue.PreemptionPolicyNever
	lower   = kueue.PreemptionPolicyLowerPriority
	newer   = kueue.PreemptionPolicyLowerOrNewerEqualPriority
	anyOf   = kueue.PreemptionPolicyAny
	inQueue = kueue.InClusterQueueReason
	inTeam  = kueue.InCohortReclamationReason
	inLoan  = kueue.InCohortReclaimWhileBorrowingReason
)

// running is a job with GPUs of flavor h100 in a test of preemption. Those with
// a higher number in at were created, and got their quota, later.
type running struct {
	id       types.UID
	cq       string
	gpus     int64
	priority int32
	at       int64
}

func run(tree *Tree, jobs []running) {
	for _, j := range jobs {
		when := time.Unix(j.at, 0)
		tree.Charge(j.id, j.cq, Usage{h100GPUs: j.gpus}, Holder{Priority: j.priority, Created: when, Reserved: when})
	}
}

func TestWhoMayBePreempted(t *testing.T) {
	type cand struct {
		id     types.UID
		reason string
	}
	tests := map[string]struct {
		world   func() *Tree
		jobs    []running
		request Request
		want    []cand
	}{
		"nobody without a policy": {
			world:   func() *Tree { return world(queueIn("", "alpha", gpus(8))) },
			jobs:    []running{{"a", "alpha", 8, 0, 0}},
			request: ask("alpha", 8, 10),
		},
		"lower priority first, then the newer charge, then the UID": {
			world: func() *Tree { return world(preempting(queueIn("", "alpha", gpus(8)), lower, nobody)) },
			jobs: []running{
				{"b", "alpha", 2, 1, 5}, {"a", "alpha", 2, 1, 5}, {"old", "alpha", 2, 0, 1}, {"new", "alpha", 1, 0, 2}, {"same", "alpha", 1, 2, 0},
			},
			request: ask("alpha", 2, 2),
			want:    []cand{{"new", inQueue}, {"old", inQueue}, {"a", inQueue}, {"b", inQueue}},
		},
		"newer ones of equal priority": {
			world:   func() *Tree { return world(preempting(queueIn("", "alpha", gpus(8)), newer, nobody)) },
			jobs:    []running{{"older", "alpha", 4, 2, 999}, {"newer", "alpha", 4, 2, 1001}},
			request: ask("alpha", 2, 2),
			want:    []cand{{"newer", inQueue}},
		},
		"those of others' queues before those of the own": {
			world: func() *Tree {
				return world(preempting(queueIn("team", "alpha", gpus(8)), lower, anyOf), queueIn("team", "beta", gpus(8)))
			},
			jobs:    []running{{"mine", "alpha", 2, 0, 0}, {"theirs", "beta", 9, 0, 0}, {"more", "beta", 5, 9, 0}},
			request: ask("alpha", 6, 1),
			want:    []cand{{"theirs", inTeam}, {"more", inTeam}, {"mine", inQueue}},
		},
		"reclaiming from lower priority only": {
			world: func() *Tree {
				return world(preempting(queueIn("team", "alpha", gpus(8)), nobody, lower), queueIn("team", "beta", gpus(8)))
			},
			jobs:    []running{{"less", "beta", 8, 0, 0}, {"same", "beta", 8, 1, 0}},
			request: ask("alpha", 6, 1),
			want:    []cand{{"less", inTeam}},
		},
		"reclaiming from any priority": {
			world: func() *Tree {
				return world(preempting(queueIn("team", "alpha", gpus(8)), nobody, anyOf), queueIn("team", "beta", gpus(8)))
			},
			jobs:    []running{{"less", "beta", 8, 0, 0}, {"same", "beta", 8, 1, 0}},
			request: ask("alpha", 6, 1),
			want:    []cand{{"less", inTeam}, {"same", inTeam}},
		},
		"nobody in a queue within its nominal quota, whatever his priority": {
			world: func() *Tree {
				return world(preempting(queueIn("team", "alpha", gpus(8)), nobody, anyOf),
					queueIn("team", "beta", gpus(8)), queueIn("team", "gamma", gpus(8)))
			},
			jobs:    []running{{"within", "beta", 8, -100, 0}, {"beyond", "gamma", 16, 100, 0}},
			request: ask("alpha", 6, 1),
			want:    []cand{{"beyond", inTeam}},
		},
		"nobody who uses another flavor": {
			world: func() *Tree {
				return world(preempting(queueIn("", "alpha", gpus(8), gpusOf("a100", 8)), lower, nobody))
			},
			jobs: []running{{"a", "alpha", 8, 0, 0}},
			request: func() Request {
				r := ask("alpha", 8, 1)
				return r
			}(),
			want: nil,
		},
		"nobody who is leaving": {
			world:   func() *Tree { return world(preempting(queueIn("", "alpha", gpus(8)), lower, nobody)) },
			jobs:    []running{{"leaves", "alpha", 4, 0, 0}, {"stays", "alpha", 4, 0, 0}},
			request: ask("alpha", 8, 1),
			want:    []cand{{"stays", inQueue}},
		},
		"no reclaiming to borrow without borrowWithinCohort": {
			world: func() *Tree {
				return world(preempting(queueIn("team", "alpha", gpus(4)), nobody, anyOf), queueIn("team", "beta", gpus(8)))
			},
			jobs:    []running{{"a", "alpha", 4, 0, 0}, {"b", "beta", 8, 0, 0}},
			request: ask("alpha", 4, 1),
		},
		"reclaiming to borrow from lower priority": {
			world: func() *Tree {
				return world(borrowing(preempting(queueIn("team", "alpha", gpus(4)), nobody, anyOf), nil),
					queueIn("team", "beta", gpus(2)), queueIn("team", "gamma", gpus(4)))
			},
			jobs:    []running{{"a", "alpha", 4, 0, 0}, {"less", "beta", 3, 0, 0}, {"same", "beta", 3, 1, 0}},
			request: ask("alpha", 4, 1),
			want:    []cand{{"less", inLoan}, {"same", inTeam}},
		},
		"reclaiming to borrow up to a priority": {
			world: func() *Tree {
				return world(borrowing(preempting(queueIn("team", "alpha", gpus(4)), nobody, anyOf), ptr(int32(-5))),
					queueIn("team", "beta", gpus(2)), queueIn("team", "gamma", gpus(4)))
			},
			jobs:    []running{{"a", "alpha", 4, 0, 0}, {"least", "beta", 3, -5, 0}, {"less", "beta", 3, 0, 0}},
			request: ask("alpha", 4, 1),
			want:    []cand{{"least", inLoan}, {"less", inTeam}},
		},
		"a guaranteed sub-cohort reclaims from outside before anything else": {
			world: func() *Tree {
				return world(cohortIn("org", "guaranteed", gpus(8)), cohortIn("org", "rest"),
					preempting(queueIn("guaranteed", "alpha", gpus(0)), lower, anyOf),
					queueIn("guaranteed", "sister", gpus(0)),
					queueIn("rest", "outsider", gpus(2)))
			},
			jobs:    []running{{"sister", "sister", 2, 0, 0}, {"outsider", "outsider", 8, 100, 0}},
			request: ask("alpha", 4, 1),
			want:    []cand{{"outsider", inTeam}},
		},
		"a sub-cohort within its quota is not touched from outside, though its member borrows": {
			world: func() *Tree {
				return world(cohortIn("org", "left", gpus(8)), cohortIn("org", "right", gpus(8)),
					preempting(queueIn("left", "alpha", gpus(0)), nobody, anyOf),
					queueIn("left", "sister", gpus(0)),
					queueIn("right", "cousin", gpus(0)))
			},
			jobs:    []running{{"sister", "sister", 8, 0, 0}, {"cousin", "cousin", 8, 0, 0}},
			request: ask("alpha", 4, 1),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tree := tc.world()
			run(tree, tc.jobs)
			tree.Leave("leaves")
			a, _ := tree.Assign(tc.request)
			if a == nil {
				if tc.want != nil {
					t.Fatal("no assignment")
				}
				return
			}
			var got []cand
			for _, c := range tree.Preemption(tc.request, a).Candidates() {
				got = append(got, cand{c.ID, c.Reason})
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(cand{})); diff != "" {
				t.Errorf("candidates (-want +got):\n%s", diff)
			}
		})
	}
}

func ptr[T any](v T) *T { return &v }

func TestAQueueIsNotBroughtBelowItsNominalQuota(t *testing.T) {
	tree := world(preempting(queueIn("team", "alpha", gpus(8)), nobody, anyOf), queueIn("team", "beta", gpus(8)))
	run(tree, []running{{"one", "beta", 3, 0, 0}, {"two", "beta", 6, 0, 1}, {"three", "beta", 7, 0, 2}})
	r := ask("alpha", 8, 0)
	a, _ := tree.Assign(r)
	p := tree.Preemption(r, a)
	if !p.Remove("two") || p.Fits() {
		t.Fatal("beta is 8 above its quota: a job of 6 may leave, and is not enough")
	}
	if !p.Remove("three") || !p.Fits() {
		t.Fatal("beta is 2 above its quota then: another may leave, and that is enough")
	}
	if p.Remove("one") {
		t.Error("a job of a queue within its nominal quota was taken")
	}
	p.Restore("two")
	if p.Fits() {
		t.Error("it fits with a job of 6 back")
	}
	if !p.Remove("one") {
		t.Error("beta is 1 above its quota: a job of 3 may leave")
	}
}

func TestTheOrderOfRemovalsDoesNotMatter(t *testing.T) {
	tree := world(preempting(queueIn("team", "alpha", gpus(8)), nobody, anyOf), queueIn("team", "beta", gpus(8)))
	run(tree, []running{{"small", "beta", 3, 0, 2}, {"large", "beta", 10, 0, 1}})
	r := ask("alpha", 8, 0)
	a, _ := tree.Assign(r)
	p := tree.Preemption(r, a)
	// Kueue takes the newer one first, and beta stays above its quota by it.
	if !p.Remove("large") || !p.Remove("small") {
		t.Error("what is legal in Kueue's order is refused in another")
	}
}

func TestAPreemptionDoesNotChangeTheTree(t *testing.T) {
	tree := world(preempting(queueIn("", "alpha", gpus(8)), lower, nobody))
	run(tree, []running{{"a", "alpha", 8, 0, 0}})
	r := ask("alpha", 8, 1)
	a, _ := tree.Assign(r)
	p := tree.Preemption(r, a)
	p.Remove("a")
	if !p.Fits() {
		t.Fatal("it does not fit without the only other job")
	}
	if _, no := tree.Assign(r); no == nil {
		t.Error("the Tree has lost a job to the search")
	}
	tree.Charge("b", "alpha", Usage{h100GPUs: 8}, Holder{})
	if !p.Fits() {
		t.Error("the search sees what came to the Tree afterwards")
	}
}

func TestACohortIsNotBroughtBelowItsQuota(t *testing.T) {
	// cousin has nothing of its own; its Cohort has 6 of the 10 that it uses.
	tree := world(cohortIn("org", "left", gpus(8)), cohortIn("org", "right", gpus(6)),
		preempting(queueIn("left", "alpha", gpus(0)), nobody, anyOf), queueIn("right", "cousin", gpus(0)))
	run(tree, []running{{"one", "cousin", 4, 0, 0}, {"two", "cousin", 4, 0, 1}, {"three", "cousin", 2, 0, 2}})
	r := ask("alpha", 8, 0)
	a, _ := tree.Assign(r)
	p := tree.Preemption(r, a)
	if !p.Remove("two") {
		t.Fatal("the Cohort is 4 above its quota: a job of 4 may leave")
	}
	if p.Remove("one") {
		t.Error("a job of a Cohort within its quota was taken, because its ClusterQueue is above its own")
	}
}

func TestSomeLeaveOnlyForARequestThatDoesNotBorrow(t *testing.T) {
	tree := world(borrowing(preempting(queueIn("team", "alpha", gpus(4)), lower, anyOf), ptr(int32(-1))),
		queueIn("team", "beta", gpus(2)), queueIn("team", "gamma", gpus(2)))
	run(tree, []running{{"mine", "alpha", 2, 0, 0}, {"theirs", "beta", 6, 5, 0}})
	r := ask("alpha", 4, 1)
	a, _ := tree.Assign(r)
	p := tree.Preemption(r, a)
	if !p.Remove("theirs") || p.Fits() {
		t.Error("a job above the priority threshold leaves so that alpha can borrow")
	}
	if !p.Remove("mine") || !p.Fits() {
		t.Error("it does not leave so that alpha has its own 4")
	}
}
