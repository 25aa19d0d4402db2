package metrics_test

import (
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/muster-gpu/muster/metrics"
)

// served is what a scrape of each program gives, with each metric at least once.
func served(t *testing.T) map[metrics.Program][]*dto.MetricFamily {
	t.Helper()
	out := map[metrics.Program][]*dto.MetricFamily{}
	for program, registry := range map[metrics.Program]*prometheus.Registry{
		metrics.SchedulerProgram: schedulerRegistry(t), metrics.WebhookProgram: webhookRegistry(t), metrics.GPUAgentProgram: agentRegistry(t),
	} {
		all, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		out[program] = all
	}
	return out
}

func schedulerRegistry(t *testing.T) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.Scheduler(true)...)
	metrics.Admitted("research", "high", time.Minute)
	metrics.Evicted("research", "DeactivatedDueToRequeuingLimitExceeded")
	metrics.Preempted("research", "InClusterQueue")
	metrics.UnmanagedGPUs.WithLabelValues("team", "no-queue").Set(1)
	metrics.HeldGPUSeconds.WithLabelValues("research").Add(1)
	metrics.Renderings.WithLabelValues("dry-run").Inc()
	metrics.DomainsUsed.WithLabelValues("research", "required").Observe(1)
	metrics.LevelsCrossed.WithLabelValues("research", "required").Observe(1)
	metrics.ExcessDomains.WithLabelValues("research", "required").Inc()
	metrics.HoldsBroken.WithLabelValues("pod").Inc()
	t.Cleanup(metrics.Leads(func() metrics.State {
		return metrics.State{
			GPUNodes: []metrics.GPUNode{{Name: "node-1", Heartbeat: time.Unix(1_700_000_000, 0)}},
			ClusterQueues: []metrics.ClusterQueue{{
				Name: "research", Cohort: "all", Status: metrics.QueueActive, ReservedNodes: 1, Share: new(0.5),
				Quota: []metrics.Quota{{Flavor: "h200", Resource: "nvidia.com/gpu", Nominal: 8, BorrowingLimit: 4, LendingLimit: 2, Overuse: 1}},
			}},
		}
	}))
	return registry
}

func webhookRegistry(*testing.T) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	asked := metrics.NewWebhook()
	registry.MustRegister(asked.Collectors()...)
	registry.MustRegister(metrics.WebhookCertificateExpiry(time.Now), metrics.Policies(func() []metrics.Policy {
		return []metrics.Policy{{Name: "queue-label", Audited: &metrics.Audited{}}}
	}))
	asked.Unanswered("/mutate", "busy")
	ask(asked.Timed("/mutate", answering(200)))
	return registry
}

func agentRegistry(t *testing.T) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	agent, err := metrics.NewGPUAgent(registry)
	if err != nil {
		t.Fatal(err)
	}
	agent.Ticked(time.Second, time.Now(), true)
	agent.Wrote(nil)
	agent.Condition("DriverReady", true)
	agent.CallBegan("nvmlDeviceGetSamples")
	agent.CallEnded("nvmlDeviceGetSamples", time.Millisecond, nil)
	half := 0.5
	registry.MustRegister(metrics.NodeGPUs("node-1", func() ([]metrics.GPU, []metrics.GPUSeconds) {
		return []metrics.GPU{{
			Busy: &half, SM: &half, Codec: &half, PowerWatts: &half, TemperatureCelsius: &half, MemoryUsedBytes: &half,
			XIDs: map[uint64]uint64{79: 1}, Holders: []metrics.GPUHolder{{Verdict: "idle"}},
		}}, []metrics.GPUSeconds{{Namespace: "team"}}
	}))
	return registry
}

func TestEveryMetricIsServedAsItIsDefined(t *testing.T) {
	want, got := map[string]metrics.Definition{}, map[string]metrics.Definition{}
	key := func(d metrics.Definition) string { return string(d.Program) + " " + d.Name }
	for _, d := range metrics.Definitions() {
		d.Labels = slices.Sorted(slices.Values(d.Labels))
		want[key(d)] = d
	}
	for program, families := range served(t) {
		for _, f := range families {
			d := metrics.Definition{Program: program, Type: metrics.Type(strings.ToLower(f.GetType().String())), Name: f.GetName(), Help: f.GetHelp()}
			for _, label := range f.GetMetric()[0].GetLabel() {
				d.Labels = append(d.Labels, label.GetName())
			}
			got[key(d)] = d
		}
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("defined (-) and served (+):\n%s", diff)
	}
}

