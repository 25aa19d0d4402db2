package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/muster-gpu/muster/internal/testobject"
	"github.com/muster-gpu/muster/internal/testsandbox"
)

// replica is one of several processes of a program, those of the webhook behind one address.
type replica struct {
	config          string
	webhook, health string
	process         *exec.Cmd
	ended           chan error
	// ready is what its probe said last.
	ready atomic.Bool
}

// newReplica is one of the webhook that is configured as the sandbox's, and has ports of its
// own.
func (c *cluster) newReplica(t *testing.T) *replica {
	t.Helper()
	webhook, health := freeAddress(t), freeAddress(t)
	r := c.configured(t, "muster-webhook", func(config map[string]any) {
		config["webhook"].(map[string]any)["port"] = webhook.Port()
		config["health"].(map[string]any)["bindAddress"] = health.String()
	})
	r.webhook, r.health = webhook.String(), health.String()
	return r
}

// configured is a replica whose configuration is changed from the sandbox's.
func (c *cluster) configured(t *testing.T, component string, change func(config map[string]any)) *replica {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(c.Dir(), "config", component+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := yaml.Unmarshal(content, &config); err != nil {
		t.Fatal(err)
	}
	change(config)
	if content, err = yaml.Marshal(config); err != nil {
		t.Fatal(err)
	}
	r := &replica{config: filepath.Join(t.TempDir(), component+".yaml")}
	if err := os.WriteFile(r.config, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

// freeAddress is one that nobody listens at.
func freeAddress(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// run starts a replica of a program.
func (r *replica) run(t *testing.T, c *cluster, program string) {
	t.Helper()
	r.process = exec.Command(filepath.Join(testsandbox.BinDir(t), program), "--config="+r.config)
	r.process.Env = append(os.Environ(), "MUSTER_SANDBOX_DIR="+c.Dir())
	if err := r.process.Start(); err != nil {
		t.Fatal(err)
	}
	r.ended = make(chan error, 1)
	go func() { r.ended <- r.process.Wait() }()
}

// start runs a replica of the webhook, and waits until its probe says that it is ready.
func (r *replica) start(t *testing.T, c *cluster) {
	t.Helper()
	r.run(t, c, "webhook")
	eventually(t, "the replica to be ready", func(context.Context) error {
		if !r.ready.Load() {
			return fmt.Errorf("its probe says no")
		}
		return nil
	})
}

// stop ends the replica, and waits until it has ended. With SIGTERM it is asked to, as a
// kubelet does.
func (r *replica) stop(t *testing.T, signal unix.Signal) {
	t.Helper()
	if err := r.process.Process.Signal(signal); errors.Is(err, os.ErrProcessDone) {
		return
	} else if err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-r.ended:
		if signal == unix.SIGTERM && err != nil {
			t.Errorf("the replica ended with: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the replica does not end")
	}
}

// balancer leads each connection to one of the replicas that are ready, in turn, as a
// Service does.
type balancer struct {
	net.Listener
	replicas []*replica
	next     atomic.Int64
}

// balance runs until the test ends.
func balance(t *testing.T, replicas ...*replica) *balancer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{Listener: l, replicas: replicas}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, r := range replicas {
		running.Go(func() {
			for ctx.Err() == nil {
				response, err := http.Get("http://" + r.health + "/readyz")
				r.ready.Store(err == nil && response.StatusCode == http.StatusOK)
				if err == nil {
					response.Body.Close()
				}
				select {
				case <-ctx.Done():
				case <-time.After(50 * time.Millisecond):
				}
			}
		})
	}
	running.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go b.lead(from)
		}
	})
	t.Cleanup(func() {
		cancel()
		l.Close()
		running.Wait()
	})
	return b
}

func (b *balancer) lead(from net.Conn) {
	defer from.Close()
	first := int(b.next.Add(1))
	for i := range b.replicas {
		r := b.replicas[(first+i)%len(b.replicas)]
		if !r.ready.Load() {
			continue
		}
		to, err := net.Dial("tcp", r.webhook)
		if err != nil {
			continue
		}
		go func() {
			defer from.Close()
			_, _ = io.Copy(from, to)
		}()
		_, _ = io.Copy(to, from)
		to.Close()
		return
	}
}

