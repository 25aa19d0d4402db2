package kubelet

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// graceOf is how long a program has to end by itself.
const graceOf = 20 * time.Second

// process is a program that runs beside the sandbox's own, and counts as one of these.
type process struct {
	command *exec.Cmd
	log     string
	// ended is closed once it has.
	ended chan struct{}
}

// run starts a program, which logs to a file of that name beside the sandbox's logs.
func (n *node) run(t *testing.T, name, path string, args ...string) *process {
	t.Helper()
	p := &process{command: exec.Command(path, args...), log: filepath.Join(n.cluster.Dir(), "logs", name+".log"), ended: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p.command.Env = append(os.Environ(), n.mark())
	p.command.Stdout, p.command.Stderr = log, log
	// It is not for the terminal of who runs the test to stop it.
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.command.Wait()
		close(p.ended)
	}()
	return p
}

// mark is what the sandbox knows its processes by, in their environment.
func (n *node) mark() string { return "MUSTER_SANDBOX_DIR=" + n.cluster.Dir() }

// alive is an error once the process has ended.
func (p *process) alive() error {
	select {
	case <-p.ended:
		return errors.New("it has ended, see " + p.log)
	default:
		return nil
	}
}

// stop ends the process, by force if it does not do so itself.
func (p *process) stop(t *testing.T, with syscall.Signal) {
	t.Helper()
	if p == nil {
		return
	}
	_ = p.command.Process.Signal(with)
	select {
	case <-p.ended:
	case <-time.After(graceOf):
		t.Errorf("%s does not end on %s", p.command.Path, with)
		_ = p.command.Process.Kill()
		<-p.ended
	}
	if t.Failed() {
		t.Logf("the end of %s:\n%s", p.log, endOf(p.log))
	}
}

// endOf is what a log file says last.
func endOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > 4<<10 {
		_, _ = f.Seek(-4<<10, io.SeekEnd)
	}
	content, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return string(content)
}
