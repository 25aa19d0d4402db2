package scheduling

import (
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

func TestWorkloadFollowsTheLabelOfItsJobUntilItIsAdmitted(t *testing.T) {
	tests := map[string]struct {
		before, after *string
		admitted      bool
		want          *int32
		refused       bool
	}{
		"a label that comes":                     {after: new("60"), want: new(int32(60))},
		"a label that changes":                   {before: new("60"), after: new("90"), want: new(int32(90))},
		"a label that goes":                      {before: new("60"), want: nil},
		"while it is admitted nothing changes":   {before: new("60"), after: new("90"), admitted: true, want: new(int32(60))},
		"a label that cannot be read is refused": {before: new("60"), after: new("soon"), want: new(int32(60)), refused: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 8, 8)
			j := s.jobsOn(t, interceptor.Funcs{})
			of := job("a", set("node", 0, 1, 8))
			of.MaxExecTime = tc.before
			wl := s.stored(t, j, of)
			if tc.admitted {
				apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue, Reason: "Test"})
				if err := j.client.Status().Update(t.Context(), wl); err != nil {
					t.Fatal(err)
				}
				s.observe(of.Owner.UID, wl)
			}
			of = with(of, func(j *workload.Job) { j.MaxExecTime = tc.after })
			_, no, err := j.ensureWorkload(t.Context(), of)
			if err != nil || (no != nil) != tc.refused {
				t.Fatalf("no %v, err %v", no, err)
			}
			got := latest(t, j, wl).Spec.MaximumExecutionTimeSeconds
			if (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want {
				t.Errorf("the Workload has %v, want %v", got, tc.want)
			}
		})
	}
}
