package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// program says how one component is run and when it is ready.
type program struct {
	name string
	path string
	args []string
	// env is added to the supervisor's own environment.
	env []string
	// ports by purpose, shown in the state.
	ports map[string]int
	// ready returns nil once the component serves.
	ready func(context.Context) error
	// wait bounds the time from start to ready, grace that from TERM to KILL.
	wait, grace time.Duration
}

// children starts, watches and stops the components of one supervisor.
type children struct {
	layout layout
	// changed is called, without locks held, after a component started or
	// ended.
	changed func()

	mu      sync.Mutex
	order   []*child
	starts  chan func()
	stopped bool
}

// child is one component and its present process.
type child struct {
	program
	command  *exec.Cmd
	process  Process
	started  time.Time
	restarts int
	exit     string
	// done is closed when the present process has been reaped.
	done chan struct{}
}

func newChildren(l layout, changed func()) *children {
	c := &children{layout: l, changed: changed, starts: make(chan func())}
	go func() {
		// The kernel ties Pdeathsig to the thread that forked, not to the
		// process: all children are forked from one thread that never ends.
		runtime.LockOSThread()
		for start := range c.starts {
			start()
		}
	}()
	return c
}

// errStopping: the sandbox is going down and starts nothing any more.
var errStopping = errors.New("the sandbox is stopping")

// start runs p, for the first time or again after it ended.
func (c *children) start(p program) error {
	c.mu.Lock()
	err := c.startLocked(p)
	c.mu.Unlock()
	c.changed()
	return err
}

func (c *children) startLocked(p program) error {
	if c.stopped {
		return errStopping
	}
	ch := c.find(p.name)
	if ch != nil && ch.exit == "" {
		return fmt.Errorf("%s already runs as process %d", p.name, ch.process.PID)
	}
	log, err := os.OpenFile(c.layout.log(p.name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log of %s: %w", p.name, err)
	}
	defer log.Close()
	command := exec.Command(p.path, p.args...)
	command.Dir = c.layout.dir
	command.Env = append(os.Environ(), p.env...)
	command.Env = append(command.Env, dirVariable+"="+c.layout.dir)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL, Setpgid: true}
	started := make(chan error)
	c.starts <- func() { started <- command.Start() }
	if err := <-started; err != nil {
		return fmt.Errorf("starting %s: %w", p.name, err)
	}
	process, err := identify(command.Process.Pid)
	if err != nil {
		// It cannot have been reaped yet, so this is a broken /proc.
		_ = command.Process.Kill()
		_ = command.Wait()
		return fmt.Errorf("starting %s: %w", p.name, err)
	}
	if ch == nil {
		ch = &child{}
		c.order = append(c.order, ch)
	} else {
		ch.restarts++
	}
	ch.program, ch.command, ch.process, ch.exit = p, command, process, ""
	ch.started, ch.done = time.Now(), make(chan struct{})
	go c.reap(ch, command, ch.done)
	return nil
}

func (c *children) reap(ch *child, command *exec.Cmd, done chan struct{}) {
	err := command.Wait()
	c.mu.Lock()
	ch.exit = "exit status 0"
	if err != nil {
		ch.exit = err.Error()
	}
	c.mu.Unlock()
	c.changed()
	close(done)
}

func (c *children) find(name string) *child {
	for _, ch := range c.order {
		if ch.name == name {
			return ch
		}
	}
	return nil
}

// lookup returns a copy of the component's present state.
func (c *children) lookup(name string) (child, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch := c.find(name); ch != nil {
		return *ch, true
	}
	return child{}, false
}

// components lists what the state file says about the children.
func (c *children) components() []Component {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]Component, 0, len(c.order))
	for _, ch := range c.order {
		list = append(list, Component{
			Name: ch.name, Process: ch.process, Ports: ch.ports, Log: c.layout.log(ch.name),
			Started: ch.started, Restarts: ch.restarts, Exit: ch.exit,
		})
	}
	return list
}

// awaitReady waits until the component serves. The error names the component
// and carries the last lines of its log.
func (c *children) awaitReady(ctx context.Context, name string) error {
	ch, ok := c.lookup(name)
	if !ok {
		return fmt.Errorf("no component %s", name)
	}
	ctx, cancel := context.WithTimeout(ctx, ch.wait)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		// A probe gets a slice of the time, so that one that hangs is retried.
		probe, cancelProbe := context.WithTimeout(ctx, 5*time.Second)
		err := ch.ready(probe)
		cancelProbe()
		if err == nil {
			return nil
		}
		select {
		case <-ch.done:
			ended, _ := c.lookup(name)
			return c.complaint(name, fmt.Sprintf("ended (%s) before it was ready", ended.exit))
		case <-ctx.Done():
			if context.Cause(ctx) != context.DeadlineExceeded {
				return fmt.Errorf("waiting for %s: %w", name, ctx.Err())
			}
			return c.complaint(name, fmt.Sprintf("is not ready after %s: %v", ch.wait, err))
		case <-tick.C:
		}
	}
}

// complaint is an error about a component with the last lines of its log.
func (c *children) complaint(name, what string) error {
	return fmt.Errorf("%s %s\nlast lines of %s:\n%s", name, what, c.layout.log(name), strings.Join(lastLines(c.layout.log(name), 12), "\n"))
}

// stop ends one component: TERM, its grace, KILL. It returns when the process
// has been reaped.
func (c *children) stop(name string) error {
	return c.end(name, unix.SIGTERM)
}

// kill ends one component with KILL.
func (c *children) kill(name string) error {
	return c.end(name, unix.SIGKILL)
}

func (c *children) end(name string, sig unix.Signal) error {
	ch, ok := c.lookup(name)
	if !ok {
		return fmt.Errorf("no component %s", name)
	}
	if err := ch.process.Signal(sig); err != nil {
		return fmt.Errorf("stopping %s: %w", name, err)
	}
	select {
	case <-ch.done:
		return nil
	case <-time.After(ch.grace):
	}
	if err := ch.process.Signal(unix.SIGKILL); err != nil {
		return fmt.Errorf("stopping %s: %w", name, err)
	}
	select {
	case <-ch.done:
		return nil
	case <-time.After(10 * time.Second):
		return fmt.Errorf("%s (process %d) does not end on KILL", name, ch.process.PID)
	}
}

// stopAll ends every component, those that were started last first, and lets
// none start any more. Everything that is a client of the API server ends at
// once; the API server and etcd follow in turn.
func (c *children) stopAll() error {
	c.mu.Lock()
	c.stopped = true
	var clients, servers []string
	for i := len(c.order) - 1; i >= 0; i-- {
		switch name := c.order[i].name; name {
		case componentAPIServer, componentEtcd:
			servers = append(servers, name)
		default:
			clients = append(clients, name)
		}
	}
	c.mu.Unlock()
	errs := make([]error, len(clients))
	var group sync.WaitGroup
	for i, name := range clients {
		group.Go(func() { errs[i] = c.stop(name) })
	}
	group.Wait()
	for _, name := range servers {
		errs = append(errs, c.stop(name))
	}
	return errors.Join(errs...)
}
