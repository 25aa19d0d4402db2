package quota

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
)

// holding is a charge of GPUs of flavor h100 in a test of cohorts.
type holding struct {
	cq   string
	gpus int64
}

func TestQuotaIsBorrowedInACohort(t *testing.T) {
	// level -1 is a refusal with the given class and text.
	const no = -1
	tests := map[string]struct {
		world   func() *Tree
		use     []holding
		request Request
		level   int
		class   reason.Class
		text    string
	}{
		"own quota is not borrowed": {
			world:   func() *Tree { return world(queueIn("team", "alpha", gpus(8)), queueIn("team", "beta", gpus(8))) },
			request: ask("alpha", 8, 0),
		},
		"what a neighbour leaves free can be borrowed": {
			world:   func() *Tree { return world(queueIn("team", "alpha", gpus(8)), queueIn("team", "beta", gpus(8))) },
			use:     []holding{{"beta", 3}},
			request: ask("alpha", 13, 0),
			level:   1,
		},
		"not more than it leaves free": {
			world:   func() *Tree { return world(queueIn("team", "alpha", gpus(8)), queueIn("team", "beta", gpus(8))) },
			use:     []holding{{"beta", 3}},
			request: ask("alpha", 14, 0),
			level:   no, class: reason.WaitingForQuota,
			text: "needs 14 GPUs in queue alpha, 8 of 8 free, 5 more can be borrowed from cohort team",
		},
		"what is borrowed is not free for its owner": {
			world:   func() *Tree { return world(queueIn("team", "alpha", gpus(8)), queueIn("team", "beta", gpus(8))) },
			use:     []holding{{"beta", 13}},
			request: ask("alpha", 4, 0),
			level:   no, class: reason.WaitingForQuota,
			text: "needs 4 GPUs in queue alpha, 3 of 8 free, 5 lent in cohort team",
		},
		"more than the whole cohort has": {
			world:   func() *Tree { return world(queueIn("team", "alpha", gpus(8)), queueIn("team", "beta", gpus(8))) },
			request: ask("alpha", 17, 0),
			level:   no, class: reason.ExceedsMaxQuota,
			text: "needs 17 GPUs in queue alpha, the quota is 8, at most 8 more can be borrowed from cohort team",
		},
		"the borrowing limit holds with a free cohort": {
			world: func() *Tree {
				return world(queueIn("team", "alpha", gpus(50, borrow(50))), queueIn("team", "beta", gpus(50, borrow(10))))
			},
			request: ask("beta", 61, 0),
			level:   no, class: reason.ExceedsMaxQuota,
			text: "needs 61 GPUs in queue beta, the quota is 50, at most 10 more can be borrowed from cohort team",
		},
		"alpha has 45 of 100 and beta waits for 56": {
			world: func() *Tree {
				return world(queueIn("team", "alpha", gpus(50, borrow(50))), queueIn("team", "beta", gpus(50, borrow(10))))
			},
			use:     []holding{{"alpha", 45}},
			request: ask("beta", 56, 0),
			level:   no, class: reason.WaitingForQuota,
			text: "needs 56 GPUs in queue beta, 50 of 50 free, 5 more can be borrowed from cohort team (limit 10)",
		},
		"alpha has 45 of 100 and beta takes 55, borrowing 5": {
			world: func() *Tree {
				return world(queueIn("team", "alpha", gpus(50, borrow(50))), queueIn("team", "beta", gpus(50, borrow(10))))
			},
			use:     []holding{{"alpha", 45}},
			request: ask("beta", 55, 0),
			level:   1,
		},
		"the borrowing limit is used up": {
			world: func() *Tree {
				return world(queueIn("team", "alpha", gpus(8, borrow(2))), queueIn("team", "beta", gpus(8)))
			},
			use:     []holding{{"alpha", 10}},
			request: ask("alpha", 1, 0),
			level:   no, class: reason.WaitingForQuota,
			text: "needs 1 GPU in queue alpha, 0 of 8 free, none can be borrowed from cohort team (limit 2)",
		},
		"a lending limit keeps the rest at home": {
			world: func() *Tree {
				return world(queueIn("team", "alpha", gpus(8)), queueIn("team", "beta", gpus(8, lend(2))))
			},
			request: ask("alpha", 11, 0),
			level:   no, class: reason.ExceedsMaxQuota,
			text: "needs 11 GPUs in queue alpha, the quota is 8, at most 2 more can be borrowed from cohort team",
		},
		"what is kept at home is used first": {
			world: func() *Tree {
				return world(queueIn("team", "alpha", gpus(8)), queueIn("team", "beta", gpus(8, lend(2))))
			},
			use:     []holding{{"beta", 6}},
			request: ask("alpha", 10, 0),
			level:   1,
		},
		"a lending limit of nothing": {
			world: func() *Tree {
				return world(queueIn("team", "alpha", gpus(8)), queueIn("team", "beta", gpus(8, lend(0))))
			},
			request: ask("alpha", 9, 0),
			level:   no, class: reason.ExceedsMaxQuota,
			text: "needs 9 GPUs in queue alpha, the quota is 8",
		},
		"a Cohort's own quota is a pool of its members": {
			world: func() *Tree {
				return world(cohortIn("", "team", gpus(10)), queueIn("team", "alpha", gpus(0)), queueIn("team", "beta", gpus(0)))
			},
			use:     []holding{{"beta", 4}},
			request: ask("alpha", 6, 0),
			level:   1,
		},
		"a ClusterQueue does not borrow what it does not list": {
			world: func() *Tree {
				return world(queueIn("team", "alpha", gpusOf("a100", 8)), queueIn("team", "beta", gpus(8)))
			},
			use:     []holding{{"alpha", 1}},
			request: ask("alpha", 9, 0),
			level:   no, class: reason.ExceedsMaxQuota,
			text: "needs 9 GPUs in queue alpha, the quota is 8",
		},
		"quota of a cousin is one level further away": {
			world: func() *Tree {
				return world(cohortIn("org", "team"), cohortIn("org", "lab"),
					queueIn("team", "alpha", gpus(4)), queueIn("team", "beta", gpus(4)), queueIn("lab", "gamma", gpus(4)))
			},
			request: ask("alpha", 9, 0),
			level:   2,
		},
		"quota of a sister is taken before that of a cousin": {
			world: func() *Tree {
				return world(cohortIn("org", "team"), cohortIn("org", "lab"),
					queueIn("team", "alpha", gpus(4)), queueIn("team", "beta", gpus(4)), queueIn("lab", "gamma", gpus(4)))
			},
			request: ask("alpha", 8, 0),
			level:   1,
		},
		"a Cohort's borrowing limit binds its members together": {
			world: func() *Tree {
				return world(cohortIn("org", "team", gpus(0, borrow(2))), cohortIn("org", "lab"),
					queueIn("team", "alpha", gpus(4)), queueIn("team", "beta", gpus(4)), queueIn("lab", "gamma", gpus(9)))
			},
			use:     []holding{{"beta", 5}},
			request: ask("alpha", 6, 0),
			level:   no, class: reason.WaitingForQuota,
			text: "needs 6 GPUs in queue alpha, 4 of 4 free, 1 more can be borrowed from cohort team",
		},
		"a Cohort's lending limit keeps what its members leave free": {
			world: func() *Tree {
				return world(cohortIn("org", "team", gpus(0, lend(1))), cohortIn("org", "lab"),
					queueIn("team", "alpha", gpus(4)), queueIn("team", "beta", gpus(4)), queueIn("lab", "gamma", gpus(4)))
			},
			request: ask("gamma", 6, 0),
			level:   no, class: reason.ExceedsMaxQuota,
			text: "needs 6 GPUs in queue gamma, the quota is 4, at most 1 more can be borrowed from cohort lab",
		},
		"limits without a cohort mean nothing": {
			world:   func() *Tree { return world(queueIn("", "alpha", gpus(8, borrow(4), lend(2)))) },
			request: ask("alpha", 8, 0),
		},
		"a Cohort without an object joins those that name it": {
			world: func() *Tree {
				return world(cohortIn("org", "team"), queueIn("team", "alpha", gpus(4)), queueIn("org", "beta", gpus(4)))
			},
			request: ask("alpha", 8, 0),
			level:   2,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tree := tc.world()
			for _, u := range tc.use {
				tree.Charge(types.UID(u.cq), u.cq, Usage{h100GPUs: u.gpus}, Holder{})
			}
			a, why := tree.Assign(tc.request)
			if tc.level == no {
				if diff := cmp.Diff(&reason.Reason{Class: tc.class, Message: tc.text}, why); diff != "" {
					t.Errorf("reason (-want +got):\n%s", diff)
				}
				return
			}
			if why != nil {
				t.Fatalf("refused: %s: %s", why.Class, why)
			}
			if a.Mode != Fit || a.Borrows != tc.level {
				t.Errorf("mode %d, borrows at level %d; want fit at level %d", a.Mode, a.Borrows, tc.level)
			}
		})
	}
}

