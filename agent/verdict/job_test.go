package verdict

import (
	"testing"
	"time"
)

func TestReclaimable(t *testing.T) {
	report := func(age time.Duration, reclaimable bool) Report {
		return Report{Reclaimable: reclaimable, Heartbeat: midnight.Add(-age)}
	}
	tests := map[string]struct {
		devices int
		reports []Report
		want    bool
	}{
		"all of them, lately":               {devices: 2, reports: []Report{report(0, true), report(FreshFor, true)}, want: true},
		"one of them works":                 {devices: 2, reports: []Report{report(0, true), report(0, false)}},
		"of one nothing was said":           {devices: 2, reports: []Report{report(0, true)}},
		"of one nothing was said lately":    {devices: 2, reports: []Report{report(0, true), report(FreshFor+1, true)}},
		"a report is far in the future":     {devices: 1, reports: []Report{report(-time.Hour, true)}},
		"a job without devices":             {},
		"a clock that is a few seconds off": {devices: 1, reports: []Report{report(-5*time.Second, true)}, want: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Reclaimable(test.devices, test.reports, midnight); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}
