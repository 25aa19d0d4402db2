package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/cmd/scheduler/app"
	"github.com/muster-gpu/muster/internal/invariants"
	"github.com/muster-gpu/muster/internal/testcluster"
)

// configVariable names the configuration file of a scheduler. A test binary
// that has it in its environment is that scheduler, and tests nothing.
const configVariable = "MUSTER_TEST_SCHEDULER_CONFIG"

func TestMain(m *testing.M) {
	if file := os.Getenv(configVariable); file != "" {
		fmt.Fprintln(os.Stderr, serve(file))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// serve is a scheduler in a process of its own. It ends with the test that
// started it, which holds the other end of its input.
func serve(file string) error {
	go func() {
		// Whatever ends the reading, nobody is there any more.
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	ctrllog.SetLogger(klog.Background())
	config, err := configv1alpha1.LoadScheduler(file)
	if err != nil {
		return err
	}
	// No port can be named in a file that is free for sure.
	config.SecureServing.Port = 0
	a, err := app.New(context.Background(), config)
	if err != nil {
		return err
	}
	return a.Run(context.Background())
}

// process is a scheduler that can be killed.
type process struct {
	cmd  *exec.Cmd
	name string
	log  string
	// ended is closed when the process has.
	ended chan struct{}
}

// spawn starts a scheduler in a process of its own, with the environment's
// configuration and the API behind kubeconfig.
func (e *env) spawn(t *testing.T, name, kubeconfig string) *process {
	t.Helper()
	dir := t.TempDir()
	config := *e.config
	config.ClientConnection.Kubeconfig = kubeconfig
	data, err := yaml.Marshal(config)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.yaml"), data, 0o600)
	}
	if err != nil {
		t.Fatalf("writing the configuration of scheduler %s: %v", name, err)
	}
	p := &process{name: name, log: filepath.Join(dir, name+".log"), ended: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd = exec.Command(self)
	p.cmd.Env = append(os.Environ(), configVariable+"="+filepath.Join(dir, "config.yaml"))
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if _, err := p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("starting scheduler %s: %v", name, err)
	}
	go func() {
		defer close(p.ended)
		// How it ended does not matter; most are killed.
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		if t.Failed() {
			// Go programs say then where each of their goroutines is.
			_ = p.cmd.Process.Signal(syscall.SIGQUIT)
			p.gone(t)
		}
		p.kill()
		p.dump(t)
	})
	return p
}

// kill ends the process as kill -9 does, and returns when it is gone.
func (p *process) kill() {
	// An error says that it is gone already.
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// leads waits until the scheduler has taken over the jobs that are admitted. A
// process takes its time to start where others want the machine too.
func (p *process) leads(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); ; {
		data, err := os.ReadFile(p.log)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte("Admitted jobs taken over from the API")) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("scheduler %s does not begin to lead", p.name)
		}
		select {
		case <-p.ended:
			t.Fatalf("scheduler %s has ended", p.name)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// gone waits until the process has ended by itself.
func (p *process) gone(t *testing.T) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		t.Fatalf("scheduler %s goes on", p.name)
	}
}

// dump shows the end of the scheduler's log when a test has failed.
func (p *process) dump(t *testing.T) {
	if !t.Failed() {
		return
	}
	data, err := os.ReadFile(p.log)
	if err != nil {
		t.Logf("the log of scheduler %s: %v", p.name, err)
		return
	}
	// Its start, and its end: between them may be all its goroutines.
	const start, end = 50_000, 200_000
	if len(data) > start+end {
		data = slices.Concat(data[:start], []byte("\n...\n"), data[len(data)-end:])
	}
	t.Logf("scheduler %s:\n%s", p.name, data)
}

// stages are environments on one API server, one after the other, each watched
// for what must always hold.
type stages struct {
	cluster *testcluster.Cluster
	watcher *invariants.Watcher
	n       int
}

// TestReplicas runs schedulers in processes of their own: they are killed, they
// follow each other, and their API fails.
func TestReplicas(t *testing.T) {
	cluster := testcluster.Start(t)
	watcher, err := invariants.Start(t.Context(), cluster.Config, invariants.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watcher.Stop)
	s := &stages{cluster: cluster, watcher: watcher}
	t.Run("killed", func(t *testing.T) { kills(t, s) })
	t.Run("followed", func(t *testing.T) { handOvers(t, s) })
	t.Run("failing", func(t *testing.T) { failures(t, s) })
	t.Run("behind", func(t *testing.T) { standbys(t, s) })
}

// next is an environment without a scheduler.
func (s *stages) next(t *testing.T) *env {
	t.Helper()
	s.n++
	e := &env{Cluster: s.cluster, namespace: fmt.Sprintf("replicas-%d", s.n), jobs: s.cluster.RunJobSets(t)}
	e.config = configv1alpha1.DefaultScheduler()
	e.config.LeaderElection.LeaderElect = false
	e.config.LeaderElection.ResourceNamespace = e.namespace
	e.config.Admission.Requeue.BackoffBase.Duration = time.Second
	s.cluster.Namespace(t, e.namespace)
	t.Cleanup(func() { e.holds(t, s.watcher) })
	t.Cleanup(func() { e.dump(t) })
	return e
}
