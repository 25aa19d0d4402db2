package handover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/internal/sandbox"
)

// root is the repository's folder, seen from this package.
const root = "../.."

// patience bounds every wait of these tests.
const patience = 2 * time.Minute

// cluster is a running sandbox with Kueue in it, in which Kueue decides.
type cluster struct {
	*sandbox.Sandbox
	client.Client
	bin string
}

// up runs a sandbox of four 8-GPU nodes until the test ends.
func up(t *testing.T) *cluster {
	t.Helper()
	bin, err := filepath.Abs(filepath.Join(root, "bin"))
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"sandbox", "scheduler", "webhook", "kueue-controller", "kubectl-muster"} {
		if _, err := os.Stat(filepath.Join(bin, program)); err != nil {
			t.Fatalf("%v; run \"make test-handover\"", err)
		}
	}
	dir, err := filepath.Abs(filepath.Join(root, ".sandbox", "handover"))
	if err != nil {
		t.Fatal(err)
	}
	down := func() {
		if err := sandbox.Down(context.Background(), dir); err != nil {
			t.Errorf("taking the sandbox down: %v", err)
		}
	}
	down()
	t.Cleanup(down)
	config := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(config, []byte(configuration("kueue")), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	s, err := sandbox.Up(ctx, sandbox.Options{
		Dir: dir, BinDir: bin, Config: config,
		With: []string{sandbox.WithTrainer, sandbox.WithJobSet, sandbox.WithScheduler, sandbox.WithWebhook, sandbox.WithKueue},
	})
	if err != nil {
		t.Fatalf("starting the sandbox: %v", err)
	}
	api, err := s.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	api.QPS, api.Burst, api.Timeout = 100, 200, 10*time.Second
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	utilruntime.Must(kueue.AddToScheme(scheme))
	utilruntime.Must(jobset.AddToScheme(scheme))
	c, err := client.New(api, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{Sandbox: s, Client: c, bin: bin}
}

func configuration(provider string) string {
	return "apiVersion: config.muster.dev/v1alpha1\nkind: SchedulerConfiguration\nprofiles: [muster, default-scheduler]\nquota: {provider: " + provider + "}\n"
}

// decides has Muster's scheduler started again with another provider of quota.
func (c *cluster) decides(t *testing.T, provider string) {
	t.Helper()
	path := filepath.Join(c.Dir(), "config", "muster-scheduler.yaml")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before := string(content)
	for _, other := range []string{"kueue", "native"} {
		before = strings.Replace(before, "provider: "+other+"\n", "provider: "+provider+"\n", 1)
	}
	if !strings.Contains(before, "provider: "+provider+"\n") {
		t.Fatalf("the configuration names no provider:\n%s", before)
	}
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	c.restart(t, "muster-scheduler")
}

func (c *cluster) restart(t *testing.T, component string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.Restart(ctx, component); err != nil {
		t.Fatal(err)
	}
}

// doctor runs the admin's command, and returns what it says and how it ended.
func (c *cluster) doctor(ctx context.Context, args ...string) (string, error) {
	command := exec.CommandContext(ctx, filepath.Join(c.bin, "kubectl-muster"),
		append([]string{"doctor", "--kueue-handover", "--kubeconfig", c.Kubeconfig()}, args...)...)
	out, err := command.CombinedOutput()
	return string(out), err
}

// webhookURL is where Muster's webhook runs.
func (c *cluster) webhookURL(t *testing.T) string {
	t.Helper()
	state, err := c.State()
	if err != nil {
		t.Fatal(err)
	}
	for _, component := range state.Components {
		if component.Name == "muster-webhook" {
			return fmt.Sprintf("https://127.0.0.1:%d", component.Ports["webhook"])
		}
	}
	t.Fatal("there is no webhook")
	return ""
}

// eventually waits until check returns nil, and fails the test with its last
// error otherwise.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	last := errors.New("never checked")
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		last = check(context.WithoutCancel(ctx))
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("waiting %s for %s: %v", patience, what, last)
	}
}
