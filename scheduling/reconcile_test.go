package scheduling

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// TestAJobThatIsReadWhileWhatItNamesComesIsReadAgain: whoever tells the jobs of it does
// not find this one among them yet.
func TestAJobThatIsReadWhileWhatItNamesComesIsReadAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(*scene)
		again     bool
	}{
		"nothing comes": {func(*scene) {}, false},
		"a class comes": {func(s *scene) { s.syncBlocked() }, true},
		"something comes into its namespace that makes pods others": {func(s *scene) { s.syncWaiting(namespace) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 8, 8)
			js := &jobset.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", UID: "a", Labels: map[string]string{
				workload.QueueLabel: "main", workload.PriorityClassLabel: "late",
			}}}
			js.Spec.ReplicatedJobs = []jobset.ReplicatedJob{{Name: "node", Replicas: 1}}
			js.Spec.ReplicatedJobs[0].Template.Spec.Template = set("node", 0, 1, 8).Template
			js.Spec.Suspend = new(true)
			j := s.jobsOn(t, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, at client.ObjectKey, obj client.Object, o ...client.GetOption) error {
					err := c.Get(ctx, at, obj, o...)
					if _, class := obj.(*kueue.WorkloadPriorityClass); class {
						tc.meanwhile(s)
					}
					return err
				},
			}, js)
			key := JobKey{Group: "jobset.x-k8s.io", Kind: "JobSet", NamespacedName: client.ObjectKeyFromObject(js), UID: js.UID}
			if err := j.reconcile(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			if s.jobs[js.UID].blocked == nil {
				t.Fatal("it can be read")
			}
			if again := s.wishes.synced[key] > 0; again != tc.again {
				t.Errorf("it is read again: %v", again)
			}
		})
	}
}
