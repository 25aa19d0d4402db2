package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// stopTime bounds how long a supervisor may take to stop its components in
// good order; what then still lives is killed.
const stopTime = 20 * time.Second

// Sandbox is one running sandbox.
type Sandbox struct {
	layout layout
}

// Up starts a sandbox and returns when everything in it is ready. The sandbox
// goes on running when the calling program ends. If it cannot come up, or ctx
// ends first, what was started is stopped again, and the error names the
// component and carries the last lines of its log.
func Up(ctx context.Context, options Options) (*Sandbox, error) {
	options, err := options.complete()
	if err != nil {
		return nil, err
	}
	if err := options.checkBinaries(); err != nil {
		return nil, err
	}
	l := layout{dir: options.Dir}
	if err := l.claim(); err != nil {
		return nil, err
	}
	if err := refuseSecond(l); err != nil {
		return nil, err
	}
	events, process, err := spawn(l, options)
	if err != nil {
		return nil, err
	}
	defer events.Close()
	outcome := make(chan error, 1)
	go func() { outcome <- follow(events, l, options.Progress) }()
	select {
	case err = <-outcome:
	case <-ctx.Done():
		err = fmt.Errorf("gave up, and stopped what was started: %w", context.Cause(ctx))
		if killErr := process.Signal(unix.SIGTERM); killErr != nil {
			err = errors.Join(err, killErr)
		}
	}
	if err == nil {
		return &Sandbox{layout: l}, nil
	}
	// The supervisor takes down what it started before it ends.
	waiting, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	if len(waitGone(waiting, []Process{process})) > 0 {
		// The components die with it.
		err = errors.Join(err, killAll(context.WithoutCancel(ctx), []Process{process}))
	}
	return nil, err
}

// refuseSecond says clearly that the folder is taken, before a process is
// started only to find the lock held.
func refuseSecond(l layout) error {
	lock, err := l.hold()
	if errors.Is(err, errLocked) {
		owner := ""
		if state, err := readState(l); err == nil {
			owner = fmt.Sprintf(" (supervisor is process %d)", state.Supervisor.PID)
		}
		return fmt.Errorf("a sandbox already runs in %s%s; stop it with \"sandbox down --dir %s\" or choose another --dir", l.dir, owner, l.dir)
	}
	if err != nil {
		return err
	}
	return lock.Close()
}

// spawn starts the detached supervisor: its own session, no terminal, its own
// log. Events come over a pipe that nobody else holds, so that its end is the
// supervisor's end.
func spawn(l layout, options Options) (*os.File, Process, error) {
	encoded, err := json.Marshal(options)
	if err != nil {
		return nil, Process{}, fmt.Errorf("encoding the options: %w", err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, Process{}, fmt.Errorf("opening a pipe to the supervisor: %w", err)
	}
	defer write.Close()
	log, err := os.OpenFile(l.log(supervisorLog), os.O_CREATE|os.O_WRONLY|os.O_APPEND|os.O_TRUNC, 0o600)
	if err != nil {
		read.Close()
		return nil, Process{}, fmt.Errorf("opening the supervisor's log: %w", err)
	}
	defer log.Close()
	command := exec.Command(filepath.Join(options.BinDir, binarySandbox), "supervise")
	command.Dir = l.dir
	command.Env = append(os.Environ(), dirVariable+"="+l.dir)
	command.Stdin = bytes.NewReader(encoded)
	command.Stdout, command.Stderr = log, log
	command.ExtraFiles = []*os.File{write}
	command.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		read.Close()
		return nil, Process{}, fmt.Errorf("starting the supervisor: %w", err)
	}
	process, err := identify(command.Process.Pid)
	// Reap it if it ends before we do; how it ended is in its log.
	go func() { _ = command.Wait() }()
	if err != nil {
		read.Close()
		return nil, Process{}, fmt.Errorf("starting the supervisor: %w", err)
	}
	return read, process, nil
}

// follow copies progress lines until the supervisor says that the sandbox is
// ready, or why it is not.
func follow(events io.Reader, l layout, progress io.Writer) error {
	began := time.Now()
	decoder := json.NewDecoder(events)
	for {
		var e event
		if err := decoder.Decode(&e); err != nil {
			return fmt.Errorf("the supervisor ended without a word; last lines of %s:\n%s",
				l.log(supervisorLog), strings.Join(lastLines(l.log(supervisorLog), 12), "\n"))
		}
		switch {
		case e.Error != "":
			return errors.New(e.Error)
		case e.Ready:
			return nil
		default:
			fmt.Fprintf(progress, "[%5.1f s] %s\n", time.Since(began).Seconds(), e.Step)
		}
	}
}

