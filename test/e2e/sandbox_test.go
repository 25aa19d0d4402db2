package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/internal/invariants"
	"github.com/muster-gpu/muster/internal/sandbox"
)

// root is the repository's folder, seen from this package.
const root = "../.."

// patience bounds every wait of these tests.
const patience = 60 * time.Second

// binaries is the folder of the built programs, absolute.
func binaries(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join(root, "bin"))
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"sandbox", "scheduler", "webhook"} {
		if _, err := os.Stat(filepath.Join(dir, program)); err != nil {
			t.Fatalf("%v; run \"make sandbox\" first", err)
		}
	}
	return dir
}

// folder is where a sandbox of these tests lives. Nothing runs in it, or in a
// folder below it, when it is returned, nor when the test has ended.
func folder(t *testing.T, name string, below ...string) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join(root, ".sandbox", "e2e-"+name))
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
		noProcess(t, dir)
	})
	return dir
}

// noProcess fails the test if a process of a sandbox in dir or below is alive.
func noProcess(t *testing.T, dir string) {
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

// cluster is a running sandbox with a client for its administrator, and a
// watcher of what must always hold there.
type cluster struct {
	*sandbox.Sandbox
	client  client.Client
	watcher *invariants.Watcher
}

// up runs a sandbox of four 8-GPU nodes with everything in it until the test
// ends. Whatever the test does, what must always hold must hold.
func up(t *testing.T, name string, change ...func(*sandbox.Options)) *cluster {
	t.Helper()
	bin := binaries(t)
	dir := folder(t, name)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	options := sandbox.Options{Dir: dir, BinDir: bin}
	for _, c := range change {
		c(&options)
	}
	s, err := sandbox.Up(ctx, options)
	if err != nil {
		t.Fatalf("starting the sandbox: %v", err)
	}
	config, err := s.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst, config.Timeout = 100, 200, 10*time.Second
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(kueue.AddToScheme(scheme))
	utilruntime.Must(jobset.AddToScheme(scheme))
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := invariants.Start(ctx, config, invariants.Options{})
	if err != nil {
		t.Fatal(err)
	}
	up := &cluster{Sandbox: s, client: c, watcher: watcher}
	t.Cleanup(func() {
		up.holds(t)
		watcher.Stop()
	})
	return up
}

// holds fails the test if anything was broken that must always hold.
func (c *cluster) holds(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.watcher.Check(ctx); err != nil {
		t.Error(err)
	}
}

// kill ends a component with SIGKILL.
func (c *cluster) kill(t *testing.T, component string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.Kill(ctx, component); err != nil {
		t.Fatal(err)
	}
}

// restart starts a component again and waits until it is ready.
func (c *cluster) restart(t *testing.T, component string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.Restart(ctx, component); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until check returns nil, and fails the test with its last
// error otherwise.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := poll(ctx, check); err != nil {
		t.Fatalf("waiting %s for %s: %v", patience, what, err)
	}
}

// poll checks until check returns nil or ctx ends; then it returns the last
// error. A check is not cut short by ctx, so that its error says what was found;
// the client bounds each request.
func poll(ctx context.Context, check func(ctx context.Context) error) error {
	last := errors.New("never checked")
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		last = check(context.WithoutCancel(ctx))
		return last == nil, nil
	})
	if err == nil {
		return nil
	}
	return last
}
