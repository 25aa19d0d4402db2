package show

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestQueuesAreShownAsATree(t *testing.T) {
	c, asked := clusterOf(t,
		&kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "lab"}},
		&kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "vision"}, Spec: kueue.CohortSpec{ParentName: "lab"}},
		// nlp has 6 left of its own, and can use 2 of them: the others use 4.
		clusterQueue("nlp", "lab", "h100", 8, 2, func(cq *kueue.ClusterQueue) { cq.Status.PendingWorkloads, cq.Status.AdmittedWorkloads = 3, 1 }),
		clusterQueue("detect", "vision", "h100", 8, 12, func(cq *kueue.ClusterQueue) { cq.Status.PendingWorkloads = 1 }),
		clusterQueue("alone", "", "a100", 4, 0, func(cq *kueue.ClusterQueue) { cq.Spec.StopPolicy = new(kueue.Hold) }),
		clusterQueue("broken", "", "a100", 4, 0, func(cq *kueue.ClusterQueue) {
			cq.Status.Conditions[0].Status, cq.Status.Conditions[0].Message = metav1.ConditionFalse, "flavor a100 does not exist"
		}),
		localQueueFor("team", "q", "nlp"),
	)
	compare(t, `
QUEUE        STATE      FLAVOR   RESOURCE         NOMINAL   USED   BORROWED   LENT   PENDING   ADMITTED   WHY
lab                     h100     nvidia.com/gpu   16        14     4                 4         1
                        h100     cpu              200       0
  vision                h100     nvidia.com/gpu   8         12     4                 1         0
                        h100     cpu              100       0
    detect   Active     h100     nvidia.com/gpu   8         12     4                 1         0
                        h100     cpu              100       0
  nlp        Active     h100     nvidia.com/gpu   8         2                 4      3         1
                        h100     cpu              100       0
    team/q   Active                                                                  0         0
alone        Hold       a100     nvidia.com/gpu   4         0                        0         0          spec.stopPolicy is Hold
                        a100     cpu              100       0
broken       Inactive   a100     nvidia.com/gpu   4         0                        0         0          flavor a100 does not exist
                        a100     cpu              100       0
`, shown(t, "", func(o Output) error { return c.ShowQueues(t.Context(), o, QueueOptions{Local: true}) }))
	if n := len(*asked); n != 3 {
		t.Errorf("%d requests for three kinds of objects: %v", n, *asked)
	}
	compare(t, `
clusterqueue.kueue.x-k8s.io/detect
`, shown(t, "name", func(o Output) error { return c.ShowQueues(t.Context(), o, QueueOptions{Name: "detect"}) }))
}

func TestCohortsThatAreEachOthersParentsAreShownOnce(t *testing.T) {
	c, _ := clusterOf(t,
		&kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: kueue.CohortSpec{ParentName: "b"}},
		&kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: kueue.CohortSpec{ParentName: "a"}},
		clusterQueue("q", "b", "h100", 8, 0),
	)
	got := shown(t, "", func(o Output) error { return c.ShowQueues(t.Context(), o, QueueOptions{}) })
	if strings.Count(got, "\na ") != 1 || strings.Count(got, "\n  b ") != 1 || strings.Count(got, "\n    q ") != 1 || !strings.Contains(got, "its parents form a cycle: a -> b -> a") {
		t.Error(got)
	}
}

func TestAQueueThatDoesNotExistIsNotFoundAndOthersAreNamed(t *testing.T) {
	c, _ := clusterOf(t, clusterQueue("research", "", "h100", 8, 0))
	err := c.ShowQueues(t.Context(), Output{}, QueueOptions{Name: "resea"})
	if want := `no ClusterQueue or Cohort is called "resea"; there is research`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
