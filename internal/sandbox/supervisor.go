package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// event is one line that the supervisor sends to the Up that started it.
type event struct {
	// Step is a progress line.
	Step string `json:"step,omitempty"`
	// Ready ends the conversation well, Error badly.
	Ready bool   `json:"ready,omitempty"`
	Error string `json:"error,omitempty"`
}

// eventDescriptor is where the supervisor finds the pipe for its events.
const eventDescriptor = 3

// supervisor owns the processes of one sandbox and is the only writer of its
// state file.
type supervisor struct {
	layout   layout
	children *children

	mu    sync.Mutex
	state State
}

// Supervise is the body of the detached process: it reads Options as JSON from
// in, brings the sandbox up, reports to events, and stays until ctx ends or
// the sandbox could not come up. When it returns, no component runs.
func Supervise(ctx context.Context, in io.Reader, events *os.File) error {
	defer events.Close()
	send := json.NewEncoder(events)
	err := supervise(ctx, in, func(e event) error { return send.Encode(e) })
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("the sandbox was stopped while it was starting: %w", err)
		}
		// Nobody may be listening any more; the log has it in any case.
		_ = send.Encode(event{Error: err.Error()})
	}
	return err
}

// EventPipe is the pipe that Up hands to the process that calls Supervise.
func EventPipe() *os.File { return os.NewFile(eventDescriptor, "events") }

func supervise(ctx context.Context, in io.Reader, send func(event) error) error {
	var options Options
	if err := json.NewDecoder(in).Decode(&options); err != nil {
		return fmt.Errorf("reading the sandbox's options: %w", err)
	}
	l := layout{dir: options.Dir}
	lock, err := l.hold()
	if err != nil {
		return err
	}
	defer lock.Close()
	// From here on nobody else works in the folder; what is in it was left by
	// a run that ended.
	if err := clean(ctx, l); err != nil {
		return err
	}
	for _, folder := range l.folders() {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return fmt.Errorf("creating the sandbox's folders: %w", err)
		}
	}
	if err := removeOldLogs(l); err != nil {
		return err
	}
	self, err := identify(os.Getpid())
	if err != nil {
		return err
	}
	ports, control, err := claimPorts()
	if err != nil {
		return err
	}
	defer control.Close()
	s := &supervisor{layout: l, state: State{
		Phase: Starting, Supervisor: self, ControlPort: ports.base, Token: newToken(),
		Kubeconfig: l.kubeconfig(), Started: time.Now(), Options: options,
	}}
	s.children = newChildren(l, s.save)
	s.save()
	return s.run(ctx, ports, control, send)
}

// run brings everything up, serves kill and restart, and takes everything
// down again when ctx ends.
func (s *supervisor) run(ctx context.Context, ports *portRange, control net.Listener, send func(event) error) error {
	runErr := s.bringUp(ctx, ports, send)
	if runErr == nil {
		s.setPhase(Ready, nil)
		// The caller may have gone away; the sandbox is up all the same.
		_ = send(event{Ready: true})
		stopServing := s.serveControl(control)
		<-ctx.Done()
		stopServing()
		s.setPhase(Stopping, nil)
	} else {
		s.setPhase(Failed, runErr)
	}
	if err := s.children.stopAll(); err != nil {
		return errors.Join(runErr, err)
	}
	return runErr
}

func (s *supervisor) bringUp(ctx context.Context, ports *portRange, send func(event) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ca, err := newAuthority()
	if err != nil {
		return err
	}
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the simulator's program: %w", err)
	}
	apiPort := ports.next()
	b := &bringUp{
		setup: &setup{
			layout: s.layout, options: s.state.Options, ports: ports, ca: ca,
			apiPort: apiPort, server: "https://" + loopback(apiPort), executable: executable,
		},
		children: s.children,
		progress: func(step string) {
			fmt.Println(time.Now().Format(time.TimeOnly), step)
			if err := send(event{Step: step}); err != nil {
				cancel(errAbandoned)
			}
		},
	}
	err = b.run(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// errAbandoned: the Up that asked for the sandbox died meanwhile. Nobody knows
// of a sandbox that is half up, so it goes down again.
var errAbandoned = errors.New("the command that started the sandbox went away")

// save writes the state file. A failure is logged: the state can be written
// again at the next change, and no component should die of it.
func (s *supervisor) save() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.children != nil {
		s.state.Components = s.children.components()
	}
	if err := s.state.write(s.layout); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func (s *supervisor) setPhase(phase Phase, err error) {
	s.mu.Lock()
	s.state.Phase, s.state.Error = phase, ""
	if err != nil {
		s.state.Error = err.Error()
	}
	s.mu.Unlock()
	s.save()
}

// clean ends what a crashed run left running in the folder, and deletes its
// data.
func clean(ctx context.Context, l layout) error {
	var left []Process
	state, err := readState(l)
	if err == nil {
		left = state.processes()
	} else if !errors.Is(err, errNoSandbox) {
		// A state that cannot be read names nobody; the search below does.
		fmt.Fprintln(os.Stderr, err)
	}
	found, err := findByDir(l.dir)
	if err != nil {
		return err
	}
	for _, p := range found {
		if p.PID != os.Getpid() {
			left = append(left, p)
		}
	}
	if err := killAll(ctx, left); err != nil {
		return err
	}
	return l.removeData()
}

// killAll ends the processes with KILL and waits until they are gone.
func killAll(ctx context.Context, processes []Process) error {
	for _, p := range processes {
		if err := p.Signal(unix.SIGKILL); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if alive := waitGone(ctx, processes); len(alive) > 0 {
		return fmt.Errorf("%d processes do not end on KILL, the first is %d", len(alive), alive[0].PID)
	}
	return nil
}

// removeOldLogs deletes the components' logs of the run before. The
// supervisor's own is open already, and was emptied when it was opened.
func removeOldLogs(l layout) error {
	paths, err := filepath.Glob(l.log("*"))
	if err != nil {
		return fmt.Errorf("listing old logs: %w", err)
	}
	for _, path := range paths {
		if path == l.log(supervisorLog) {
			continue
		}
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("removing an old log: %w", err)
		}
	}
	return nil
}