func TestTheTreeOfAClusterQueueHasAName(t *testing.T) {
	tree := world(cohortIn("org", "team"), queueIn("team", "alpha", gpus(1)), queueIn("", "beta", gpus(1)), queueIn("org", "gamma", gpus(1)))
	got := map[string]string{}
	for _, cq := range []string{"alpha", "beta", "gamma", "unknown"} {
		got[cq] = tree.Root(cq)
	}
	want := map[string]string{"alpha": "cohort/org", "beta": "cq/beta", "gamma": "cohort/org", "unknown": "cq/unknown"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("roots (-want +got):\n%s", diff)
	}
}

func TestACycleOfCohortsAdmitsNothingUntilItIsBroken(t *testing.T) {
	admits := func(tree *Tree) map[string]bool {
		out := map[string]bool{}
		for _, cq := range []string{"alpha", "beta", "gamma"} {
			_, no := tree.Assign(ask(cq, 1, 0))
			out[cq] = no == nil
		}
		return out
	}
	all := map[string]bool{"alpha": true, "beta": true, "gamma": true}
	closed := map[string]bool{"alpha": false, "beta": false, "gamma": true}
	tree := world(cohortIn("b", "a"), cohortIn("", "b"), queueIn("a", "alpha", gpus(4)),
		cohortIn("b", "below"), queueIn("below", "beta", gpus(4)), queueIn("other", "gamma", gpus(4)))

	steps := []struct {
		name string
		do   func()
		want map[string]bool
	}{
		{"no cycle", func() {}, all},
		{"b names a, whose parent it is", func() { tree.SetCohort(cohortIn("a", "b")) }, closed},
		{"the same again", func() { tree.SetCohort(cohortIn("a", "b")) }, closed},
		{"b names another parent", func() { tree.SetCohort(cohortIn("top", "b")) }, all},
		{"b names itself", func() { tree.SetCohort(cohortIn("b", "b")) }, closed},
		{"b is deleted", func() { tree.DeleteCohort("b") }, all},
		{"a cycle of three", func() {
			tree.SetCohort(cohortIn("c", "b"))
			tree.SetCohort(cohortIn("a", "c"))
		}, closed},
		{"the third is deleted", func() { tree.DeleteCohort("c") }, all},
	}
	for _, s := range steps {
		s.do()
		if diff := cmp.Diff(s.want, admits(tree)); diff != "" {
			t.Fatalf("%s: who is admitted (-want +got):\n%s", s.name, diff)
		}
	}
	if a, no := tree.Assign(ask("alpha", 8, 0)); no != nil || a.Borrows != 2 {
		t.Errorf("after the cycle alpha cannot borrow from beta: %v, %v", a, no)
	}

	tree.SetCohort(cohortIn("a", "b"))
	c, _ := tree.Status("alpha")
	want := "Can't admit new workloads: its cohorts form a cycle (a -> b -> a)"
	if c.Message != want || c.Reason != kueue.ClusterQueueActiveReasonUnknown {
		t.Errorf("status in a cycle: %s: %q, want %q", c.Reason, c.Message, want)
	}
}

