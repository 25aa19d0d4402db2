package scheduling

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/quota"
)

// TestVictimsAreLegalEnoughAndNotOneTooMany draws clusters with running jobs and
// one that is refused, and looks at whom a search chooses: that they may go
// together, that quota and nodes are found then, that nobody of them could stay,
// and, where nobody is chosen, that no set at all would do.
func TestVictimsAreLegalEnoughAndNotOneTooMany(t *testing.T) {
	found, vain, missed := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
		defer cancel()
		s := newStage(ctx, t)
		nodes := rapid.IntRange(1, 3).Draw(t, "nodes")
		for i := range nodes {
			s.watched.AddNode(s.logger, flavored(fmt.Sprintf("node-%d", i), "gpu", 8))
		}
		for _, name := range []string{"a", "b"} {
			drawQueue(t, s, name)
		}
		s.Restored()
		for i := range rapid.IntRange(1, 7).Draw(t, "running") {
			j := job(fmt.Sprintf("running-%d", i), set("node", 0, int32(rapid.IntRange(1, 2).Draw(t, "pods")), rapid.SampledFrom([]int64{1, 2, 4, 8}).Draw(t, "gpus")))
			j.Queue = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "queue")
			if rapid.IntRange(0, 5).Draw(t, "protected") == 0 {
				j.Hints.MinRuntime = new(time.Hour)
			}
			s.submit(j, int32(rapid.IntRange(0, 2).Draw(t, "priority")))
			s.mu.Lock()
			if b := s.next(); b != nil {
				s.start(b.jobs.items[0])
			}
			s.mu.Unlock()
			if s.state(j) == Pending {
				s.ownerGone(j.Owner.UID)
				s.left(j.Owner.UID)
			}
			s.clock.Step(time.Second)
		}
		j := job("wants", set("node", 0, int32(rapid.IntRange(1, 3).Draw(t, "pods wanted")), rapid.SampledFrom([]int64{1, 2, 4, 8}).Draw(t, "gpus wanted")))
		j.Queue = "a"
		s.submit(j, int32(rapid.IntRange(0, 3).Draw(t, "its priority")))

		// Until here the jobs came one by one; now comes the try.
		p := &pass{Cycle: s.cycle, ctx: ctx, start: s.clock.Now()}
		s.mu.Lock()
		e := s.jobs[j.Owner.UID]
		a, no := s.quota.Assign(e.request(nil))
		s.mu.Unlock()
		if a == nil {
			return
		}
		classes := prototypes(e, a, s.quota)
		judge := &judge{stage: s, e: e, a: a, classes: classes}
		if no == nil && judge.plans(t, nil) {
			return
		}
		s.mu.Lock()
		look, _ := p.search(&attempt{b: e.spot.bucket, e: e, job: e.job, version: e.version}, &option{assignment: a, classes: classes})
		s.mu.Unlock()
		if look == nil {
			return
		}
		inTime := rapid.IntRange(0, 3).Draw(t, "in time") > 0
		if look.ends = s.clock.Now().Add(time.Hour); !inTime {
			look.ends = time.Time{}
		}
		candidates := slices.Clone(look.order)
		ok, err := look.run()
		if err != nil {
			t.Fatal(err)
		}
		var victims []victim
		for _, v := range look.order {
			if look.going[v.ID] {
				victims = append(victims, v)
			}
		}
		if !ok {
			vain++
			together := s.quota.Preemption(e.request(nil), a)
			all := !slices.ContainsFunc(candidates, func(v victim) bool { return !together.Remove(v.ID) })
			for set := range 1 << len(candidates) {
				var some []victim
				for i, v := range candidates {
					if set>>i&1 == 1 {
						some = append(some, v)
					}
				}
				if !judge.enough(t, some) {
					continue
				}
				if !all {
					// Which of them may go together is tried in a few orders only.
					missed++
					break
				}
				t.Fatalf("nobody is stopped, but %v would do", names(some))
			}
			return
		}
		found++
		if !judge.enough(t, victims) {
			t.Fatalf("%v are not enough, or may not go together", names(victims))
		}
		for i := range victims {
			if inTime && judge.enough(t, slices.Delete(slices.Clone(victims), i, i+1)) {
				t.Fatalf("of %v, %s could stay", names(victims), victims[i].ID)
			}
		}
		for _, v := range victims {
			if v.e.job.Hints.MinRuntime != nil {
				t.Fatalf("%s is protected", v.ID)
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if !look.commit() || e.state != Claimed {
			t.Fatalf("the claim is not made: %s", e)
		}
	})
	t.Logf("%d searches found victims, %d did not, of which %d could have", found, vain, missed)
	if missed > vain/10 {
		t.Errorf("%d of %d searches in vain were not", missed, vain)
	}
	if found == 0 || vain == 0 {
		t.Errorf("%d searches found victims, %d did not; want both", found, vain)
	}
}