func TestMetricsFollowTheNamingRules(t *testing.T) {
	for program, families := range served(t) {
		ours := slices.DeleteFunc(families, func(f *dto.MetricFamily) bool { return strings.HasPrefix(f.GetName(), "kueue_") })
		for _, f := range ours {
			if !strings.HasPrefix(f.GetName(), "muster_") {
				t.Errorf("%s: %s has another prefix than muster_", program, f.GetName())
			}
		}
		problems, err := promlint.NewWithMetricFamilies(ours).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			if !likeDCGM(p) {
				t.Errorf("%s: %s: %s", program, p.Metric, p.Text)
			}
		}
	}
}

// likeDCGM says that a problem is that of labels which dcgm-exporter has named so that
// GPUs can be joined with what it measures of them.
func likeDCGM(p promlint.Problem) bool {
	return strings.HasPrefix(p.Metric, "muster_gpu_") && strings.Contains(p.Text, "snake_case")
}

func TestLabelsAreBoundedAndExplained(t *testing.T) {
	var page strings.Builder
	if err := metrics.WriteReference(&page); err != nil {
		t.Fatal(err)
	}
	_, explained, _ := strings.Cut(page.String(), "\n## Labels\n")
	used := map[string]bool{}
	for _, d := range metrics.Definitions() {
		for _, label := range d.Labels {
			used[label] = true
			if !strings.Contains(explained, "| `"+label+"` |") {
				t.Errorf("%s: the reference does not say what the label %s is", d.Name, label)
			}
			if unbounded := []string{"pod", "container", "workload", "job", "user", "uid"}; slices.Contains(unbounded, label) && !strings.HasPrefix(d.Name, "muster_gpu_holder_") {
				t.Errorf("%s has the label %s, which has no bounds", d.Name, label)
			}
		}
	}
	if rows := strings.Count(explained, "\n| `"); rows != len(used) {
		t.Errorf("%d labels are explained, %d are used: %v", rows, len(used), slices.Sorted(maps.Keys(used)))
	}
}

func TestTheReferenceIsWhatIsGenerated(t *testing.T) {
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	if err := metrics.WriteReference(&want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.String(), string(page)); diff != "" {
		t.Errorf("docs/metrics.md is another one, run \"make generate\" (-want +got):\n%s", diff)
	}
}

func TestTheSchedulerServesItsMetricsBesideKubernetes(t *testing.T) {
	for range 2 {
		// A second time changes nothing.
		if err := metrics.RegisterScheduler(false); err != nil {
			t.Fatal(err)
		}
	}
	all, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(all, func(f *dto.MetricFamily) bool { return f.GetName() == "muster_scheduler_leading" }) {
		t.Error("muster_scheduler_leading is not served")
	}
	if slices.ContainsFunc(all, func(f *dto.MetricFamily) bool { return strings.HasPrefix(f.GetName(), "kueue_") }) {
		t.Error("Kueue's names are served, which nobody has asked for")
	}
}

func TestWhatIsNoneIsLeftOut(t *testing.T) {
	none := math.Inf(1)
	defer metrics.Leads(func() metrics.State {
		return metrics.State{ClusterQueues: []metrics.ClusterQueue{{
			Name: "a", Quota: []metrics.Quota{{Flavor: "f", Resource: "cpu", BorrowingLimit: none, LendingLimit: none}},
		}}}
	})()
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.Scheduler(true)...)
	names := namesServed(t, registry)
	for name, want := range map[string]bool{
		"muster_quota_nominal": true, "muster_quota_borrowing_limit": false, "muster_quota_lending_limit": false, "muster_quota_overuse": false, "muster_reserved_nodes": false,
		"kueue_cluster_queue_borrowing_limit": true, "kueue_cluster_queue_lending_limit": true,
	} {
		if slices.Contains(names, name) != want {
			t.Errorf("%s is served: %v, want %v", name, !want, want)
		}
	}
}

func namesServed(t *testing.T, registry *prometheus.Registry) []string {
	t.Helper()
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range all {
		names = append(names, f.GetName())
	}
	return names
}
