package publish

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-gpu/muster/agent/verdict"
	"github.com/muster-gpu/muster/api/v1alpha1"
)

var midnight = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

// log is a Writer that notes what it is told.
type log struct {
	at     time.Duration
	writes []string
	fails  func(at time.Duration) bool
}

func (l *log) Write(_ context.Context, node string, status v1alpha1.GPUNodeStatus) error {
	if age := midnight.Add(l.at).Sub(status.LastHeartbeat.Time); age != 0 {
		return fmt.Errorf("the heartbeat is %s off", age)
	}
	if l.fails != nil && l.fails(l.at) {
		l.writes = append(l.writes, fmt.Sprintf("%s at %d: fails", node, int(l.at.Seconds())))
		return errors.New("no API server")
	}
	l.writes = append(l.writes, fmt.Sprintf("%s at %d: %d held", node, int(l.at.Seconds()), status.Summary.Held))
	return nil
}

func TestPublisher(t *testing.T) {
	after := func(times ...time.Duration) func(time.Duration) int32 {
		return func(at time.Duration) (held int32) {
			for _, t := range times {
				if at >= t*time.Second {
					held++
				}
			}
			return held
		}
	}
	between := func(from, to time.Duration) func(time.Duration) bool {
		return func(at time.Duration) bool { return at >= from*time.Second && at < to*time.Second }
	}
	tests := map[string]struct {
		// tick is in seconds.
		tick, until time.Duration
		held        func(time.Duration) int32
		fails       func(time.Duration) bool
		want        []string
	}{
		"nothing changes: once a minute": {
			tick: 15, until: 180, held: after(),
			want: []string{"n at 0: 0 held", "n at 60: 0 held", "n at 120: 0 held", "n at 180: 0 held"},
		},
		"a change is written with its tick": {
			tick: 15, until: 90, held: after(30),
			want: []string{"n at 0: 0 held", "n at 30: 1 held", "n at 90: 1 held"},
		},
		"changes that come often are written every ten seconds": {
			tick: 1, until: 30, held: after(1, 2, 3, 4, 5, 12, 13),
			want: []string{"n at 0: 0 held", "n at 10: 5 held", "n at 20: 7 held"},
		},
		"without an API server it is tried ever less often, and the last is written when it is back": {
			tick: 15, until: 300, held: after(30, 45), fails: between(15, 200),
			want: []string{"n at 0: 0 held", "n at 30: fails", "n at 60: fails", "n at 105: fails", "n at 165: fails", "n at 225: 2 held", "n at 285: 2 held"},
		},
		"a write that failed is made again though the status is what it was": {
			tick: 15, until: 60, held: func(at time.Duration) int32 {
				if at == 15*time.Second {
					return 1
				}
				return 0
			}, fails: between(15, 30),
			want: []string{"n at 0: 0 held", "n at 15: fails", "n at 45: 0 held"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			writer := &log{fails: test.fails}
			p := New("n", writer)
			for at := time.Duration(0); at <= test.until*time.Second; at += test.tick * time.Second {
				writer.at = at
				status := v1alpha1.GPUNodeStatus{Summary: v1alpha1.GPUSummary{Held: test.held(at)}}
				err := p.Publish(t.Context(), verdict.Instant{Elapsed: at, Wall: midnight.Add(at)}, status)
				if failed := test.fails != nil && test.fails(at); err != nil && !failed {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(test.want, writer.writes); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
		})
	}
}
