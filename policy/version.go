package policy

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
)

// A version of a policy that did not end in time this often, one time after the
// other, is not asked any more for so long: each time costs all who wait.
const (
	runaways   = 3
	quarantine = 10 * time.Minute
)

// version is one version of a policy that compiled.
type version struct {
	generation    int64
	source, scope string
	program       *program
	match         Match
	parameters    ast.Value
	// tooLong counts the runs that did not end in time since the last that did.
	tooLong atomic.Int32
	// until is when it is asked again, in nanoseconds of Unix time; 0 is at once.
	until atomic.Int64
	// failed says that its latest run failed.
	failed atomic.Bool
}

func newVersion(p *Policy, compiled *program) (*version, error) {
	parameters := p.Parameters
	if parameters == nil {
		parameters = map[string]any{}
	}
	value, err := ast.InterfaceToValue(parameters)
	if err != nil {
		return nil, Errors{{Message: fmt.Sprintf("reading its parameters: %v", err)}}
	}
	return &version{
		generation: p.Generation, source: p.source(), scope: p.scope(),
		program: compiled, match: p.Match, parameters: value,
	}, nil
}

// run asks the version, within the limit.
func (v *version) run(ctx context.Context, s *subject, data *contents, now time.Time, limit time.Duration) ([]Violation, error) {
	if until := v.until.Load(); until > now.UnixNano() {
		return nil, Errors{{Message: fmt.Sprintf("it did not end in time %d times, and is not asked before %s", runaways, time.Unix(0, until).UTC().Format(time.RFC3339))}}
	}
	own, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	found, err := v.program.run(own, evaluation{s.input(v.program.input, v.parameters), data, now})
	v.failed.Store(err != nil)
	switch {
	case errors.Is(err, errTooLong) && ctx.Err() != nil:
		// The review was over before the policy's own time was.
	case errors.Is(err, errTooLong):
		if v.tooLong.Add(1) >= runaways {
			v.stop(now)
		}
	default:
		v.tooLong.Store(0)
	}
	return found, err
}

// stop quarantines the version. It is asked once afterwards, and stopped again at
// once if that does not end.
func (v *version) stop(now time.Time) {
	v.tooLong.Store(runaways - 1)
	v.until.Store(now.Add(quarantine).UnixNano())
}
