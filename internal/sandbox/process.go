package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// dirVariable is set in the environment of every process of a sandbox to the
// sandbox's absolute folder, so that a process which no state file names any
// more can still be found.
const dirVariable = "MUSTER_SANDBOX_DIR"

// Process identifies one process for as long as the machine is up. The pid
// alone does not: the kernel hands it out again.
type Process struct {
	// PID is the process id.
	PID int `json:"pid"`
	// StartTicks is the kernel's start time of the process, in clock ticks
	// since boot (field 22 of /proc/PID/stat).
	StartTicks uint64 `json:"startTicks"`
}

// identify reads the identity of the process that has pid now.
func identify(pid int) (Process, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return Process{}, fmt.Errorf("reading the start time of process %d: %w", pid, err)
	}
	_, ticks, err := parseStat(stat)
	if err != nil {
		return Process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return Process{PID: pid, StartTicks: ticks}, nil
}

// parseStat returns the state letter and the start time of a /proc/PID/stat
// line. The command name in it may hold spaces and parentheses, so fields are
// counted from the last closing parenthesis.
func parseStat(stat []byte) (state byte, startTicks uint64, err error) {
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, 0, errors.New("stat line has no command name")
	}
	fields := strings.Fields(string(stat[end+1:]))
	// fields[0] is field 3 of the line (state), so field 22 is fields[19].
	if len(fields) < 20 {
		return 0, 0, fmt.Errorf("stat line has %d fields after the command name, want at least 20", len(fields))
	}
	startTicks, err = strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("stat line's start time: %w", err)
	}
	return fields[0][0], startTicks, nil
}

// Alive says whether this very process still runs. A zombie does not: nothing
// of it is left but its exit status.
func (p Process) Alive() bool {
	if p.PID <= 0 {
		return false
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.PID), "stat"))
	if err != nil {
		return false
	}
	state, ticks, err := parseStat(stat)
	return err == nil && ticks == p.StartTicks && state != 'Z' && state != 'X'
}

// Signal sends sig to this very process, and nothing when it is gone. The
// identity is checked after the process is pinned by a descriptor, so a pid
// that is recycled in between is never hit.
func (p Process) Signal(sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	switch {
	case errors.Is(err, unix.ESRCH), p.PID <= 0:
		return nil
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
		// Kernels before 5.3, and system call filters.
		if !p.Alive() {
			return nil
		}
		return ignoreGone(unix.Kill(p.PID, sig), p, sig)
	case err != nil:
		return fmt.Errorf("opening process %d: %w", p.PID, err)
	}
	defer unix.Close(fd)
	if !p.Alive() {
		return nil
	}
	return ignoreGone(unix.PidfdSendSignal(fd, sig, nil, 0), p, sig)
}

func ignoreGone(err error, p Process, sig unix.Signal) error {
	if err == nil || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return fmt.Errorf("sending %v to process %d: %w", sig, p.PID, err)
}

// waitGone waits until none of the processes is alive and returns those that
// still are when ctx ends.
func waitGone(ctx context.Context, processes []Process) []Process {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var alive []Process
		for _, p := range processes {
			if p.Alive() {
				alive = append(alive, p)
			}
		}
		if len(alive) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return alive
		case <-tick.C:
		}
	}
}

// findByDir lists the living processes whose environment says that they belong
// to the sandbox in dir. Processes of other users cannot be read and are not
// listed.
func findByDir(dir string) ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	want := []byte(dirVariable + "=" + dir)
	var found []Process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		environ, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		if err != nil {
			continue
		}
		for _, variable := range bytes.Split(environ, []byte{0}) {
			if !bytes.Equal(variable, want) {
				continue
			}
			if p, err := identify(pid); err == nil && p.Alive() {
				found = append(found, p)
			}
		}
	}
	return found, nil
}
