package scheduling

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// inCohort is a ClusterQueue of GPUs of flavor "gpu" in a cohort; a limit below
// zero is none.
func inCohort(name, cohort string, nominal, borrowing int64, change ...func(*kueue.ClusterQueueSpec)) *kueue.ClusterQueue {
	cq := clusterQueue(name, []string{"gpu"}, nominal)
	cq.Spec.CohortName = kueue.CohortReference(cohort)
	if borrowing >= 0 {
		cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].BorrowingLimit = resource.NewQuantity(borrowing, resource.DecimalSI)
	}
	for _, c := range change {
		c(&cq.Spec)
	}
	return cq
}

func strictFIFO(s *kueue.ClusterQueueSpec) { s.QueueingStrategy = kueue.StrictFIFO }

func reclaims(p kueue.PreemptionPolicy) func(*kueue.ClusterQueueSpec) {
	return func(s *kueue.ClusterQueueSpec) {
		s.Preemption = &kueue.ClusterQueuePreemption{ReclaimWithinCohort: p}
	}
}

// cohortIn is a Cohort with a parent.
func cohortIn(name, parent string) func(*quota.Tree) {
	return func(t *quota.Tree) {
		t.SetCohort(&kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.CohortSpec{ParentName: kueue.CohortReference(parent)}})
	}
}

// asks is a job of one pod for each GPU.
func asksFor(name, queue string, gpus int32) *workload.Job {
	return with(job(name, set("node", 0, gpus, 1)), func(j *workload.Job) { j.Queue = queue })
}

type turn struct {
	*workload.Job
	priority int32
}

