package testsandbox

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-gpu/muster/internal/sandbox"
)

// Folder is where the sandbox of that name lives, absolute. Nothing runs in it,
// or in those folders below it, when it is returned, nor when the test has
// ended.
func Folder(t testing.TB, name string, below ...string) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join(root, ".sandbox", name))
	if err != nil {
		t.Fatal(err)
	}
	sandboxes := []string{dir}
	for _, b := range below {
		sandboxes = append(sandboxes, filepath.Join(dir, b))
	}
	clean := func() {
		t.Helper()
		for _, s := range sandboxes {
			if err := sandbox.Down(context.Background(), s); err != nil {
				t.Errorf("taking down what runs in %s: %v", s, err)
			}
		}
	}
	clean()
	t.Cleanup(func() {
		clean()
		NoProcess(t, dir)
	})
	return dir
}

// NoProcess fails the test if a process of a sandbox in dir or below is alive.
func NoProcess(t testing.TB, dir string) {
	t.Helper()
	environments, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range environments {
		// Processes of others cannot be read, and ended ones are gone.
		environment, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for variable := range bytes.SplitSeq(environment, []byte{0}) {
			of, ok := strings.CutPrefix(string(variable), "MUSTER_SANDBOX_DIR=")
			if ok && (of == dir || strings.HasPrefix(of, dir+"/")) {
				command, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
				t.Errorf("%s is alive: %s", filepath.Dir(path), bytes.ReplaceAll(command, []byte{0}, []byte{' '}))
			}
		}
	}
}
