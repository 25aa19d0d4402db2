package handover

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/internal/sandbox"
	"github.com/muster-gpu/muster/internal/testsandbox"
)

// patience bounds every wait of these tests.
const patience = 2 * time.Minute

// cluster is a running sandbox with Kueue in it, in which Kueue decides.
type cluster struct {
	*testsandbox.Cluster
	client.Client
}

// up runs a sandbox of four 8-GPU nodes until the test ends.
func up(t *testing.T) *cluster {
	t.Helper()
	config := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(config, []byte(configuration("kueue")), 0o600); err != nil {
		t.Fatal(err)
	}
	c := testsandbox.Up(t, "handover", sandbox.Options{
		Config: config,
		With:   []string{sandbox.WithTrainer, sandbox.WithJobSet, sandbox.WithScheduler, sandbox.WithWebhook, sandbox.WithKueue},
	})
	return &cluster{Cluster: c, Client: c.Client}
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
	c.RestartNow(t, "muster-scheduler")
}

// doctor runs the admin's command, and returns what it says and how it ended.
func (c *cluster) doctor(ctx context.Context, t *testing.T, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(ctx, filepath.Join(testsandbox.BinDir(t), "kubectl-muster"),
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
	testsandbox.Eventually(t, patience, what, check)
}
