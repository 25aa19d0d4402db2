package scheduling

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// onlyOn keeps the pods of a job to a node.
func onlyOn(node string) func(*workload.Job) {
	return func(j *workload.Job) {
		j.PodSets[0].Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
}

// Where only quota is short, a job starts on other nodes than those that the others leave.
func TestAClaimNamesTheNodesThatAreLeft(t *testing.T) {
	c := newContest(t, 8, 8)
	c.policy("main", "", 4, lowerPriority)
	low, high := one("low", 4, onlyOn("node-1")), one("high", 4, onlyOn("node-0"))
	c.runs(low, -1)
	c.submit(high, 1)
	c.pass()
	c.wantState(high, Claimed)
	if got, want := c.why(high).Message, "waiting for 1 job to leave node-1"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	if diff := cmp.Diff([]string{"Preempting: stops JobSet team-a/low, and waits for it to leave node-1"}, c.wishes.notes["high"]); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	c.refusedAgain(low.Owner.UID, errors.New("not on Mondays"))
	c.saidRefused(low.Owner.UID, "not on Mondays")
	if got, want := c.why(high).Message, "waiting for 1 job to leave node-1; JobSet team-a/low cannot be stopped: not on Mondays"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
}

func TestAClaimEndsWhenItsQueueAdmitsTheJobNoMore(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*quota.Tree)
		class  reason.Class
	}{
		"the ClusterQueue is stopped": {func(t *quota.Tree) {
			cq := clusterQueue("main", []string{"gpu"}, 8)
			cq.Spec.StopPolicy, cq.Spec.Preemption = new(kueue.Hold), &lowerPriority
			t.SetClusterQueue(cq)
		}, reason.QueueInactive},
		"the LocalQueue is stopped": {func(t *quota.Tree) {
			lq := &kueue.LocalQueue{Spec: kueue.LocalQueueSpec{ClusterQueue: "main", StopPolicy: new(kueue.Hold)}}
			lq.Namespace, lq.Name = namespace, "main"
			t.SetLocalQueue(lq)
		}, reason.QueueInactive},
		"its quota is less than the job asks for": {func(t *quota.Tree) {
			t.SetClusterQueue(clusterQueue("main", []string{"gpu"}, 4))
		}, reason.ExceedsMaxQuota},
		"it has another flavor now": {func(t *quota.Tree) {
			t.SetFlavor(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "else"}})
			t.SetClusterQueue(clusterQueue("main", []string{"else"}, 8))
		}, reason.NoPlacement},
	} {
		c := newContest(t, 8)
		c.policy("main", "", 8, lowerPriority)
		c.runs(one("low", 8), -1)
		high := one("high", 8)
		c.submit(high, 1)
		c.pass()
		c.wantState(high, Claimed)
		c.UpdateQuota(func(*quota.Tree) {})
		c.wantState(high, Claimed)
		c.UpdateQuota(tc.change)
		c.wantState(high, Pending)
		c.pass()
		if why := c.why(high); why == nil || why.Class != tc.class {
			t.Errorf("%s: it says %v", name, why)
		}
	}
}