func TestChangesUnderRunningJobs(t *testing.T) {
	start := func() *Tree {
		tree := world(queueIn("team", "alpha", gpus(8)), queueIn("team", "beta", gpus(8)), queueIn("lab", "gamma", gpus(8)))
		tree.Charge("a", "alpha", Usage{h100GPUs: 12}, Holder{})
		return tree
	}
	tests := map[string]struct {
		change func(*Tree)
		// free is how many GPUs each queue can still get.
		free map[string]int64
	}{
		"nothing has changed": {
			change: func(*Tree) {},
			free:   map[string]int64{"alpha": 4, "beta": 4, "gamma": 8},
		},
		"the quota is lowered below use": {
			change: func(t *Tree) { t.SetClusterQueue(queueIn("team", "alpha", gpus(2))) },
			free:   map[string]int64{"alpha": 0, "beta": 0, "gamma": 8},
		},
		"a queue that borrows moves to another cohort, and takes its debt along": {
			change: func(t *Tree) { t.SetClusterQueue(queueIn("lab", "alpha", gpus(8))) },
			free:   map[string]int64{"alpha": 4, "beta": 8, "gamma": 4},
		},
		"a queue that borrows leaves the cohort": {
			change: func(t *Tree) { t.SetClusterQueue(queueIn("", "alpha", gpus(8))) },
			free:   map[string]int64{"alpha": 0, "beta": 8, "gamma": 8},
		},
		"a lender leaves the cohort": {
			change: func(t *Tree) { t.SetClusterQueue(queueIn("lab", "beta", gpus(8))) },
			free:   map[string]int64{"alpha": 0, "beta": 16, "gamma": 16},
		},
		"the flavor in use is taken out of the queue": {
			change: func(t *Tree) { t.SetClusterQueue(queueIn("team", "alpha", gpusOf("a100", 8))) },
			free:   map[string]int64{"alpha": 0, "beta": 0, "gamma": 8},
		},
		"the queue is deleted under its job": {
			change: func(t *Tree) { t.DeleteClusterQueue("alpha") },
			free:   map[string]int64{"alpha": 0, "beta": 4, "gamma": 8},
		},
		"the deleted queue's job has left": {
			change: func(t *Tree) { t.DeleteClusterQueue("alpha"); t.Release("a") },
			free:   map[string]int64{"alpha": 0, "beta": 8, "gamma": 8},
		},
		"a Cohort object with a pool of its own comes": {
			change: func(t *Tree) { t.SetCohort(cohortIn("", "team", gpus(3))) },
			free:   map[string]int64{"alpha": 7, "beta": 7, "gamma": 8},
		},
		"and goes": {
			change: func(t *Tree) { t.SetCohort(cohortIn("", "team", gpus(3))); t.DeleteCohort("team") },
			free:   map[string]int64{"alpha": 4, "beta": 4, "gamma": 8},
		},
		"a Cohort joins two": {
			change: func(t *Tree) { t.SetCohort(cohortIn("lab", "team")) },
			free:   map[string]int64{"alpha": 12, "beta": 12, "gamma": 12},
		},
		"negative quota and limits count as zero": {
			change: func(t *Tree) { t.SetClusterQueue(queueIn("team", "beta", gpus(-5, borrow(-1), lend(-1)))) },
			free:   map[string]int64{"alpha": 0, "beta": 0, "gamma": 8},
		},
		"absurd quota does not wrap around": {
			change: func(t *Tree) {
				t.SetClusterQueue(queueIn("team", "beta", gpus(1<<62)))
				t.SetClusterQueue(queueIn("team", "more", gpus(1<<62)))
				t.SetClusterQueue(queueIn("team", "yet more", gpus(1<<62)))
			},
			free: map[string]int64{"alpha": 1<<63 - 1, "beta": 1<<63 - 1, "gamma": 8},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tree := start()
			tc.change(tree)
			got := map[string]int64{}
			for cq := range tc.free {
				got[cq] = freeIn(tree, cq)
			}
			if diff := cmp.Diff(tc.free, got); diff != "" {
				t.Errorf("free GPUs (-want +got):\n%s", diff)
			}
		})
	}
}

// freeIn is the largest request for GPUs of flavor h100 that a queue takes now.
func freeIn(tree *Tree, cq string) int64 {
	low, high := int64(0), int64(1<<63-1)
	for low < high {
		mid := low + (high-low)/2 + 1
		a, no := tree.Assign(ask(cq, mid, 0))
		if no == nil && a.Flavors[0][nvidiaGPU] == "h100" {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}
