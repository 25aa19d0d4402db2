package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-gpu/muster/internal/testsandbox"
)

// TestDemo runs what "make demo" runs. The demo itself asserts what it shows.
func TestDemo(t *testing.T) {
	bin := testsandbox.BinDir(t)
	dir := testsandbox.Folder(t, "e2e-demo", "muster", "plain")
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, filepath.Join(bin, "sandbox"), "demo", "--dir", dir)
	// A request to end lets it take its clusters down.
	command.Cancel = func() error { return command.Process.Signal(unix.SIGTERM) }
	command.WaitDelay = time.Minute
	command.Env = append(os.Environ(), "NO_COLOR=1")
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	err := command.Run()
	t.Log(out.String())
	if err != nil {
		t.Fatalf("the demo ended with: %v", err)
	}
	// Before the cleanup, which would end them.
	testsandbox.NoProcess(t, dir)
	for _, line := range []string{
		"GPUs held while they wait or run     24                 16",
		"GPUs working                         0                  16",
		"jobs finished                        0 of 2             2 of 2",
		`kiwi stays suspended and holds nothing: "8 GPUs free, but no node has 8`,
	} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("the demo does not show %q", line)
		}
	}
}
