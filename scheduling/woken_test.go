package scheduling

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// ownQuota is a Cohort with quota of its own.
func ownQuota(name, parent string, gpus int64) *kueue.Cohort {
	c := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.CohortSpec{ParentName: kueue.CohortReference(parent)}}
	if gpus > 0 {
		c.Spec.ResourceGroups = []kueue.ResourceGroup{{
			CoveredResources: []corev1.ResourceName{gpuResource, corev1.ResourceCPU},
			Flavors: []kueue.FlavorQuotas{{Name: "gpu", Resources: []kueue.ResourceQuota{
				{Name: gpuResource, NominalQuota: *resource.NewQuantity(gpus, resource.DecimalSI)},
				{Name: corev1.ResourceCPU, NominalQuota: resource.MustParse("1000")},
			}}},
		}}
	}
	return c
}

// Every change of what a job may have wakes it, in one pass, whoever made it.
func TestWhatIsChangedOfTheQuotaWakesWhoMayFitNow(t *testing.T) {
	tests := map[string]func(*quota.Tree){
		"its queue gets more":                        func(t *quota.Tree) { t.SetClusterQueue(inCohort("asks", "poor", 8, -1)) },
		"its queue moves to a cohort that has more":  func(t *quota.Tree) { t.SetClusterQueue(inCohort("asks", "rich", 0, -1)) },
		"another queue of its cohort gets more":      func(t *quota.Tree) { t.SetClusterQueue(inCohort("full", "poor", 16, -1)) },
		"a queue that lends comes to its cohort":     func(t *quota.Tree) { t.SetClusterQueue(inCohort("lends", "poor", 8, -1)) },
		"a queue that borrows leaves its cohort":     func(t *quota.Tree) { t.SetClusterQueue(inCohort("borrows", "", 0, -1)) },
		"its cohort gets more":                       func(t *quota.Tree) { t.SetCohort(ownQuota("poor", "", 16)) },
		"its cohort moves below one that has more":   func(t *quota.Tree) { t.SetCohort(ownQuota("poor", "rich", 8)) },
		"the one that limits it is no more below it": func(t *quota.Tree) { t.SetCohort(ownQuota("below", "", 0)) },
		"the Cohort of what borrows is deleted":      func(t *quota.Tree) { t.DeleteCohort("below") },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStage(t.Context(), t)
			for _, n := range []string{"node-0", "node-1", "node-2"} {
				s.watched.AddNode(s.logger, flavored(n, "gpu", 8))
			}
			s.UpdateQuota(func(t *quota.Tree) {
				t.SetCohort(ownQuota("rich", "", 8))
				t.SetCohort(ownQuota("poor", "", 8))
				t.SetCohort(ownQuota("below", "poor", 0))
			})
			s.set(inCohort("asks", "poor", 0, -1), false)
			s.set(inCohort("full", "poor", 8, -1), false)
			s.set(inCohort("borrows", "below", 0, -1), false)
			s.set(inCohort("lends", "elsewhere", 8, -1), false)
			s.Restored()
			for _, queue := range []string{"full", "borrows"} {
				s.submit(asksFor("of-"+queue, queue, 8), 0)
			}
			if got := s.pass(); len(got) != 2 {
				t.Fatalf("admitted %q", got)
			}
			s.submit(asksFor("waits", "asks", 8), 0)
			if got := s.pass(); len(got) > 0 {
				t.Fatalf("admitted %q", got)
			}
			s.UpdateQuota(change)
			if diff := cmp.Diff([]string{"waits"}, s.pass()); diff != "" {
				t.Errorf("admitted (-want +got):\n%s", diff)
			}
		})
	}
}

// With a taint that it does not tolerate, a flavor is none for a job.
func TestAChangeOfAFlavorWakesWhoMayUseIt(t *testing.T) {
	s := newStage(t.Context(), t)
	s.watched.AddNode(s.logger, flavored("node-0", "gpu", 8))
	s.queue("q", false, []string{"gpu"}, 8)
	s.Restored()
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: kueue.ResourceFlavorSpec{
		NodeLabels: map[string]string{"flavor": "gpu"},
		NodeTaints: []corev1.Taint{{Key: "repair", Effect: corev1.TaintEffectNoSchedule}},
	}}
	s.UpdateQuota(func(t *quota.Tree) { t.SetFlavor(flavor) })
	s.submit(asksFor("waits", "q", 8), 0)
	if got := s.pass(); len(got) > 0 {
		t.Fatalf("admitted %q", got)
	}
	flavor.Spec.NodeTaints = nil
	s.UpdateQuota(func(t *quota.Tree) { t.SetFlavor(flavor) })
	if diff := cmp.Diff([]string{"waits"}, s.pass()); diff != "" {
		t.Errorf("admitted (-want +got):\n%s", diff)
	}
}

// A ClusterQueue whose finalizer somebody took off goes under its jobs, and is in
// no tree any more when the last of them has left.
func TestWhatTheLastJobOfADeletedQueueLeavesIsForItsCohort(t *testing.T) {
	tests := map[string]func(c *contest, last *workload.Job){
		"it ends": func(c *contest, last *workload.Job) {
			c.ownerGone(last.Owner.UID)
			c.left(last.Owner.UID)
		},
		"its admission is refused": func(c *contest, last *workload.Job) {
			c.written(last.Owner.UID, 0, c.entry(last).workload, refused, nil)
		},
	}
	for name, leaves := range tests {
		t.Run(name, func(t *testing.T) {
			c := newContest(t, 8, 8)
			c.UpdateQuota(func(t *quota.Tree) { t.SetCohort(ownQuota("all", "", 8)) })
			c.set(inCohort("gone", "all", 0, -1), false)
			c.set(inCohort("stays", "all", 0, -1), false)
			c.Restored()
			last := asksFor("last", "gone", 8)
			c.submit(last, 0)
			if got := c.pass(); len(got) != 1 {
				t.Fatalf("admitted %q", got)
			}
			c.submit(asksFor("waits", "stays", 8), 0)
			c.UpdateQuota(func(t *quota.Tree) { t.DeleteClusterQueue("gone") })
			if got := c.pass(); len(got) > 0 {
				t.Fatalf("admitted %q", got)
			}
			leaves(c, last)
			if diff := cmp.Diff([]string{"waits"}, c.pass()); diff != "" {
				t.Errorf("admitted (-want +got):\n%s", diff)
			}
		})
	}
}
