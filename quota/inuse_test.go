package quota

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestStoppedQueuesAreDrained(t *testing.T) {
	stop := func(t *Tree, cq string, p kueue.StopPolicy) {
		obj := queueIn("", cq, gpus(8))
		obj.Spec.StopPolicy = &p
		t.SetClusterQueue(obj)
	}
	stopLocal := func(t *Tree, name string, p kueue.StopPolicy) {
		obj := localQ(types.NamespacedName{Namespace: "nlp", Name: name}, name)
		obj.Spec.StopPolicy = &p
		t.SetLocalQueue(obj)
	}
	tests := map[string]struct {
		do   func(*Tree)
		want []Drained
	}{
		"nothing is stopped": {do: func(*Tree) {}},
		"Hold lets jobs run on": {do: func(t *Tree) {
			stop(t, "alpha", kueue.Hold)
			stopLocal(t, "beta", kueue.Hold)
		}},
		"a ClusterQueue is drained": {
			do: func(t *Tree) { stop(t, "alpha", kueue.HoldAndDrain) },
			want: []Drained{
				{"a1", "ClusterQueueStopped", "ClusterQueue alpha is stopped"},
				{"a2", "ClusterQueueStopped", "ClusterQueue alpha is stopped"},
			},
		},
		"a LocalQueue is drained, and its neighbours are not": {
			do:   func(t *Tree) { stopLocal(t, "alpha", kueue.HoldAndDrain) },
			want: []Drained{{"a1", "LocalQueueStopped", "LocalQueue nlp/alpha is stopped"}},
		},
		"one that leaves is left alone": {
			do:   func(t *Tree) { stop(t, "alpha", kueue.HoldAndDrain); t.Leave("a1") },
			want: []Drained{{"a2", "ClusterQueueStopped", "ClusterQueue alpha is stopped"}},
		},
		"a ClusterQueue that is deleted drains nobody": {
			do: func(t *Tree) { stop(t, "alpha", kueue.HoldAndDrain); t.DeleteClusterQueue("alpha") },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tree := world(queueIn("", "alpha", gpus(8)), queueIn("", "beta", gpus(8)))
			tree.Charge("a2", "alpha", Usage{h100GPUs: 2}, Holder{Queue: types.NamespacedName{Namespace: "nlp", Name: "other"}})
			tree.Charge("a1", "alpha", Usage{h100GPUs: 2}, Holder{Queue: types.NamespacedName{Namespace: "nlp", Name: "alpha"}})
			tree.Charge("b", "beta", Usage{h100GPUs: 2}, Holder{Queue: types.NamespacedName{Namespace: "nlp", Name: "beta"}})
			tc.do(tree)
			if diff := cmp.Diff(tc.want, tree.Drain()); diff != "" {
				t.Errorf("drained (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatIsInUse(t *testing.T) {
	tree := world(queueIn("team", "alpha", gpus(8)), queueIn("team", "beta", gpusOf("a100", 8)))
	tree.Charge("a", "alpha", Usage{h100GPUs: 2}, Holder{})
	tree.SetClusterQueue(queueIn("team", "alpha", gpusOf("a100", 8)))
	if !tree.ClusterQueueInUse("alpha") || tree.ClusterQueueInUse("beta") {
		t.Error("alpha has a job and beta none")
	}
	got := map[string][]string{"h100": tree.FlavorUsers("h100"), "a100": tree.FlavorUsers("a100"), "b200": tree.FlavorUsers("b200")}
	want := map[string][]string{"h100": {"alpha"}, "a100": {"alpha", "beta"}, "b200": nil}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("who uses the flavors (-want +got):\n%s", diff)
	}

	tree.DeleteClusterQueue("alpha")
	if !tree.ClusterQueueInUse("alpha") {
		t.Error("a job of a deleted queue uses it no more")
	}
	tree.Release("a")
	if tree.ClusterQueueInUse("alpha") || tree.FlavorUsers("h100") != nil {
		t.Error("in use after the last job has left")
	}
}

func TestStatusOfACohort(t *testing.T) {
	tree := world(cohortIn("org", "team", gpus(2)), queueIn("team", "alpha", gpus(8, lend(6))), queueIn("team", "beta", gpus(4)),
		queueIn("org", "gamma", gpus(10)))
	tree.Charge("a", "alpha", Usage{h100GPUs: 13}, Holder{})
	tree.Charge("b", "beta", Usage{h100GPUs: 5}, Holder{})
	tree.Claim("c", "beta", Usage{h100GPUs: 5})
	tree.Withhold("d", "beta", Usage{h100GPUs: 5})

	got, known := tree.CohortStatus("team")
	if !known {
		t.Fatal("the Cohort is unknown")
	}
	// Of alpha's 8, 2 are kept at home; it uses 11 of the Cohort's. The Cohort has
	// borrowed 4 of the 22 that it could use at most, less those 12 of its own.
	want := CohortStatus{Quota: Usage{h100GPUs: 12}, Used: Usage{h100GPUs: 16}, Share: 182}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Usage{h100GPUs: 5}, tree.Borrowed("alpha")); diff != "" {
		t.Errorf("borrowed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Usage{h100GPUs: 5}, tree.Used("beta")); diff != "" {
		t.Errorf("used, what is claimed and withheld not counted (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"team"}, tree.Cohorts()); diff != "" {
		t.Errorf("Cohorts with an object (-want +got):\n%s", diff)
	}
	if _, known := tree.CohortStatus("org"); !known {
		t.Error("a Cohort that is only named is unknown")
	}
	if _, known := tree.CohortStatus("none"); known {
		t.Error("a Cohort that nobody names is known")
	}
	tree.SetCohort(cohortIn("team", "org"))
	if s, _ := tree.CohortStatus("team"); s.Cycle != "team -> org -> team" {
		t.Errorf("cycle %q", s.Cycle)
	}
}

func TestWhatIsLent(t *testing.T) {
	tree := world(queueIn("team", "alpha", gpus(8, lend(6))), queueIn("team", "beta", gpus(4)), queueIn("", "alone", gpus(8)))
	for _, step := range []struct {
		used int64
		want Usage
	}{
		{4, Usage{}},
		// 2 of the 6 that alpha lends are left to it, with its other 2.
		{8, Usage{h100GPUs: 4}},
		// More is used than there is to lend: then also what alpha keeps is not free to it.
		{12, Usage{h100GPUs: 8}},
	} {
		tree.Charge("b", "beta", Usage{h100GPUs: step.used}, Holder{})
		if diff := cmp.Diff(step.want, tree.Lent("alpha")); diff != "" {
			t.Errorf("beta uses %d (-want +got):\n%s", step.used, diff)
		}
		if lent := tree.Lent("beta"); len(lent) > 0 {
			t.Errorf("beta uses %d, and lends %v", step.used, lent)
		}
	}
	tree.Charge("a", "alone", Usage{h100GPUs: 12}, Holder{})
	if lent := tree.Lent("alone"); len(lent) > 0 {
		t.Errorf("a queue in no cohort lends %v", lent)
	}
}

func TestShares(t *testing.T) {
	weight := func(w string, cq *kueue.ClusterQueue) *kueue.ClusterQueue {
		q := resource.MustParse(w)
		cq.Spec.FairSharing = &kueue.FairSharing{Weight: &q}
		return cq
	}
	tree := world(
		queueIn("team", "lender", gpus(10)),
		queueIn("team", "plain", gpus(0)),
		weight("2", queueIn("team", "double", gpus(0))),
		weight("0", queueIn("team", "zero", gpus(0))),
		weight("0", queueIn("team", "idle", gpus(0))),
		queueIn("", "alone", gpus(1)))
	for _, cq := range []string{"plain", "double", "zero"} {
		tree.Charge(types.UID(cq), cq, Usage{h100GPUs: 3}, Holder{})
	}
	tree.Charge("alone", "alone", Usage{h100GPUs: 3}, Holder{})
	got := map[string]int64{}
	for _, cq := range tree.ClusterQueues() {
		got[cq] = tree.Share(cq)
	}
	want := map[string]int64{"lender": 0, "plain": 300, "double": 150, "zero": math.MaxInt64, "idle": 0, "alone": 0}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("shares (-want +got):\n%s", diff)
	}
}