func TestHeadsOfACohortTakeTurns(t *testing.T) {
	tests := map[string]struct {
		queues  []*kueue.ClusterQueue
		cohorts []func(*quota.Tree)
		jobs    []turn
		want    []string
		// why are the classes of the reasons of those that wait.
		why map[string]string
	}{
		"who fits its nominal quota goes before who would borrow it away": {
			queues: []*kueue.ClusterQueue{inCohort("alpha", "all", 50, 50), inCohort("beta", "all", 50, 10)},
			jobs:   []turn{{asksFor("b", "beta", 56), 0}, {asksFor("a", "alpha", 45), 0}},
			want:   []string{"a"},
			why:    map[string]string{"b": "WaitingForQuota"},
		},
		"who borrows little enough goes too": {
			queues: []*kueue.ClusterQueue{inCohort("alpha", "all", 50, 50), inCohort("beta", "all", 50, 10)},
			jobs:   []turn{{asksFor("b", "beta", 55), 0}, {asksFor("a", "alpha", 45), 0}},
			want:   []string{"a", "b"},
		},
		"of two that borrow, the one of higher priority goes first": {
			queues: []*kueue.ClusterQueue{inCohort("alpha", "all", 0, -1), inCohort("beta", "all", 0, -1), inCohort("lender", "all", 8, -1)},
			jobs:   []turn{{asksFor("a", "alpha", 8), 0}, {asksFor("b", "beta", 8), 1}},
			want:   []string{"b"},
			why:    map[string]string{"a": "WaitingForQuota"},
		},
		"a guaranteed sub-cohort goes before an outsider of higher priority": {
			queues: []*kueue.ClusterQueue{
				inCohort("outsider", "all", 0, -1), inCohort("member", "guaranteed", 0, -1), inCohort("owner", "guaranteed", 8, -1),
			},
			cohorts: []func(*quota.Tree){cohortIn("guaranteed", "all"), cohortIn("all", "")},
			jobs:    []turn{{asksFor("outside", "outsider", 8), 9}, {asksFor("inside", "member", 8), 0}},
			want:    []string{"inside"},
			why:     map[string]string{"outside": "WaitingForQuota"},
		},
		"within one queue priority decides, although the first would borrow and the second would not": {
			queues: []*kueue.ClusterQueue{inCohort("alpha", "all", 4, -1), inCohort("lender", "all", 4, -1)},
			jobs:   []turn{{asksFor("small", "alpha", 2), 0}, {asksFor("large", "alpha", 8), 1}},
			want:   []string{"large"},
			why:    map[string]string{"small": "WaitingForQuota"},
		},
		"the head of a StrictFIFO queue blocks those behind it, and its first capacity is not lent": {
			queues: []*kueue.ClusterQueue{inCohort("strict", "all", 8, 0, strictFIFO), inCohort("neighbour", "all", 0, -1)},
			jobs:   []turn{{asksFor("runs", "strict", 4), 9}, {asksFor("head", "strict", 8), 1}, {asksFor("behind", "strict", 1), 0}, {asksFor("borrower", "neighbour", 1), 0}},
			want:   []string{"runs"},
			why:    map[string]string{"head": "WaitingForQuota", "behind": "PendingEvaluation", "borrower": "WaitingForQuota"},
		},
		"its capacity is lent if it can always be reclaimed": {
			queues: []*kueue.ClusterQueue{inCohort("strict", "all", 8, 0, strictFIFO, reclaims(kueue.PreemptionPolicyAny)), inCohort("neighbour", "all", 0, -1)},
			jobs:   []turn{{asksFor("runs", "strict", 4), 9}, {asksFor("head", "strict", 8), 1}, {asksFor("borrower", "neighbour", 4), 0}},
			want:   []string{"runs", "borrower"},
			why:    map[string]string{"head": "WaitingForQuota"},
		},
		"a BestEffortFIFO head that waits keeps nothing": {
			queues: []*kueue.ClusterQueue{inCohort("lender", "all", 8, 0), inCohort("neighbour", "all", 0, -1)},
			jobs:   []turn{{asksFor("runs", "lender", 4), 9}, {asksFor("head", "lender", 8), 1}, {asksFor("borrower", "neighbour", 4), 0}},
			want:   []string{"runs", "borrower"},
			why:    map[string]string{"head": "WaitingForQuota"},
		},
		"a head that has no quota any more, because another one borrowed it, holds up nobody who is within quota": {
			queues: []*kueue.ClusterQueue{inCohort("mine", "all", 4, -1), inCohort("other", "all", 4, -1)},
			jobs: []turn{
				{asksFor("first", "other", 6), 3}, {asksFor("second", "other", 2), 2},
				{asksFor("big", "mine", 8), 1}, {asksFor("small", "mine", 2), 0},
			},
			want: []string{"first", "small"},
			why:  map[string]string{"second": "WaitingForQuota", "big": "WaitingForQuota"},
		},
		"a StrictFIFO head that has quota and no place blocks as well": {
			queues: []*kueue.ClusterQueue{inCohort("strict", "all", 64, 0, strictFIFO), inCohort("neighbour", "all", 0, -1)},
			jobs: []turn{
				{with(job("head", set("node", 0, 1, 16)), func(j *workload.Job) { j.Queue = "strict" }), 1},
				{asksFor("behind", "strict", 1), 0}, {asksFor("borrower", "neighbour", 8), 0}, {asksFor("too much", "neighbour", 49), 0},
			},
			want: []string{"borrower"},
			why:  map[string]string{"head": "ExceedsCluster", "behind": "PendingEvaluation", "too much": "WaitingForQuota"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStage(t.Context(), t)
			for i := range 20 {
				s.watched.AddNode(s.logger, flavored(fmt.Sprintf("node-%d", i), "gpu", 8))
			}
			for _, c := range tc.cohorts {
				s.UpdateQuota(c)
			}
			for _, q := range tc.queues {
				s.set(q, false)
			}
			for _, j := range tc.jobs {
				s.submit(j.Job, j.priority)
			}
			s.Restored()
			if diff := cmp.Diff(tc.want, s.pass()); diff != "" {
				t.Errorf("admitted (-want +got):\n%s", diff)
			}
			for _, j := range tc.jobs {
				if want, waits := tc.why[j.Owner.Name]; waits {
					if why := s.whyPending(s.entry(j.Job), s.clock.Now(), 1); why == nil || string(why.Class) != want {
						t.Errorf("%s waits for %v, want %s", j.Owner.Name, why, want)
					}
				}
			}
			if errs := s.waitlistErrors(); len(errs) > 0 {
				t.Errorf("the waitlist: %q", errs)
			}
		})
	}
}

// strictStage is a StrictFIFO queue of 8 GPUs, of which none are free, and a
// neighbour that borrows.
func strictStage(t *testing.T, change ...func(*kueue.ClusterQueueSpec)) *stage {
	t.Helper()
	s := newStage(t.Context(), t)
	for i := range 4 {
		s.watched.AddNode(s.logger, flavored(fmt.Sprintf("node-%d", i), "gpu", 8))
	}
	s.set(inCohort("strict", "all", 8, -1, append(change, strictFIFO)...), false)
	s.set(inCohort("neighbour", "all", 0, -1), false)
	s.Restored()
	return s
}

