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
		// late is a priority class that the job names, "" for none: then it can be read.
		late  string
		again bool
	}{
		"nothing comes":                        {func(*scene) {}, "late", false},
		"a class comes":                        {func(s *scene) { s.syncBlocked() }, "late", true},
		"a class comes to one that names none": {func(s *scene) { s.syncBlocked() }, "", false},
		"something comes into its namespace that makes pods others": {func(s *scene) { s.syncWaiting(namespace) }, "late", true},
		"something comes that makes all pods others":                {func(s *scene) { s.syncWaiting("") }, "", true},
		"a kind is served no longer":                                {func(s *scene) { s.syncAll() }, "", true},
		"something comes into another namespace":                    {func(s *scene) { s.syncWaiting("other") }, "late", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 8, 8)
			js := &jobset.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", UID: "a", Labels: map[string]string{
				workload.QueueLabel: "main",
			}}}
			if tc.late != "" {
				js.Labels[workload.PriorityClassLabel] = tc.late
			}
			js.Spec.ReplicatedJobs = []jobset.ReplicatedJob{{Name: "node", Replicas: 1}}
			js.Spec.ReplicatedJobs[0].Template.Spec.Template = set("node", 0, 1, 8).Template
			js.Spec.Suspend = new(true)
			j := s.jobsOn(t, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, at client.ObjectKey, obj client.Object, o ...client.GetOption) error {
					err := c.Get(ctx, at, obj, o...)
					switch obj.(type) {
					case *kueue.Workload, *kueue.WorkloadPriorityClass:
						// One that cannot be read has no Workload looked for.
						tc.meanwhile(s)
					}
					return err
				},
			}, js)
			key := JobKey{Group: "jobset.x-k8s.io", Kind: "JobSet", NamespacedName: client.ObjectKeyFromObject(js), UID: js.UID}
			if err := j.reconcile(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			if blocked := s.jobs[js.UID].blocked != nil; blocked != (tc.late != "") {
				t.Fatalf("it cannot be read: %v", blocked)
			}
			if again := s.wishes.synced[key] > 0; again != tc.again {
				t.Errorf("it is read again: %v", again)
			}
		})
	}
}
