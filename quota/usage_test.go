package quota

import (
	"fmt"
	"maps"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

func TestCharges(t *testing.T) {
	h100, cpus := FlavorResource{"h100", nvidiaGPU}, FlavorResource{"h100", corev1.ResourceCPU}
	tests := map[string]struct {
		do   func(*Tree)
		want Usage
	}{
		"charging an id again replaces its charge": {
			do: func(t *Tree) {
				t.Charge("a", "cq", Usage{h100: 8, cpus: 4}, Holder{})
				t.Charge("a", "cq", Usage{h100: 4}, Holder{})
			},
			want: Usage{h100: 4},
		},
		"repeating a charge changes nothing": {
			do: func(t *Tree) {
				t.Charge("a", "cq", Usage{h100: 8}, Holder{})
				t.Charge("a", "cq", Usage{h100: 8}, Holder{})
			},
			want: Usage{h100: 8},
		},
		"an id that moves leaves its old queue": {
			do: func(t *Tree) {
				t.Charge("a", "cq", Usage{h100: 8}, Holder{})
				t.Charge("a", "other", Usage{h100: 8}, Holder{})
			},
			want: Usage{},
		},
		"a restart charges above nominal": {
			do:   func(t *Tree) { t.Charge("a", "cq", Usage{h100: 999}, Holder{}) },
			want: Usage{h100: 999},
		},
		"releasing twice releases once": {
			do: func(t *Tree) {
				t.Charge("a", "cq", Usage{h100: 8}, Holder{})
				t.Charge("b", "cq", Usage{h100: 2}, Holder{})
				t.Release("a")
				t.Release("a")
			},
			want: Usage{h100: 2},
		},
		"releasing an unknown id changes nothing": {
			do:   func(t *Tree) { t.Release("a") },
			want: Usage{},
		},
		"negative and zero amounts charge nothing": {
			do:   func(t *Tree) { t.Charge("a", "cq", Usage{h100: -8, cpus: 0}, Holder{}) },
			want: Usage{},
		},
		"a charge outlives its ClusterQueue object": {
			do: func(t *Tree) {
				t.Charge("a", "cq", Usage{h100: 8}, Holder{})
				t.DeleteClusterQueue("cq")
				t.SetClusterQueue(clusterQ("cq", group(of("h100", "nvidia.com/gpu", "16"))))
			},
			want: Usage{h100: 8},
		},
		"a charge taken before the ClusterQueue is known counts": {
			do: func(t *Tree) {
				t.DeleteClusterQueue("cq")
				t.Charge("a", "cq", Usage{h100: 8}, Holder{})
			},
			want: Usage{h100: 8},
		},
		"an amount that saturates is given back as it was taken": {
			do: func(t *Tree) {
				t.Charge("a", "cq", Usage{h100: 8}, Holder{})
				t.Charge("b", "cq", Usage{h100: math.MaxInt64}, Holder{})
				t.Release("b")
			},
			want: Usage{h100: 8},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tree := cluster(clusterQ("cq", group(of("h100", "nvidia.com/gpu", "16"))), flavorOf("h100", nil))
			tc.do(tree)
			if diff := cmp.Diff(tc.want, tree.Used("cq")); diff != "" {
				t.Errorf("used (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNominalListsEveryCell(t *testing.T) {
	tree := cluster(clusterQ("cq",
		group(of("h100", "nvidia.com/gpu", "16"), of("a100", "nvidia.com/gpu", "0")),
		group(of("cpus", "cpu", "1500m", "memory", "1Gi"))))
	want := Usage{
		{"h100", nvidiaGPU}: 16, {"a100", nvidiaGPU}: 0,
		{"cpus", "cpu"}: 1500, {"cpus", "memory"}: 1 << 30,
	}
	if diff := cmp.Diff(want, tree.Nominal("cq")); diff != "" {
		t.Errorf("nominal (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Usage{}, tree.Nominal("other")); diff != "" {
		t.Errorf("nominal of an unknown queue (-want +got):\n%s", diff)
	}
}

func TestUsedIsACopy(t *testing.T) {
	tree := New()
	cell := FlavorResource{"h100", nvidiaGPU}
	mine := Usage{cell: 8}
	tree.Charge("a", "cq", mine, Holder{})
	mine[cell] = 1
	tree.Used("cq")[cell] = 2
	if got := tree.Used("cq")[cell]; got != 8 {
		t.Errorf("used is %d after the caller changed its own maps, want 8", got)
	}
}

// drawUsage draws amounts over a few cells, so that charges overlap.
func drawUsage(t *rapid.T) Usage {
	return rapid.MapOf(
		rapid.Custom(func(t *rapid.T) FlavorResource {
			return FlavorResource{
				rapid.SampledFrom([]string{"h100", "a100"}).Draw(t, "flavor"),
				rapid.SampledFrom([]corev1.ResourceName{nvidiaGPU, "cpu"}).Draw(t, "resource"),
			}
		}),
		rapid.Int64Range(1, 1000),
	).Draw(t, "usage")
}

func TestTheSumOfChargesIsUsed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := New()
		type key struct {
			cq   string
			cell FlavorResource
		}
		model := map[types.UID]map[key]int64{}
		id := rapid.SampledFrom([]types.UID{"a", "b", "c", "d"})
		queue := rapid.SampledFrom([]string{"cq1", "cq2"})
		t.Repeat(map[string]func(*rapid.T){
			"charge": func(t *rapid.T) {
				who, cq, u := id.Draw(t, "id"), queue.Draw(t, "cq"), drawUsage(t)
				tree.Charge(who, cq, u, Holder{})
				model[who] = map[key]int64{}
				for cell, v := range u {
					model[who][key{cq, cell}] = v
				}
			},
			"release": func(t *rapid.T) {
				who := id.Draw(t, "id")
				tree.Release(who)
				delete(model, who)
			},
			"": func(t *rapid.T) {
				want := map[string]Usage{"cq1": {}, "cq2": {}}
				for _, c := range model {
					for k, v := range c {
						want[k.cq][k.cell] += v
					}
				}
				got := map[string]Usage{"cq1": tree.Used("cq1"), "cq2": tree.Used("cq2")}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("used (-sum of charges +got):\n%s", diff)
				}
			},
		})
	})
}

func TestReleaseUndoesCharge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := New()
		for i := range rapid.IntRange(0, 5).Draw(t, "others") {
			tree.Charge(types.UID(fmt.Sprint(i)), "cq", drawUsage(t), Holder{})
		}
		before := tree.Used("cq")
		tree.Charge("mine", "cq", drawUsage(t), Holder{})
		tree.Release("mine")
		if diff := cmp.Diff(before, tree.Used("cq")); diff != "" {
			t.Fatalf("used (-before +after):\n%s", diff)
		}
	})
}

func TestTheOrderOfReleasesDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		charges := map[types.UID]Usage{}
		var ids []types.UID
		for i := range rapid.IntRange(1, 6).Draw(t, "jobs") {
			id := types.UID(fmt.Sprint(i))
			ids = append(ids, id)
			charges[id] = drawUsage(t)
		}
		leaving := rapid.IntRange(0, len(ids)).Draw(t, "leaving")
		after := func(order []types.UID) Usage {
			tree := New()
			for id, u := range charges {
				tree.Charge(id, "cq", u, Holder{})
			}
			for _, id := range order {
				tree.Release(id)
			}
			return tree.Used("cq")
		}
		shuffled := rapid.Permutation(ids[:leaving]).Draw(t, "order")
		if diff := cmp.Diff(after(ids[:leaving]), after(shuffled)); diff != "" {
			t.Fatalf("used (-in order +shuffled):\n%s", diff)
		}
	})
}

func TestWhatIsAssignedFitsWithinNominal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := func(label string) string { return fmt.Sprint(rapid.IntRange(0, 20).Draw(t, label)) }
		tree := cluster(clusterQ("cq", group(
			of("h100", "nvidia.com/gpu", n("h100 gpus"), "cpu", n("h100 cpu")),
			of("a100", "nvidia.com/gpu", n("a100 gpus"), "cpu", n("a100 cpu")))),
			flavorOf("h100", nil), flavorOf("a100", nil))
		for i := range 12 {
			var sets []PodSet
			for s := range rapid.IntRange(1, 3).Draw(t, "pod sets") {
				sets = append(sets, pods(fmt.Sprint(s), rapid.Int32Range(0, 4).Draw(t, "count"),
					"nvidia.com/gpu", n("gpus per pod"), "cpu", n("cpu per pod")))
			}
			a, no := tree.Assign(job(sets...))
			if no != nil {
				continue
			}
			sum := Usage{}
			for s := range sets {
				for res, v := range a.PodSetUsage[s] {
					if v > 0 {
						sum[FlavorResource{a.Flavors[s][res], res}] += v
					}
				}
			}
			if diff := cmp.Diff(sum, a.Usage); diff != "" {
				t.Fatalf("usage (-sum over pod sets +got):\n%s", diff)
			}
			after := tree.Used("cq")
			for cell, v := range a.Usage {
				after[cell] += v
			}
			nominal := tree.Nominal("cq")
			for cell := range maps.Keys(after) {
				if after[cell] > nominal[cell] {
					t.Fatalf("%v: %d after the assignment, nominal is %d", cell, after[cell], nominal[cell])
				}
			}
			tree.Charge(types.UID(fmt.Sprint(i)), "cq", a.Usage, Holder{})
		}
	})
}

func TestWhatStaysIsNotFreeAfterwards(t *testing.T) {
	tree := world(queueIn("", "a", gpus(8)))
	tree.Charge("one", "a", Usage{h100GPUs: 8}, Holder{})
	for i, step := range []struct {
		do   func(types.UID)
		free bool
	}{{func(types.UID) {}, false}, {tree.Stay, false}, {tree.Leave, true}, {tree.Stay, false}, {tree.Stay, false}, {tree.Leave, true}, {tree.Stay, false}} {
		step.do("one")
		a, no := tree.Assign(ask("a", 8, 0))
		if a == nil || no == nil {
			t.Fatalf("step %d: %v %v", i, a, no)
		}
		if got := tree.Preemption(ask("a", 8, 0), a).Fits(); got != step.free {
			t.Errorf("step %d: free afterwards is %v, want %v", i, got, step.free)
		}
	}
	tree.Stay("unknown")
	tree.Release("one")
	if _, no := tree.Assign(ask("a", 8, 0)); no != nil {
		t.Errorf("after its release: %v", no)
	}
}
