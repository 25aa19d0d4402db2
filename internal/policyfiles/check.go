package policyfiles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/muster-gpu/muster/policy"
)

// Test runs the tests in the files and writes what came of them. It returns
// ErrFindings if one failed, if there are none, or if the files do not compile.
func Test(ctx context.Context, out io.Writer, paths []string) error {
	files, err := Load(paths)
	if err != nil {
		return err
	}
	results, err := policy.Test(ctx, files.Modules, "")
	run, failed := 0, 0
	for _, r := range results {
		switch {
		case r.Skipped:
			fmt.Fprintf(out, "SKIP %s\n", r.Name)
			continue
		case r.Failed:
			run++
			failed++
			fmt.Fprintf(out, "FAIL %s:%d: %s\n", r.File, r.Row, r.Name)
			if r.Err != nil {
				fmt.Fprintf(out, "     %v\n", r.Err)
			}
		default:
			run++
			fmt.Fprintf(out, "PASS %s:%d: %s\n", r.File, r.Row, r.Name)
		}
		if r.Output != "" {
			fmt.Fprintf(out, "     %s\n", strings.ReplaceAll(strings.TrimSpace(r.Output), "\n", "\n     "))
		}
	}
	if err != nil {
		return wrong(out, err)
	}
	fmt.Fprintf(out, "%d of %d tests passed\n", run-failed, run)
	if failed > 0 {
		return ErrFindings
	}
	return nil
}

// Lint writes what is wrong with the policies, and hints about what they may miss. It
// returns ErrFindings if one does not compile.
func Lint(out io.Writer, paths []string) error {
	files, err := Load(paths)
	if err != nil {
		return err
	}
	var found error
	for i := range files.Policies {
		hints, err := policy.Lint(&files.Policies[i])
		if err != nil {
			found = wrong(out, err)
		}
		for _, h := range hints {
			fmt.Fprintf(out, "hint: %v\n", h)
		}
	}
	return found
}

// wrong writes what is wrong with the policies themselves, and passes other errors on.
func wrong(out io.Writer, err error) error {
	var list policy.Errors
	if !errors.As(err, &list) && !errors.Is(err, policy.ErrNoTests) {
		return err
	}
	fmt.Fprintln(out, err)
	return ErrFindings
}
