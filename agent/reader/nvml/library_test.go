//go:build cgo

package nvml

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// A program can have one library only, so that tests of an old one run in a program of
// their own, which is told so by oldVariable.
const oldVariable = "MUSTER_TEST_OLD_NVML"

var (
	// libraryPath is the scripted library, and scriptPath what it follows.
	libraryPath, scriptPath string
	// old says that the library is that of an old driver.
	old = os.Getenv(oldVariable) != ""
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Getenv(reportVariable) != "" {
		return m.Run()
	}
	folder, err := os.MkdirTemp("", "nvml")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	libraryPath, scriptPath = filepath.Join(folder, "libnvidia-ml.so.1"), filepath.Join(folder, "script")
	if err := compile(); err != nil {
		fmt.Fprintln(os.Stderr, "building the scripted library:", err)
		return 1
	}
	// What was resolved once is resolved for good: the library stays where it is.
	if ret := nvml.New(nvml.WithLibraryPath(libraryPath)).Init(); ret != nvml.SUCCESS {
		fmt.Fprintln(os.Stderr, "loading the scripted library:", ret)
		return 1
	}
	return m.Run()
}

func compile() error {
	header, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml/pkg/nvml").Output()
	if err != nil {
		return fmt.Errorf("finding nvml.h: %w", err)
	}
	args := []string{
		"-shared", "-fPIC", "-w", "-I", strings.TrimSpace(string(header)), fmt.Sprintf("-DSCRIPT=%q", scriptPath),
		"-o", libraryPath, filepath.Join("testdata", "scripted.c"),
	}
	if old {
		args = append(args, "-DOLD")
	}
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// script has the library say that, "key value" line by line.
func script(t *testing.T, lines ...string) {
	t.Helper()
	next := scriptPath + ".next"
	if err := os.WriteFile(next, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, scriptPath); err != nil {
		t.Fatal(err)
	}
}

// start is a driver on the scripted library, whose devices have been listed.
func start(t *testing.T, lines ...string) *Driver {
	t.Helper()
	script(t, lines...)
	d := New(libraryPath)
	d.pci = filepath.Join(t.TempDir(), "none")
	t.Cleanup(func() {
		script(t)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := d.Devices(); err != nil {
		t.Fatal(err)
	}
	return d
}