// leadTo has the API server call the webhook at another address until the test ends.
func (c *cluster) leadTo(t *testing.T, address string) {
	t.Helper()
	var before string
	point := func(to *admissionregistrationv1.WebhookClientConfig, address string) {
		u, err := url.Parse(*to.URL)
		if err != nil {
			t.Fatal(err)
		}
		before, u.Host = u.Host, address
		to.URL = new(u.String())
	}
	lead := func(address string) {
		testobject.Change(t, c.client, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "muster-mutating"}},
			func(r *admissionregistrationv1.MutatingWebhookConfiguration) {
				for i := range r.Webhooks {
					point(&r.Webhooks[i].ClientConfig, address)
				}
			})
		testobject.Change(t, c.client, &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "muster-validating"}},
			func(r *admissionregistrationv1.ValidatingWebhookConfiguration) {
				for i := range r.Webhooks {
					point(&r.Webhooks[i].ClientConfig, address)
				}
			})
	}
	lead(address)
	original := before
	t.Cleanup(func() { lead(original) })
}

// creators is how many create pods at the same time.
const creators = 4

// podStream creates pods with GPUs as dry runs until it is stopped.
type podStream struct {
	stop    context.CancelFunc
	running sync.WaitGroup
	made    atomic.Int64
	mu      sync.Mutex
	failed  []string
}

func (tm team) streamPods() *podStream {
	ctx, cancel := context.WithCancel(context.Background())
	s := &podStream{stop: cancel}
	for i := range creators {
		s.running.Go(func() {
			for ctx.Err() == nil {
				pod := tm.alone(fmt.Sprintf("stream-%d", i), 1, nil, nil)
				err := tm.client.Create(context.Background(), pod, client.DryRunAll)
				if err == nil && variables(&pod.Spec.Containers[0])["NCCL_DEBUG"] == "" {
					err = fmt.Errorf("it misses its defaults")
				}
				s.made.Add(1)
				if err != nil {
					s.mu.Lock()
					s.failed = append(s.failed, err.Error())
					s.mu.Unlock()
				}
			}
		})
	}
	return s
}

// end stops the stream and returns what went wrong.
func (s *podStream) end(t *testing.T) []string {
	t.Helper()
	s.stop()
	s.running.Wait()
	t.Logf("%d pods, %d of them failed", s.made.Load(), len(s.failed))
	return s.failed
}

// goesOn waits until many more pods are made.
func (s *podStream) goesOn(t *testing.T) {
	t.Helper()
	from := s.made.Load()
	eventually(t, "more pods to be made", func(context.Context) error {
		if n := s.made.Load() - from; n < 200 {
			return fmt.Errorf("%d were", n)
		}
		return nil
	})
}

func eachStoppedInTurn(t *testing.T, tm team) {
	replicas := []*replica{tm.newReplica(t), tm.newReplica(t)}
	b := balance(t, replicas...)
	for _, r := range replicas {
		r.start(t, tm.cluster)
		t.Cleanup(func() { r.stop(t, unix.SIGKILL) })
	}
	tm.leadTo(t, b.Addr().String())
	tm.kill(t, "muster-webhook")
	defer tm.restart(t, "muster-webhook")
	// The API server learns of the address by a watch.
	eventually(t, "the replicas to be asked", func(ctx context.Context) error {
		return tm.client.Create(ctx, tm.alone("probe", 1, nil, nil), client.DryRunAll)
	})

	s := tm.streamPods()
	for _, r := range replicas {
		s.goesOn(t)
		r.stop(t, unix.SIGTERM)
		s.goesOn(t)
		r.start(t, tm.cluster)
	}
	s.goesOn(t)
	if failed := s.end(t); len(failed) > 0 {
		t.Errorf("pods failed while replicas were stopped and started: %s", strings.Join(failed, "\n"))
	}

	// One that is killed loses what it was asked just then.
	s = tm.streamPods()
	s.goesOn(t)
	replicas[0].stop(t, unix.SIGKILL)
	s.goesOn(t)
	if failed := s.end(t); len(failed) > creators {
		t.Errorf("%d pods failed when a replica was killed: %s", len(failed), strings.Join(failed, "\n"))
	}
	replicas[0].start(t, tm.cluster)
}
