package workload

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-gpu/muster/api/reason"
)

func TestMaxExecutionSeconds(t *testing.T) {
	bad := func(value string) *reason.Reason {
		return &reason.Reason{Class: reason.Misconfigured,
			Message: `the label kueue.x-k8s.io/max-exec-time-seconds is "` + value + `", which is no number of seconds from 1 to 2147483647`}
	}
	for name, tc := range map[string]struct {
		label *string
		want  *int32
		no    *reason.Reason
	}{
		"no label is no limit":             {},
		"a number is that many seconds":    {label: new("3600"), want: new(int32(3600))},
		"the largest number":               {label: new("2147483647"), want: new(int32(2147483647))},
		"a number beyond that is refused":  {label: new("2147483648"), no: bad("2147483648")},
		"zero is refused":                  {label: new("0"), no: bad("0")},
		"a negative number is refused":     {label: new("-1"), no: bad("-1")},
		"a duration is refused":            {label: new("1h"), no: bad("1h")},
		"an empty label is refused":        {label: new(""), no: bad("")},
		"a number with a dot is refused":   {label: new("1.5"), no: bad("1.5")},
		"a number in letters, for example": {label: new("one"), no: bad("one")},
	} {
		t.Run(name, func(t *testing.T) {
			js := newJobSet(nil, replicated("node", 1, 1))
			if tc.label != nil {
				js.Labels[MaxExecTimeLabel] = *tc.label
			}
			job, _, no, err := kindNamed(t, "JobSet").Read(t.Context(), fakeClient(t), js)
			if no != nil || err != nil {
				t.Fatalf("no %v, err %v", no, err)
			}
			got, no := MaxExecutionSeconds(job)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("seconds (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.no, no); diff != "" {
				t.Errorf("reason (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.want, NewWorkload(job, 0, nil).Spec.MaximumExecutionTimeSeconds); diff != "" {
				t.Errorf("in the Workload (-want +got):\n%s", diff)
			}
		})
	}
}
