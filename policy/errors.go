package policy

import (
	"errors"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Error is one thing that is wrong in a policy's Rego, and where.
type Error struct {
	// File is the File.Name; Row and Col count from 1. All are zero where no place
	// is known.
	File     string
	Row, Col int
	Message  string
}

func (e Error) Error() string {
	if e.File == "" {
		return e.Message
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Row, e.Col, e.Message)
}

// Errors are all that is wrong with a policy.
type Errors []Error

func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i := range es {
		lines[i] = es[i].Error()
	}
	return strings.Join(lines, "\n")
}

func at(location *ast.Location, format string, args ...any) Error {
	e := Error{Message: fmt.Sprintf(format, args...)}
	if location != nil {
		e.File, e.Row, e.Col = location.File, location.Row, location.Col
	}
	return e
}

// errorsOf turns what OPA returns into Errors.
func errorsOf(err error) Errors {
	var own Errors
	if errors.As(err, &own) {
		return own
	}
	var list ast.Errors
	if errors.As(err, &list) {
		out := make(Errors, len(list))
		for i, e := range list {
			out[i] = at(e.Location, "%s", explain(e))
		}
		return out
	}
	var one *ast.Error
	if errors.As(err, &one) {
		return Errors{at(one.Location, "%s", explain(one))}
	}
	var eval *topdown.Error
	if errors.As(err, &eval) {
		return Errors{at(eval.Location, "%s", eval.Message)}
	}
	return Errors{{Message: err.Error()}}
}

// explain is OPA's message; a built-in that exists and is not allowed is told
// from one that does not exist.
func explain(e *ast.Error) string {
	if name, undefined := strings.CutPrefix(e.Message, "undefined function "); undefined && ast.BuiltinMap[name] != nil {
		return fmt.Sprintf("the built-in function %s is not allowed in policies", name)
	}
	return e.Message
}