// drawQueue makes a ClusterQueue of a cohort of two.
func drawQueue(t *rapid.T, s *stage, name string) {
	policies := []kueue.PreemptionPolicy{kueue.PreemptionPolicyNever, kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyLowerPriority}
	p := &kueue.ClusterQueuePreemption{
		WithinClusterQueue:  rapid.SampledFrom(append(policies, kueue.PreemptionPolicyLowerOrNewerEqualPriority)).Draw(t, "within"),
		ReclaimWithinCohort: rapid.SampledFrom(append(policies, kueue.PreemptionPolicyAny, kueue.PreemptionPolicyAny)).Draw(t, "reclaim"),
	}
	if p.ReclaimWithinCohort != kueue.PreemptionPolicyNever && rapid.Bool().Draw(t, "while borrowing") {
		p.BorrowWithinCohort = &kueue.BorrowWithinCohort{Policy: kueue.BorrowWithinCohortPolicyLowerPriority}
	}
	nominal := rapid.SampledFrom([]int64{4, 8, 12}).Draw(t, "nominal")
	s.UpdateQuota(func(tree *quota.Tree) {
		tree.SetFlavor(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"flavor": "gpu"}}})
		tree.SetClusterQueue(&kueue.ClusterQueue{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: kueue.ClusterQueueSpec{
				CohortName: "both", NamespaceSelector: &metav1.LabelSelector{}, Preemption: p,
				ResourceGroups: []kueue.ResourceGroup{{
					CoveredResources: []corev1.ResourceName{gpuResource},
					Flavors: []kueue.FlavorQuotas{{Name: "gpu", Resources: []kueue.ResourceQuota{
						{Name: gpuResource, NominalQuota: *resource.NewQuantity(nominal, resource.DecimalSI)},
					}}},
				}},
			},
		})
		tree.SetLocalQueue(&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(name)}})
	})
}

// judge says, without any of the search's shortcuts, whether it is enough that
// some jobs go.
type judge struct {
	*stage
	e       *entry
	a       *quota.Assignment
	classes []class
}

func (j *judge) enough(t *rapid.T, gone []victim) bool {
	p := j.quota.Preemption(j.e.request(nil), j.a)
	for _, v := range gone {
		if !p.Remove(v.ID) {
			return false
		}
	}
	return p.Fits() && j.plans(t, gone)
}

// plans says whether there is a plan without some jobs.
func (j *judge) plans(t *rapid.T, gone []victim) bool {
	if err := j.cycle.refresh(j.ctx); err != nil {
		t.Fatal(err)
	}
	fw, snap, no, err := j.cycle.framework(j.classes)
	if err != nil || no != nil {
		t.Fatalf("the profile: %v %v", no, err)
	}
	w, err := j.cycle.planner.Without(klog.Logger{}, snap)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range gone {
		if err := w.Remove(v.pods); err != nil {
			t.Fatal(err)
		}
	}
	plan, _, err := j.cycle.planner.Plan(j.ctx, fw, snap, gangOf(j.e.job.Owner.Name, j.e.job.Owner.UID, j.classes, sizes(j.classes)))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	return plan != nil
}

func names(victims []victim) []types.UID {
	var out []types.UID
	for _, v := range victims {
		out = append(out, v.ID)
	}
	return out
}
