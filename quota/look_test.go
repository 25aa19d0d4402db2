package quota

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/muster-gpu/muster/api/reason"
)

// TestALookIsAnAssignWithoutWords compares the two, and what a Bar has promised
// with what comes of it when others come and go.
func TestALookIsAnAssignWithoutWords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := newModelTree()
		for i, c := range modelCohorts {
			obj := drawCohort(t, c)
			if i == 0 {
				obj.Spec.ParentName = ""
			}
			tree.SetCohort(obj)
		}
		for _, q := range modelQueues {
			cq := drawQueue(t, q)
			if rapid.Bool().Draw(t, "one flavor") {
				g := &cq.Spec.ResourceGroups[0]
				g.Flavors = g.Flavors[:1]
			}
			if rapid.Bool().Draw(t, "asks nobody") {
				preempting(cq, nobody, nobody)
			}
			tree.SetClusterQueue(cq)
		}
		tree.SetFairSharing(rapid.Bool().Draw(t, "fair sharing"))
		type promise struct {
			r   Request
			no  reason.Class
			bar Bar
		}
		var promises []promise
		id := rapid.SampledFrom(modelIDs)
		usage := rapid.MapOf(rapid.SampledFrom(modelCells), rapid.Int64Range(1, 6))
		take := func(do func(types.UID, string, Usage)) func(*rapid.T) {
			return func(t *rapid.T) {
				do(id.Draw(t, "id"), rapid.SampledFrom(modelQueues).Draw(t, "queue"), usage.Draw(t, "usage"))
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"charge":   take(func(id types.UID, cq string, u Usage) { tree.Charge(id, cq, u, Holder{}) }),
			"claim":    take(tree.Claim),
			"withhold": take(tree.Withhold),
			"keep":     take(tree.WithholdFromBorrowers),
			"release":  func(t *rapid.T) { tree.Release(id.Draw(t, "id")) },
			"leave":    func(t *rapid.T) { tree.Leave(id.Draw(t, "id")) },
			"unclaim":  func(t *rapid.T) { tree.Unclaim(id.Draw(t, "id")) },
			"restore":  func(t *rapid.T) { tree.Unwithhold(id.Draw(t, "id")) },
			"look": func(t *rapid.T) {
				r := drawRequest(t)
				r.ID = types.UID(fmt.Sprint("asks-", len(promises)))
				want, why := tree.Assign(r)
				got, no, bar := tree.Look(r)
				if (why == nil) != (no == "") || (why != nil && why.Class != no) {
					t.Fatalf("it is refused as %q, and by Assign: %v", no, why)
				}
				if q := tree.existing(r.Queue.Name); want != nil && why != nil && q.asksNobody() {
					want = &Assignment{ClusterQueue: want.ClusterQueue, Mode: want.Mode, Borrows: want.Borrows}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("assigned (-Assign +Look):\n%s", diff)
				}
				if bar.known && !bar.Holds() {
					t.Fatal("a Bar does not hold at once")
				}
				if bar.known {
					promises = append(promises, promise{r, no, bar})
				}
			},
			"": func(t *rapid.T) {
				for _, p := range promises {
					if !p.bar.Holds() {
						continue
					}
					a, why := tree.Assign(p.r)
					if why == nil || why.Class != p.no || (a != nil && !p.bar.MayBorrow()) {
						t.Fatalf("%v was to be refused as %s, and is assigned %+v: %v", p.r.PodSets, p.no, a, why)
					}
					levels := 0
					if a != nil {
						levels = a.Borrows
					}
					if levels != p.bar.Levels() {
						t.Fatalf("%v borrows from %d levels, and its Bar says %d", p.r.PodSets, levels, p.bar.Levels())
					}
				}
			},
		})
	})
}

// A Bar is to save work: it does not hold when the quota is there.
func TestABarEndsWithTheQuotaThatIsWaitedFor(t *testing.T) {
	tree := world(queueIn("team", "alpha", gpus(4)), queueIn("team", "beta", gpus(8)))
	tree.Charge("one", "beta", Usage{h100GPUs: 4}, Holder{})
	tree.Charge("two", "beta", Usage{h100GPUs: 4}, Holder{})
	_, no, bar := tree.Look(ask("alpha", 12, 0))
	if no != reason.WaitingForQuota || !bar.Holds() {
		t.Fatalf("refused as %q, the bar is %v", no, bar)
	}
	tree.Release("one")
	if !bar.Holds() {
		t.Error("8 of 12 GPUs are free, and the bar has gone")
	}
	tree.Release("two")
	if bar.Holds() {
		t.Error("12 of 12 GPUs are free, and the bar holds")
	}
	if _, no, bar := tree.Look(ask("alpha", 13, 0)); no != reason.ExceedsMaxQuota || !bar.Holds() {
		t.Errorf("refused as %q, the bar is %v", no, bar)
	}
}
