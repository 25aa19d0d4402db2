package scheduling

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/quota"
)

func TestJobsOfAStoppedQueueLeave(t *testing.T) {
	stopLocal := func(p kueue.StopPolicy) func(*quota.Tree) {
		return func(t *quota.Tree) {
			t.SetLocalQueue(&kueue.LocalQueue{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "main"},
				Spec:       kueue.LocalQueueSpec{ClusterQueue: "main", StopPolicy: &p},
			})
		}
	}
	tests := map[string]struct {
		stop func(*quota.Tree)
		want string
	}{
		"if its LocalQueue is drained": {stopLocal(kueue.HoldAndDrain), "LocalQueueStopped"},
		"if its ClusterQueue is drained": {func(t *quota.Tree) {
			cq := clusterQueue("main", []string{"gpu"}, 8)
			cq.Spec.StopPolicy = new(kueue.HoldAndDrain)
			t.SetClusterQueue(cq)
		}, "ClusterQueueStopped"},
		"not if it is only held": {stopLocal(kueue.Hold), ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStage(t.Context(), t)
			s.watched.AddNode(s.logger, flavored("node-0", "gpu", 8))
			s.queue("main", false, []string{"gpu"}, 8)
			s.Restored()
			j := asksFor("a", "main", 4)
			s.submit(j, 0)
			if got := s.pass(); len(got) != 1 {
				t.Fatalf("admitted %q", got)
			}
			s.written(j.Owner.UID, 0, s.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted)), wrote, nil)
			s.UpdateQuota(tc.stop)
			e := s.entry(j)
			if tc.want == "" {
				if e.state != Admitted {
					t.Errorf("it is %s", e)
				}
				return
			}
			if e.state != Leaving || e.eviction.reason != tc.want || e.eviction.backOff {
				t.Fatalf("it is %s, because of %+v", e, e.eviction)
			}
			s.left(j.Owner.UID)
			if got := s.pass(); len(got) > 0 {
				t.Fatalf("admitted %q by a stopped queue", got)
			}
			s.queue("main", false, []string{"gpu"}, 8)
			if got := s.pass(); len(got) != 1 {
				t.Errorf("admitted %q when the queue is open again", got)
			}
		})
	}
}
