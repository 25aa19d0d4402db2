package quota

import (
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestWhoIsKeptFromQuotaIsToldByWhom(t *testing.T) {
	strict := func(name string) *kueue.ClusterQueue {
		cq := queueIn("team", name, gpus(8))
		cq.Spec.QueueingStrategy = kueue.StrictFIFO
		return cq
	}
	tests := map[string]struct {
		do   func(*Tree)
		text string
	}{
		"the head of a StrictFIFO queue": {
			func(t *Tree) { t.Withhold("head", "strict", Usage{h100GPUs: 8}) },
			"needs 12 GPUs in queue alpha, 4 of 4 free, none can be borrowed from cohort team, 8 kept for the first job of ClusterQueue strict, which is StrictFIFO",
		},
		"a part of what it has": {
			func(t *Tree) { t.Withhold("head", "strict", Usage{h100GPUs: 6}) },
			"needs 12 GPUs in queue alpha, 4 of 4 free, 2 more can be borrowed from cohort team, 6 kept for the first job of ClusterQueue strict, which is StrictFIFO",
		},
		"several": {
			func(t *Tree) {
				t.SetClusterQueue(strict("second"))
				t.Withhold("small", "second", Usage{h100GPUs: 7})
				t.Withhold("head", "strict", Usage{h100GPUs: 8})
			},
			"needs 12 GPUs in queue alpha, 4 of 4 free, 1 more can be borrowed from cohort team, 8 kept for the first job of ClusterQueue strict, which is StrictFIFO, and 7 for jobs of others",
		},
		"a job for which nodes are reserved": {
			func(t *Tree) { t.Withhold("starved", "alpha", Usage{h100GPUs: 3}) },
			"needs 12 GPUs in queue alpha, 1 of 4 free, 8 more can be borrowed from cohort team, 3 reserved for a job of ClusterQueue alpha",
		},
		"one of another cohort": {
			func(t *Tree) {
				other := queueIn("elsewhere", "other", gpus(8))
				t.SetClusterQueue(other)
				t.Charge("own", "alpha", Usage{h100GPUs: 2}, Holder{})
				t.Withhold("head", "other", Usage{h100GPUs: 8})
			},
			"needs 12 GPUs in queue alpha, 2 of 4 free, 8 more can be borrowed from cohort team",
		},
		"the job itself": {
			func(t *Tree) {
				t.Charge("own", "alpha", Usage{h100GPUs: 2}, Holder{})
				t.Withhold("asks", "alpha", Usage{h100GPUs: 2})
			},
			"needs 12 GPUs in queue alpha, 2 of 4 free, 8 more can be borrowed from cohort team",
		},
		"one that keeps nothing any more": {
			func(t *Tree) {
				t.Withhold("starved", "alpha", Usage{h100GPUs: 1})
				t.Withhold("head", "strict", Usage{h100GPUs: 8})
				t.Assign(ask("alpha", 12, 0))
				t.Unwithhold("head")
			},
			"needs 12 GPUs in queue alpha, 3 of 4 free, 8 more can be borrowed from cohort team, 1 reserved for a job of ClusterQueue alpha",
		},
		"one that has gone to another cohort": {
			func(t *Tree) {
				t.Withhold("head", "strict", Usage{h100GPUs: 8})
				t.Assign(ask("alpha", 12, 0))
				moved := strict("strict")
				moved.Spec.CohortName = "elsewhere"
				t.SetClusterQueue(moved)
				t.SetClusterQueue(queueIn("team", "lends", gpus(8)))
				t.Charge("own", "alpha", Usage{h100GPUs: 1}, Holder{})
			},
			"needs 12 GPUs in queue alpha, 3 of 4 free, 8 more can be borrowed from cohort team",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tree := world(queueIn("team", "alpha", gpus(4)), strict("strict"))
			tc.do(tree)
			a, why := tree.Assign(ask("alpha", 12, 0))
			if why == nil || why.Message != tc.text {
				t.Errorf("it is told %q (%v), want %q", why, a, tc.text)
			}
		})
	}
}
