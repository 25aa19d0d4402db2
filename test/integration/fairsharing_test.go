package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/internal/testcluster"
)

func init() {
	scenarios = append(scenarios,
		scenario{name: "two queues of a full cohort come to shares like their weights by preemption, and stay so", configure: func(c *configv1alpha1.SchedulerConfiguration) {
			c.Quota.FairSharing.Enable = true
		}, run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 6)
			e.flavor(t)
			e.Create(t, &kueue.Cohort{
				ObjectMeta: metav1.ObjectMeta{Name: e.namespace + "-all"},
				Spec:       kueue.CohortSpec{ResourceGroups: e.groups(6)},
			})
			for name, weight := range map[string]string{"one": "1", "two": "2"} {
				e.clusterQueue(t, name, 0, e.cohort("all"), func(s *kueue.ClusterQueueSpec) {
					q := resource.MustParse(weight)
					s.FairSharing = &kueue.FairSharing{Weight: &q}
					s.Preemption = &kueue.ClusterQueuePreemption{ReclaimWithinCohort: kueue.PreemptionPolicyAny}
				})
			}
			for i := range 6 {
				js := e.job(fmt.Sprintf("one-%d", i), "one", 1, 1)
				e.Create(t, js)
				e.runs(t, js, 1)
			}
			e.share(t, "one", 1000)
			for i := range 6 {
				e.Create(t, e.job(fmt.Sprintf("two-%d", i), "two", 1, 1))
			}
			e.share(t, "two", 334)
			e.share(t, "one", 334)
			e.usage(t, "one", 2, 2, 4)
			e.usage(t, "two", 4, 4, 2)
			cohort := &kueue.Cohort{}
			if err := e.Client.Get(t.Context(), client.ObjectKey{Name: e.namespace + "-all"}, cohort); err != nil {
				t.Fatal(err)
			}
			if s := cohort.Status.FairSharing; s == nil || s.WeightedShare != 0 {
				t.Errorf("the share of the cohort is %+v, want 0", s)
			}
			// Nobody is stopped any more: a look at all jobs again and again.
			stopped := e.fairlyStopped(t)
			if stopped != 4 {
				t.Errorf("%d jobs are stopped, want 4", stopped)
			}
			e.touchQuota(t)
			time.Sleep(3 * time.Second)
			if again := e.fairlyStopped(t); again != stopped {
				t.Errorf("%d more jobs are stopped", again-stopped)
			}
			e.usage(t, "one", 2, 2, 4)
			e.usage(t, "two", 4, 4, 2)
		}},
	)
}

// share waits until a ClusterQueue says its share.
func (e *env) share(t *testing.T, name string, want int64) {
	t.Helper()
	testcluster.Eventually(t, fmt.Sprintf("%s to have the share %d", name, want), func(ctx context.Context) error {
		cq := &kueue.ClusterQueue{}
		if err := e.Client.Get(ctx, client.ObjectKey{Name: e.namespace + "-" + name}, cq); err != nil {
			return err
		}
		if s := cq.Status.FairSharing; s == nil || s.WeightedShare != want {
			return fmt.Errorf("the share is %+v", s)
		}
		return nil
	})
}

// fairlyStopped counts the jobs that say that they were preempted to share
// fairly.
func (e *env) fairlyStopped(t *testing.T) (n int) {
	t.Helper()
	all := &kueue.WorkloadList{}
	if err := e.Client.List(t.Context(), all, client.InNamespace(e.namespace)); err != nil {
		t.Fatal(err)
	}
	for _, wl := range all.Items {
		if c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadPreempted); c != nil {
			n++
			if c.Reason != kueue.InCohortFairSharingReason {
				t.Errorf("%s was preempted for %s", wl.Name, c.Reason)
			}
		}
	}
	return n
}

// touchQuota changes a queue in a way that means nothing, so that all are tried
// again.
func (e *env) touchQuota(t *testing.T) {
	t.Helper()
	e.changeQueue(t, "two", func(s *kueue.ClusterQueueSpec) { s.QueueingStrategy = kueue.BestEffortFIFO })
	e.changeQueue(t, "one", func(s *kueue.ClusterQueueSpec) {
		s.FlavorFungibility = &kueue.FlavorFungibility{WhenCanBorrow: kueue.MayStopSearch, WhenCanPreempt: kueue.TryNextFlavor}
	})
}
