package scheduling

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestBackoff(t *testing.T) {
	limited := Backoff{Base: time.Minute, Max: 5 * time.Minute, Limit: new(int32(2))}
	type next struct {
		Wait  time.Duration
		Spent bool
	}
	tests := map[string]struct {
		backoff  Backoff
		failures int
		want     next
	}{
		"the first failure waits for the base":        {limited, 1, next{time.Minute, false}},
		"the second one for twice as long":            {limited, 2, next{2 * time.Minute, false}},
		"one more than the limit is the last":         {limited, 3, next{4 * time.Minute, true}},
		"the wait ends at the longest":                {limited, 4, next{5 * time.Minute, true}},
		"without a limit it is tried for ever":        {Backoff{Base: time.Second, Max: time.Hour}, 1 << 30, next{time.Hour, false}},
		"a limit of none tries nothing again":         {Backoff{Base: time.Second, Max: time.Hour, Limit: new(int32(0))}, 1, next{time.Second, true}},
		"a base that is the longest stays what it is": {Backoff{Base: time.Hour, Max: time.Hour}, 3, next{time.Hour, false}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, next{tc.backoff.wait(tc.failures), tc.backoff.spent(tc.failures)}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
