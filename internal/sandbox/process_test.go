package sandbox

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseStat(t *testing.T) {
	tail := " S 1 2 3 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000 10"
	cases := []struct {
		name, stat string
		state      byte
		ticks      uint64
		wantErr    string
	}{
		{name: "a plain command", stat: "12 (etcd)" + tail, state: 'S', ticks: 987654},
		{name: "a command with a parenthesis and spaces", stat: "12 (a) S 1 (b)" + tail, state: 'S', ticks: 987654},
		{name: "no command", stat: "12", wantErr: "no command name"},
		{name: "cut off", stat: "12 (etcd) S 1", wantErr: "2 fields"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			state, ticks, err := parseStat([]byte(c.stat))
			if c.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantErr) {
					t.Fatalf("error = %v, want one with %q", err, c.wantErr)
				}
				return
			}
			if err != nil || state != c.state || ticks != c.ticks {
				t.Errorf("parseStat = %c, %d, %v, want %c, %d", state, ticks, err, c.state, c.ticks)
			}
		})
	}
}

// startSleeper starts a process that belongs to the sandbox in dir.
func startSleeper(t *testing.T, dir string) (Process, *exec.Cmd) {
	t.Helper()
	command := exec.Command("sleep", "600")
	command.Env = append(os.Environ(), dirVariable+"="+dir)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	p, err := identify(command.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return p, command
}

func TestASignalReachesOnlyTheVeryProcess(t *testing.T) {
	p, _ := startSleeper(t, t.TempDir())
	recycled := Process{PID: p.PID, StartTicks: p.StartTicks + 1}
	if recycled.Alive() {
		t.Error("a process with another start time counts as alive")
	}
	if err := recycled.Signal(unix.SIGKILL); err != nil {
		t.Errorf("signalling a process that is gone: %v", err)
	}
	if !p.Alive() {
		t.Fatal("the signal hit the process that has the pid now")
	}
	if err := p.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	// Nobody has waited for it, so it is a zombie, which counts as gone.
	if alive := waitGone(ctx, []Process{p}); len(alive) > 0 {
		t.Errorf("the process is still alive: %v", alive)
	}
}

func TestFindByDirFindsOnlyTheSandboxesOwnProcesses(t *testing.T) {
	dir := t.TempDir()
	p, _ := startSleeper(t, dir)
	startSleeper(t, dir+"-other")
	// The environment of a process that has just forked is still its parent's.
	deadline := time.Now().Add(10 * time.Second)
	var found []Process
	for len(found) == 0 && time.Now().Before(deadline) {
		var err error
		if found, err = findByDir(dir); err != nil {
			t.Fatal(err)
		}
	}
	if len(found) != 1 || found[0] != p {
		t.Errorf("found %v, want only %v", found, p)
	}
}

func TestWaitGoneGivesUpWithItsContext(t *testing.T) {
	p, _ := startSleeper(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if alive := waitGone(ctx, []Process{p}); len(alive) != 1 {
		t.Errorf("alive = %v, want the sleeper", alive)
	}
}