func TestWhoStepsOutOfAStrictFIFOQueueBlocksNobody(t *testing.T) {
	tests := map[string]func(*stage){
		"its LocalQueue is stopped": func(s *stage) {
			s.UpdateQuota(func(t *quota.Tree) {
				t.SetLocalQueue(&kueue.LocalQueue{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "stopped"},
					Spec:       kueue.LocalQueueSpec{ClusterQueue: "strict", StopPolicy: new(kueue.Hold)},
				})
			})
		},
		"its namespace is not selected": func(s *stage) {
			s.SetNamespace("other", map[string]string{"team": "other"})
			s.UpdateQuota(func(t *quota.Tree) {
				t.SetLocalQueue(&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "stopped"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "strict"}})
				t.SetLocalQueue(&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "stopped"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "strict"}})
			})
		},
	}
	for name, stop := range tests {
		t.Run(name, func(t *testing.T) {
			s := strictStage(t, func(spec *kueue.ClusterQueueSpec) {
				spec.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: metav1.LabelSelectorOpDoesNotExist}}}
			})
			stop(s)
			first := with(asksFor("first", "stopped", 1), func(j *workload.Job) {
				if name == "its namespace is not selected" {
					j.Owner.Namespace = "other"
				}
			})
			s.submit(first, 1)
			s.submit(asksFor("second", "strict", 1), 0)
			if diff := cmp.Diff([]string{"second"}, s.pass()); diff != "" {
				t.Errorf("admitted (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatAStrictFIFOHeadWithholdsIsFreeWhenItGoes(t *testing.T) {
	tests := map[string]struct {
		ends func(s *stage, head *workload.Job)
		want []string
	}{
		"it is deleted": {func(s *stage, head *workload.Job) { s.ownerGone(head.Owner.UID); s.left(head.Owner.UID) }, []string{"borrower"}},
		"another comes before it, which fits": {func(s *stage, _ *workload.Job) {
			s.submit(asksFor("urgent", "strict", 4), 5)
		}, []string{"urgent"}},
		"it asks for less now": {func(s *stage, head *workload.Job) {
			s.submit(asksFor(head.Owner.Name, "strict", 3), 1)
		}, []string{"head"}},
		"its queue becomes BestEffortFIFO": {func(s *stage, _ *workload.Job) {
			s.set(inCohort("strict", "all", 8, 0), false)
		}, []string{"borrower"}},
		"nothing happens": {func(*stage, *workload.Job) {}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := strictStage(t)
			s.set(inCohort("strict", "all", 8, 0, strictFIFO), false)
			s.submit(asksFor("runs", "strict", 4), 9)
			head := asksFor("head", "strict", 8)
			s.submit(head, 1)
			s.submit(asksFor("borrower", "neighbour", 4), 0)
			if got := s.pass(); len(got) != 1 {
				t.Fatalf("admitted %q", got)
			}
			tc.ends(s, head)
			if diff := cmp.Diff(tc.want, s.pass()); diff != "" {
				t.Errorf("admitted (-want +got):\n%s", diff)
			}
			if errs := s.waitlistErrors(); len(errs) > 0 {
				t.Errorf("the waitlist: %q", errs)
			}
		})
	}
}

// The two are one bucket, of which nothing has changed but its first job.
func TestWhatAStrictFIFOHeadWithholdsIsKeptForOneAfterItThatAsksForTheSame(t *testing.T) {
	s := strictStage(t)
	s.set(inCohort("strict", "all", 24, 0, strictFIFO), false)
	noPlace := func(name string) *workload.Job {
		return with(job(name, set("node", 0, 1, 16)), func(j *workload.Job) { j.Queue = "strict" })
	}
	head := noPlace("head")
	s.submit(head, 1)
	s.submit(noPlace("next"), 0)
	s.pass()
	s.ownerGone(head.Owner.UID)
	s.left(head.Owner.UID)
	s.submit(asksFor("small", "neighbour", 8), 0)
	s.submit(asksFor("too much", "neighbour", 9), 0)
	if diff := cmp.Diff([]string{"small"}, s.pass()); diff != "" {
		t.Errorf("admitted (-want +got):\n%s", diff)
	}
	s.submit(asksFor("more", "neighbour", 1), 0)
	if admitted := s.pass(); len(admitted) > 0 {
		t.Errorf("%v are admitted with what is kept for the head", admitted)
	}
}

func TestAHeadThatWouldBorrowComesFirstAgainWhenQuotaIsReleased(t *testing.T) {
	s := newStage(t.Context(), t)
	for i := range 4 {
		s.watched.AddNode(s.logger, flavored(fmt.Sprintf("node-%d", i), "gpu", 8))
	}
	s.set(inCohort("alpha", "all", 4, -1), false)
	s.set(inCohort("beta", "all", 4, -1), false)
	s.UpdateQuota(func(t *quota.Tree) {
		t.Charge("someone", "alpha", quota.Usage{{Flavor: "gpu", Resource: gpuResource}: 4}, quota.Holder{})
	})
	a, b := asksFor("a", "alpha", 4), asksFor("b", "beta", 4)
	s.submit(a, 9)
	s.submit(b, 0)
	s.Restored()
	s.mu.Lock()
	// It is looked at, and gives way.
	h := s.next().head
	if !s.waits.borrows(h, 1) || s.next().key.line.queue != (types.NamespacedName{Namespace: namespace, Name: "beta"}) {
		t.Error("who would borrow does not give way")
	}
	s.quota.Release("someone")
	s.released(s.quota.Root("alpha"))
	if s.next().head != h {
		t.Error("who would not borrow any more does not come first")
	}
	s.mu.Unlock()
}
