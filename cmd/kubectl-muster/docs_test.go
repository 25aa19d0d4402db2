package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-gpu/muster/internal/policyfiles"
	"github.com/muster-gpu/muster/policy/library"
)

// guide is docs/policies.md. The test is in the folder of its examples from then on.
func guide(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "policies.md"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Join("..", "..", "docs", "examples"))
	return string(text)
}

func TestTheCommandsOfTheGuideToPoliciesSayWhatItShows(t *testing.T) {
	text, run := guide(t), 0
	for i, block := range strings.Split(text, "```console\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		for _, step := range strings.Split("\n"+block, "\n$ ")[1:] {
			command, want, _ := strings.Cut(step, "\n")
			arguments, ours := strings.CutPrefix(command, "kubectl muster ")
			if !ours {
				continue // it needs a cluster
			}
			run++
			var out bytes.Buffer
			root := newCommand()
			root.SetArgs(strings.Fields(arguments))
			root.SetOut(&out)
			if err := root.Execute(); err != nil && !errors.Is(err, policyfiles.ErrFindings) {
				t.Fatalf("block %d: %s: %v", i, command, err)
			}
			if diff := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(out.String())); diff != "" {
				t.Errorf("%s (-guide +program):\n%s", command, diff)
			}
		}
	}
	if run < 3 {
		t.Errorf("%d commands were run", run)
	}
}

func TestTheGuideToPoliciesShowsTheExampleAndTheLibraryAsTheyAre(t *testing.T) {
	text := guide(t)
	example, err := os.ReadFile(filepath.Join("policies", "owner.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, string(example)) {
		t.Error("it does not show owner.yaml as it is")
	}
	all, err := library.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range all {
		if row := fmt.Sprintf("| `%s` | %s | %s |\n", info.Name, info.Level, info.Description); !strings.Contains(text, row) {
			t.Errorf("it does not have the row\n%s", row)
		}
	}
}
