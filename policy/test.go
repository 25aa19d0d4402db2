package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/tester"
)

// testTime is how long one test may run.
const testTime = 10 * time.Second

// ErrNoTests says that there was no rule named test_ to run.
var ErrNoTests = errors.New("there are no tests: rules whose names begin with test_")

// TestResult is what came of one test.
type TestResult struct {
	File string
	Row  int
	// Name has the package in front.
	Name string
	// Skipped says that its name begins with todo_, Failed that it was not true, or
	// could not be evaluated, and then Err says why.
	Skipped, Failed bool
	Err             error
	// Output is what it printed.
	Output string
}

// Test runs the rules named test_ in the files of a policy and its tests, as
// "opa test" does, with the built-in functions that policies have. A built-in
// function that fails fails the test. It returns Errors for files that do not
// compile, and ErrNoTests where nothing was run.
func Test(ctx context.Context, files []File, version string) ([]TestResult, error) {
	modules, version, err := parseVersions(&Policy{Files: files, Version: version})
	if err != nil {
		return nil, err
	}
	byName := make(map[string]*ast.Module, len(modules))
	for _, m := range modules {
		byName[m.Package.Location.File] = m
	}
	data := newStore()
	runner := tester.NewRunner().
		SetCompiler(ast.NewCompiler().WithCapabilities(capabilities(regoVersion(version))).
			WithDefaultRegoVersion(regoVersion(version)).WithEnablePrintStatements(true)).
		SetStore(data).CapturePrintOutput(true).RaiseBuiltinErrors(true).SetTimeout(testTime).SetModules(byName)
	results, err := runner.RunTests(ctx, data.current.Load())
	if err != nil {
		return nil, errorsOf(err)
	}
	var out []TestResult
	for r := range results {
		if r.Skip {
			out = append(out, TestResult{Name: r.Package + "." + r.Name, Skipped: true})
			continue
		}
		result := TestResult{Name: r.Package + "." + r.Name, Failed: r.Fail || r.Error != nil, Err: r.Error, Output: string(r.Output)}
		if r.Location != nil {
			result.File, result.Row = r.Location.File, r.Location.Row
		}
		out = append(out, result)
	}
	slices.SortFunc(out, func(a, b TestResult) int {
		return cmp.Or(strings.Compare(a.File, b.File), a.Row-b.Row, strings.Compare(a.Name, b.Name))
	})
	if !slices.ContainsFunc(out, func(r TestResult) bool { return !r.Skipped }) {
		return out, ErrNoTests
	}
	if err := ctx.Err(); err != nil {
		return out, fmt.Errorf("running the tests: %w", err)
	}
	return out, nil
}
