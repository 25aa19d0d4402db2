package verdict

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRulesOfAWorkload(t *testing.T) {
	settings := DefaultSettings()
	settings.Queues = map[string]Override{"patient": {IdleAfter: time.Hour, ReclaimStalled: ptr(true)}}
	tests := map[string]struct {
		kind, queue string
		own         Override
		idleAfter   time.Duration
		stalled     bool
	}{
		"a job has the common rules":           {kind: "TrainJob", queue: "any", idleAfter: 600 * time.Second},
		"a notebook has a longer window":       {kind: "Notebook", queue: "any", idleAfter: 1800 * time.Second},
		"a queue comes before the kind":        {kind: "Notebook", queue: "patient", idleAfter: time.Hour, stalled: true},
		"the workload itself comes before all": {kind: "Notebook", queue: "patient", own: Override{IdleAfter: time.Minute}, idleAfter: time.Minute, stalled: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			want := Defaults()
			want.IdleAfter, want.ReclaimStalled = test.idleAfter, test.stalled
			if diff := cmp.Diff(want, settings.For(test.kind, test.queue, test.own)); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAsked(t *testing.T) {
	tests := map[string]struct {
		annotations map[string]string
		idleAfter   time.Duration
		until       time.Time
		wrong       []string
	}{
		"nothing":                {},
		"a window and a time":    {annotations: map[string]string{IdleAfterAnnotation: "45m", IdleExemptUntilAnnotation: "2026-12-24T18:00:00Z"}, idleAfter: 45 * time.Minute, until: time.Date(2026, 12, 24, 18, 0, 0, 0, time.UTC)},
		"a window that is short": {annotations: map[string]string{IdleAfterAnnotation: "5s"}, wrong: []string{`muster.dev/idle-after: "5s" is not from 1m to 24h`}},
		"a window that is long":  {annotations: map[string]string{IdleAfterAnnotation: "25h"}, wrong: []string{`muster.dev/idle-after: "25h" is not from 1m to 24h`}},
		"both unreadable":        {annotations: map[string]string{IdleAfterAnnotation: "soon", IdleExemptUntilAnnotation: "tomorrow"}, wrong: []string{"muster.dev/idle-after: time: invalid", "muster.dev/idle-exempt-until: parsing time"}},
		"one of two is readable": {annotations: map[string]string{IdleAfterAnnotation: "2h", IdleExemptUntilAnnotation: "tomorrow"}, idleAfter: 2 * time.Hour, wrong: []string{"muster.dev/idle-exempt-until"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			own, until, err := Asked(test.annotations)
			if own.IdleAfter != test.idleAfter || !until.Equal(test.until) {
				t.Errorf("got %s and %s, want %s and %s", own.IdleAfter, until, test.idleAfter, test.until)
			}
			if (err != nil) != (len(test.wrong) > 0) {
				t.Fatalf("error %v, want %q", err, test.wrong)
			}
			for _, part := range test.wrong {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}
