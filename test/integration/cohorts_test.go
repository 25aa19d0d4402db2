package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
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
		scenario{name: "of two queues of a cohort that ask at once, the one within its quota starts, and the other borrows what its limit lets it", run: func(t *testing.T, e *env) {
			e.flavor(t)
			e.clusterQueue(t, "alpha", 50, e.cohort("all"), borrowing(50))
			e.clusterQueue(t, "beta", 50, e.cohort("all"), borrowing(10))
			alpha, beta := e.job("a", "alpha", 45, 1), e.job("b", "beta", 56, 1)
			e.Create(t, beta)
			e.Create(t, alpha)
			// Both are there before there is room.
			e.pending(t, beta, "ExceedsCluster", "")
			e.pending(t, alpha, "ExceedsCluster", "")
			for i := range 14 {
				e.Node(t, fmt.Sprintf("node-%d", i), 8)
			}
			e.runs(t, alpha, 45)
			e.condition(t, beta, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "WaitingForQuota", "56 GPUs")
			fits := e.job("fits", "beta", 55, 1)
			e.Create(t, fits)
			e.runs(t, fits, 55)
			e.usage(t, "beta", 55, 1, 1)
		}},
		scenario{name: "a Cohort object gives its members a quota of their own, and takes it away again", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.flavor(t)
			e.clusterQueue(t, "team", 0, e.cohort("all"))
			js := e.job("a", "team", 1, 8)
			e.Create(t, js)
			e.pending(t, js, "ExceedsMaxQuota", "")
			cohort := &kueue.Cohort{
				ObjectMeta: metav1.ObjectMeta{Name: e.namespace + "-all"},
				Spec:       kueue.CohortSpec{ResourceGroups: e.groups(8)},
			}
			e.Create(t, cohort)
			e.runs(t, js, 1)
			if err := e.Client.Delete(t.Context(), cohort); err != nil {
				t.Fatal(err)
			}
			next := e.job("b", "team", 1, 1)
			e.Create(t, next)
			e.pending(t, next, "ExceedsMaxQuota", "")
			e.runs(t, js, 1)
		}},
		scenario{name: "cohorts in a circle admit nothing and say so, until the circle is broken", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.flavor(t)
			e.clusterQueue(t, "team", 8, e.cohort("one"))
			one := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: e.namespace + "-one"}, Spec: kueue.CohortSpec{ParentName: kueue.CohortReference(e.namespace + "-two")}}
			two := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: e.namespace + "-two"}, Spec: kueue.CohortSpec{ParentName: kueue.CohortReference(e.namespace + "-one")}}
			e.Create(t, one)
			e.Create(t, two)
			e.active(t, "team", metav1.ConditionFalse)
			js := e.job("a", "team", 1, 8)
			e.Create(t, js)
			e.pending(t, js, "QueueInactive", e.namespace+"-one")
			if err := e.Client.Delete(t.Context(), two); err != nil {
				t.Fatal(err)
			}
			e.runs(t, js, 1)
			e.active(t, "team", metav1.ConditionTrue)
		}},
		scenario{name: "a queue that borrows is moved to another cohort: what runs goes on, and nothing is given away twice", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.Node(t, "node-1", 8)
			e.flavor(t)
			e.clusterQueue(t, "lender", 8, e.cohort("all"))
			e.clusterQueue(t, "borrower", 0, e.cohort("all"))
			js := e.job("a", "borrower", 1, 8)
			e.Create(t, js)
			e.runs(t, js, 1)
			e.changeQueue(t, "borrower", e.cohort("elsewhere"))
			lent := e.job("b", "lender", 1, 8)
			e.Create(t, lent)
			e.runs(t, lent, 1)
			e.runs(t, js, 1)
			next := e.job("c", "borrower", 1, 1)
			e.Create(t, next)
			e.pending(t, next, "ExceedsMaxQuota", "")
		}},
		scenario{name: "the first job of a StrictFIFO queue holds up those behind it, and they say so", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.flavor(t)
			e.clusterQueue(t, "team", 8, func(s *kueue.ClusterQueueSpec) { s.QueueingStrategy = kueue.StrictFIFO })
			runs, head, behind := e.job("runs", "team", 1, 4), e.job("head", "team", 1, 8), e.job("behind", "team", 1, 4)
			e.Create(t, runs)
			e.runs(t, runs, 1)
			e.Create(t, head)
			e.pending(t, head, "WaitingForQuota", "")
			// Creation times count in seconds, and of one second either may be first.
			e.secondPasses(t)
			e.Create(t, behind)
			e.pending(t, behind, "PendingEvaluation", "behind job "+e.namespace+"/head")
			if err := e.Client.Delete(t.Context(), head); err != nil {
				t.Fatal(err)
			}
			e.runs(t, behind, 1)
		}},
		scenario{name: "a job that has waited for long gets nodes that smaller ones may not take, and starts", configure: func(c *configv1alpha1.SchedulerConfiguration) {
			c.Admission.ReservationAfter.Duration = time.Second
		}, run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 64)
			first, second := e.job("first", "team", 1, 4), e.job("second", "team", 1, 4)
			e.Create(t, first)
			e.Create(t, second)
			e.runs(t, first, 1)
			e.runs(t, second, 1)
			big := e.job("big", "team", 1, 8)
			e.Create(t, big)
			e.pending(t, big, "NoPlacement", "node node-0 is reserved for it since ")
			e.event(t, big, "Reserved", "node node-0 is reserved for it since ")
			e.finish(t, first)
			small := e.job("small", "team", 1, 4)
			e.Create(t, small)
			e.pending(t, small, "NoPlacement", "1 node(s) reserved for jobs that have waited for long")
			e.restart(t)
			e.pending(t, big, "NoPlacement", "node node-0 is reserved for it since ")
			e.pending(t, small, "NoPlacement", "1 node(s) reserved for jobs that have waited for long")
			e.finish(t, second)
			e.runs(t, big, 1)
			e.pending(t, small, "NoPlacement", "0 GPUs are free")
		}},
		scenario{name: "a ClusterQueue and a LocalQueue are drained, and their jobs come back when they are opened", run: func(t *testing.T, e *env) {
			e.Node(t, "node-0", 8)
			e.Queue(t, e.namespace, "team", 8)
			js := e.job("a", "team", 2, 4)
			e.Create(t, js)
			e.runs(t, js, 2)
			e.changeQueue(t, "team", func(s *kueue.ClusterQueueSpec) { s.StopPolicy = new(kueue.HoldAndDrain) })
			e.condition(t, js, kueue.WorkloadEvicted, metav1.ConditionTrue, kueue.WorkloadEvictedByClusterQueueStopped, "is stopped (HoldAndDrain)")
			e.pending(t, js, "QueueInactive", "")
			e.condition(t, js, kueue.WorkloadRequeued, metav1.ConditionFalse, kueue.WorkloadEvictedByClusterQueueStopped, "")
			e.changeQueue(t, "team", func(s *kueue.ClusterQueueSpec) { s.StopPolicy = new(kueue.None) })
			e.runs(t, js, 2)
			e.condition(t, js, kueue.WorkloadRequeued, metav1.ConditionTrue, kueue.WorkloadClusterQueueRestarted, "")
			e.stopLocal(t, "team", kueue.HoldAndDrain)
			e.condition(t, js, kueue.WorkloadEvicted, metav1.ConditionTrue, kueue.WorkloadEvictedByLocalQueueStopped, "is stopped (HoldAndDrain)")
			e.pending(t, js, "QueueInactive", "")
			e.stopLocal(t, "team", kueue.None)
			e.runs(t, js, 2)
		}},
	)
}