// Open finds the sandbox that runs in dir. It returns an error when there is
// none, or its supervisor died.
func Open(dir string) (*Sandbox, error) {
	l, err := openLayout(dir)
	if err != nil {
		return nil, err
	}
	state, err := readState(l)
	if err != nil {
		return nil, err
	}
	if !state.Supervisor.Alive() {
		return nil, fmt.Errorf("the sandbox in %s has lost its supervisor; clean up with \"sandbox down --dir %s\"", l.dir, l.dir)
	}
	return &Sandbox{layout: l}, nil
}

func openLayout(dir string) (layout, error) {
	if dir == "" {
		dir = DefaultDir
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return layout{}, fmt.Errorf("making %s absolute: %w", dir, err)
	}
	return layout{dir: absolute}, nil
}

// Dir is the sandbox's folder, absolute.
func (s *Sandbox) Dir() string { return s.layout.dir }

// Kubeconfig is the path of the administrator's kubeconfig, absolute.
func (s *Sandbox) Kubeconfig() string { return s.layout.kubeconfig() }

// RESTConfig connects as the administrator.
func (s *Sandbox) RESTConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("reading the sandbox's kubeconfig: %w", err)
	}
	return config, nil
}

// State reads what the sandbox says about itself now.
func (s *Sandbox) State() (*State, error) { return readState(s.layout) }

// Kill ends a component with KILL and returns when it is gone. Nothing starts
// it again but Restart.
func (s *Sandbox) Kill(ctx context.Context, component string) error {
	return s.ask(ctx, "kill", component)
}

// Restart ends a component if it runs, starts it again and returns when it is
// ready.
func (s *Sandbox) Restart(ctx context.Context, component string) error {
	return s.ask(ctx, "restart", component)
}

func (s *Sandbox) ask(ctx context.Context, order, component string) error {
	state, err := s.known(component)
	if err != nil {
		return err
	}
	return state.ask(ctx, order, component)
}

// known reads the state and refuses a component that it does not have.
func (s *Sandbox) known(component string) (*State, error) {
	state, err := s.State()
	if err != nil {
		return nil, err
	}
	if state.component(component) == nil {
		var names []string
		for _, c := range state.Components {
			names = append(names, c.Name)
		}
		return nil, fmt.Errorf("no component %q; there are %s", component, strings.Join(names, ", "))
	}
	return state, nil
}

// Down stops the sandbox; see the function Down.
func (s *Sandbox) Down(ctx context.Context) error { return Down(ctx, s.layout.dir) }

// Down stops whatever runs in dir, also what a crash left, and returns when no
// process of it is alive. Logs are kept, everything else is deleted. It is not
// an error when nothing runs.
func Down(ctx context.Context, dir string) error {
	l, err := openLayout(dir)
	if err != nil {
		return err
	}
	var processes []Process
	state, err := readState(l)
	switch {
	case err == nil:
		processes = state.processes()
		if err := state.Supervisor.Signal(unix.SIGTERM); err != nil {
			return err
		}
		stopping, cancel := context.WithTimeout(ctx, stopTime)
		waitGone(stopping, processes[:1])
		cancel()
	case !errors.Is(err, errNoSandbox):
		return err
	}
	// Whatever the supervisor could not stop, and what was left when it was
	// killed itself.
	found, err := findByDir(l.dir)
	if err != nil {
		return err
	}
	processes = append(processes, slices.DeleteFunc(found, func(p Process) bool { return p.PID == os.Getpid() })...)
	if err := killAll(ctx, processes); err != nil {
		return err
	}
	if _, err := os.Stat(l.lock()); err != nil {
		return nil
	}
	return l.removeData()
}

// Logs writes a component's output, or the supervisor's, to out; with follow
// also what is added until ctx ends. It works after the sandbox stopped.
func Logs(ctx context.Context, dir, component string, out io.Writer, follow bool) error {
	l, err := openLayout(dir)
	if err != nil {
		return err
	}
	paths, err := filepath.Glob(l.log("*"))
	if err != nil {
		return fmt.Errorf("listing logs: %w", err)
	}
	if !slices.Contains(paths, l.log(component)) {
		var names []string
		for _, path := range paths {
			names = append(names, strings.TrimSuffix(filepath.Base(path), ".log"))
		}
		return fmt.Errorf("no log of %q in %s; there are logs of %s", component, l.dir, strings.Join(names, ", "))
	}
	return copyLog(ctx, l.log(component), out, follow)
}
