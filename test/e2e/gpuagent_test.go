package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	prommodel "github.com/prometheus/common/model"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	musterv1alpha1 "github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/internal/sandbox"
	"github.com/muster-gpu/muster/internal/simulator"
	"github.com/muster-gpu/muster/internal/testsandbox"
	"github.com/muster-gpu/muster/workload"
)

// quick is an agent that needs a minute for what takes a quarter of an hour. A pod is
// called idle no sooner than the processes on its GPU have been looked for twice.
const quick = `
apiVersion: config.muster.dev/v1alpha1
kind: GPUAgentConfiguration
tick: 1s
verdicts: {idleAfter: 15s, idleAge: 45s, stalledAfter: 15s, reclaimAfter: 5s, reclaimAge: 45s, blindAfter: 5s}
`

// agentPatience bounds the wait for a verdict.
const agentPatience = 4 * time.Minute

// TestGPUAgent tells stories of the agents of nodes, on a sandbox of two.
func TestGPUAgent(t *testing.T) {
	config := filepath.Join(t.TempDir(), "gpu-agent.yaml")
	if err := os.WriteFile(config, []byte(quick), 0o600); err != nil {
		t.Fatal(err)
	}
	c := up(t, "gpuagent", func(o *sandbox.Options) { o.Nodes, o.GPUAgentConfig = 2, config })
	tellAll(t, c, "gpuagent", batchJobs, []story[batchTeam]{
		{"a node says of each GPU who holds it and what the holder does, and counts it", agentSays},
		{"an agent that was killed goes on with what it finds", agentKilled},
		{"an agent writes the GPUNode of its own node and no other", agentIsOfItsNode},
	})
}

// oneGPU is a Job of one pod with one GPU, in the queue "q".
func (tm batchTeam) oneGPU(name string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: tm.namespace, Name: name, Labels: map[string]string{workload.QueueLabel: "q"}},
		Spec:       jobSpec(1, 1),
	}
}

// does creates a Job of one pod with one GPU that does that.
func (tm batchTeam) does(t *testing.T, name, activity string) {
	t.Helper()
	job := tm.oneGPU(name)
	job.Spec.Template.Annotations = map[string]string{simulator.GPUActivityAnnotation: activity}
	tm.make(t, job)
}

// holders are all that the GPUNodes say of holders in the team's namespace, by the name
// of the workload.
func (tm team) holders(ctx context.Context) (map[string]musterv1alpha1.GPUHolder, error) {
	nodes := &musterv1alpha1.GPUNodeList{}
	if err := tm.client.List(ctx, nodes); err != nil {
		return nil, err
	}
	all := map[string]musterv1alpha1.GPUHolder{}
	for _, node := range nodes.Items {
		for _, d := range node.Status.Devices {
			for _, h := range d.Holders {
				if h.Namespace == tm.namespace {
					all[h.Workload] = h
				}
			}
		}
	}
	return all, nil
}

// saysOf waits until the GPUNodes say that of the workloads.
func (tm team) saysOf(t *testing.T, want map[string]musterv1alpha1.GPUVerdict) map[string]musterv1alpha1.GPUHolder {
	t.Helper()
	var all map[string]musterv1alpha1.GPUHolder
	testsandbox.Eventually(t, agentPatience, "verdicts", func(ctx context.Context) (err error) {
		if all, err = tm.holders(ctx); err != nil {
			return err
		}
		got := map[string]musterv1alpha1.GPUVerdict{}
		for name, h := range all {
			got[name] = h.Verdict
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return errors.New("(-want +got):\n" + diff)
		}
		return nil
	})
	return all
}