// flavor makes the one flavor that the ClusterQueues of the scenario share.
func (e *env) flavor(t *testing.T) {
	t.Helper()
	e.Create(t, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: e.namespace + "-gpu"}})
}

// groups is a quota of GPUs of that flavor.
func (e *env) groups(gpus int64) []kueue.ResourceGroup {
	return []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{testcluster.GPU},
		Flavors: []kueue.FlavorQuotas{{Name: kueue.ResourceFlavorReference(e.namespace + "-gpu"), Resources: []kueue.ResourceQuota{
			{Name: testcluster.GPU, NominalQuota: *resource.NewQuantity(gpus, resource.DecimalSI)},
		}}},
	}}
}

// clusterQueue makes a ClusterQueue of that flavor, and its LocalQueue.
func (e *env) clusterQueue(t *testing.T, name string, gpus int64, change ...func(*kueue.ClusterQueueSpec)) {
	t.Helper()
	cq := &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: e.namespace + "-" + name},
		Spec:       kueue.ClusterQueueSpec{NamespaceSelector: &metav1.LabelSelector{}, ResourceGroups: e.groups(gpus)},
	}
	for _, c := range change {
		c(&cq.Spec)
	}
	e.Create(t, cq)
	e.Create(t, &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name},
		Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(cq.Name)},
	})
}

// cohort puts a ClusterQueue into a cohort of the scenario.
func (e *env) cohort(name string) func(*kueue.ClusterQueueSpec) {
	return func(s *kueue.ClusterQueueSpec) { s.CohortName = kueue.CohortReference(e.namespace + "-" + name) }
}

func borrowing(limit int64) func(*kueue.ClusterQueueSpec) {
	return func(s *kueue.ClusterQueueSpec) {
		s.ResourceGroups[0].Flavors[0].Resources[0].BorrowingLimit = resource.NewQuantity(limit, resource.DecimalSI)
	}
}

// changeQueue changes a ClusterQueue.
func (e *env) changeQueue(t *testing.T, name string, change func(*kueue.ClusterQueueSpec)) {
	t.Helper()
	testcluster.Eventually(t, name+" to be changed", func(ctx context.Context) error {
		cq := &kueue.ClusterQueue{}
		if err := e.Client.Get(ctx, client.ObjectKey{Name: e.namespace + "-" + name}, cq); err != nil {
			return err
		}
		change(&cq.Spec)
		return e.Client.Update(ctx, cq)
	})
}

// stopLocal gives a LocalQueue a stopPolicy.
func (e *env) stopLocal(t *testing.T, name string, policy kueue.StopPolicy) {
	t.Helper()
	testcluster.Eventually(t, name+" to be changed", func(ctx context.Context) error {
		lq := &kueue.LocalQueue{}
		if err := e.Client.Get(ctx, client.ObjectKey{Namespace: e.namespace, Name: name}, lq); err != nil {
			return err
		}
		lq.Spec.StopPolicy = &policy
		return e.Client.Update(ctx, lq)
	})
}

// active waits until a ClusterQueue says whether it is active.
func (e *env) active(t *testing.T, name string, want metav1.ConditionStatus) {
	t.Helper()
	testcluster.Eventually(t, fmt.Sprintf("%s to say Active=%s", name, want), func(ctx context.Context) error {
		cq := &kueue.ClusterQueue{}
		if err := e.Client.Get(ctx, client.ObjectKey{Name: e.namespace + "-" + name}, cq); err != nil {
			return err
		}
		if c := apimeta.FindStatusCondition(cq.Status.Conditions, kueue.ClusterQueueActive); c == nil || c.Status != want {
			return fmt.Errorf("the condition is %+v", c)
		}
		return nil
	})
}