// scrape reads the metrics of a node's agent.
func (c *cluster) scrape(t *testing.T, node string) map[string]*dto.MetricFamily {
	t.Helper()
	state, err := c.State()
	if err != nil {
		t.Fatal(err)
	}
	for _, component := range state.Components {
		if component.Name != sandbox.GPUAgent(node) {
			continue
		}
		response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", component.Ports["metrics"]))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		parser := expfmt.NewTextParser(prommodel.LegacyValidation)
		families, err := parser.TextToMetricFamilies(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return families
	}
	t.Fatalf("no agent on %s", node)
	return nil
}

func agentSays(t *testing.T, tm batchTeam) {
	tm.queueUp(t, "q", 8)
	for _, activity := range []string{"busy", "idle", "stalled", "ghost", "hang"} {
		tm.does(t, activity, activity)
	}
	all := tm.saysOf(t, map[string]musterv1alpha1.GPUVerdict{
		"Job/busy": "active", "Job/idle": "idle", "Job/stalled": "stalled", "Job/ghost": "idle", "Job/hang": "unknown",
	})
	for name, h := range all {
		if h.Queue != tm.namespace+"-q" || h.PodUID == "" || h.Since.IsZero() {
			t.Errorf("%s: %+v", name, h)
		}
	}
	pods := tm.runs(t, "hang", 1)
	tm.behave(t, &pods[0], map[string]string{simulator.GPUActivityAnnotation: "busy"})
	tm.saysOf(t, map[string]musterv1alpha1.GPUVerdict{
		"Job/busy": "active", "Job/idle": "idle", "Job/stalled": "stalled", "Job/ghost": "idle", "Job/hang": "active",
	})
	sums := map[string]float64{}
	for _, node := range []string{"node-0", "node-1"} {
		for name, family := range tm.scrape(t, node) {
			verdict, ok := strings.CutSuffix(strings.TrimPrefix(name, "muster_gpu_"), "_seconds_total")
			for _, m := range family.Metric {
				for _, l := range m.Label {
					if ok && l.GetName() == "namespace" && l.GetValue() == tm.namespace {
						sums[verdict] += m.GetCounter().GetValue()
					}
				}
			}
		}
	}
	if parts := sums["active"] + sums["idle"] + sums["stalled"] + sums["unknown"]; parts != sums["allocated"] {
		t.Errorf("GPU-seconds do not add up: %v", sums)
	}
	for verdict, seconds := range sums {
		if seconds == 0 {
			t.Errorf("nothing is counted as %s", verdict)
		}
	}
}

func agentKilled(t *testing.T, tm batchTeam) {
	tm.queueUp(t, "q", 8)
	tm.does(t, "train", "busy")
	tm.saysOf(t, map[string]musterv1alpha1.GPUVerdict{"Job/train": "active"})
	pod := tm.runs(t, "train", 1)[0]
	agent := sandbox.GPUAgent(pod.Spec.NodeName)
	heartbeat := func(ctx context.Context) (time.Time, error) {
		node := &musterv1alpha1.GPUNode{}
		err := tm.client.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, node)
		return node.Status.LastHeartbeat.Time, err
	}
	tm.kill(t, agent)
	last, err := heartbeat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tm.behave(t, &pod, map[string]string{simulator.GPUActivityAnnotation: "idle"})
	if now, err := heartbeat(t.Context()); err != nil || !now.Equal(last) {
		t.Errorf("a killed agent's heartbeat was %v and is %v (%v)", last, now, err)
	}
	tm.restart(t, agent)
	eventually(t, "the heartbeat to go on", func(ctx context.Context) error {
		if now, err := heartbeat(ctx); err != nil || !now.After(last) {
			return fmt.Errorf("it is of %v (%v)", now, err)
		}
		return nil
	})
	tm.saysOf(t, map[string]musterv1alpha1.GPUVerdict{"Job/train": "idle"})
	tm.remove(t, tm.oneGPU("train"))
	tm.saysOf(t, map[string]musterv1alpha1.GPUVerdict{})
}

func agentIsOfItsNode(t *testing.T, tm batchTeam) {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(tm.Dir(), "config", sandbox.GPUAgent("node-0")+".kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	as, err := client.New(config, client.Options{Scheme: tm.client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"status": {"summary": {"devices": 0, "held": 0, "idle": 0, "unhealthy": 0}}}`))
	for _, node := range []string{"node-0", "node-1", "node-2"} {
		object := &musterv1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: node}}
		err := as.Status().Patch(t.Context(), object, patch, client.DryRunAll)
		if node == "node-2" {
			err = as.Create(t.Context(), object, client.DryRunAll)
		}
		switch {
		case node == "node-0" && err != nil:
			t.Errorf("its own node: %v", err)
		case node != "node-0" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "is not on node "+node+" but on node-0")):
			t.Errorf("%s: %v", node, err)
		}
	}
	if err := as.List(t.Context(), &corev1.SecretList{}); !apierrors.IsForbidden(err) {
		t.Errorf("an agent may read secrets (%v)", err)
	}
}
