package metrics_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/muster-gpu/muster/metrics"
)

// two are a queue that borrows and one that is stopped.
func two() metrics.State {
	return metrics.State{
		GPUNodes: []metrics.GPUNode{{Name: "node-1", Heartbeat: time.Unix(1_700_000_000, 0)}},
		ClusterQueues: []metrics.ClusterQueue{
			{
				Name: "research", Cohort: "all", Status: metrics.QueueActive, Due: 1, Refused: 2, Reserving: 4, Admitted: 3, Share: new(250.0),
				Quota: []metrics.Quota{{Flavor: "h200", Resource: "nvidia.com/gpu", Nominal: 8, BorrowingLimit: 4, LendingLimit: 2, Reserved: 12, Used: 10, Overuse: 1}},
			},
			{Name: "old", Status: metrics.QueuePending},
		},
	}
}

func TestTheLeaderTellsOfQueuesAndNodes(t *testing.T) {
	end := metrics.Leads(two)
	defer end()
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.Scheduler(false)...)
	want := `
muster_admitted_workloads{cluster_queue="old"} 0
muster_admitted_workloads{cluster_queue="research"} 3
muster_cluster_queue_active{cluster_queue="old"} 0
muster_cluster_queue_active{cluster_queue="research"} 1
muster_cluster_queue_weighted_share{cluster_queue="research",cohort="all"} 250
muster_gpu_node_last_heartbeat_timestamp_seconds{node="node-1"} 1.7e+09
muster_pending_workloads{cluster_queue="old",status="active"} 0
muster_pending_workloads{cluster_queue="old",status="inadmissible"} 0
muster_pending_workloads{cluster_queue="research",status="active"} 1
muster_pending_workloads{cluster_queue="research",status="inadmissible"} 2
muster_quota_borrowing_limit{cluster_queue="research",cohort="all",flavor="h200",resource="nvidia.com/gpu"} 4
muster_quota_lending_limit{cluster_queue="research",cohort="all",flavor="h200",resource="nvidia.com/gpu"} 2
muster_quota_nominal{cluster_queue="research",cohort="all",flavor="h200",resource="nvidia.com/gpu"} 8
muster_quota_overuse{cluster_queue="research",cohort="all",flavor="h200",resource="nvidia.com/gpu"} 1
muster_quota_used{cluster_queue="research",cohort="all",flavor="h200",resource="nvidia.com/gpu"} 10
`
	compare(t, registry, want)

	end()
	if names := namesServed(t, registry); slices.Contains(names, "muster_pending_workloads") {
		t.Error("who leads no more tells of queues")
	}
}

// A counter that comes into being at 1 has no increase.
func TestCountersThatAlertsWatchAreThereBeforeTheyCount(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.Scheduler(false)...)
	metrics.ClusterQueueKnown("new-queue")
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				there[f.GetName()+" "+l.GetValue()] = true
			}
		}
	}
	for _, want := range []string{
		"muster_holds_broken_total pod", "muster_holds_broken_total node",
		"muster_admissions_total new-queue", "muster_admission_wait_seconds new-queue", "muster_held_gpu_seconds_total new-queue",
	} {
		if !there[want] {
			t.Errorf("%s is not there before it counts", want)
		}
	}
}

func TestAnOlderLeaderDoesNotSilenceANewerOne(t *testing.T) {
	endOlder := metrics.Leads(two)
	endNewer := metrics.Leads(two)
	defer endNewer()
	endOlder()
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.Scheduler(false)...)
	if names := namesServed(t, registry); !slices.Contains(names, "muster_pending_workloads") {
		t.Error("the newer leader tells of no queue")
	}
}

// compare fails where the registry serves other samples than are wanted of the metrics
// that are named there.
func compare(t *testing.T, registry *prometheus.Registry, want string) {
	t.Helper()
	types, helps := map[string]metrics.Type{}, map[string]string{}
	for _, d := range metrics.Definitions() {
		types[d.Name], helps[d.Name] = d.Type, d.Help
	}
	var names []string
	var expected strings.Builder
	for line := range strings.Lines(strings.TrimPrefix(want, "\n")) {
		name, _, _ := strings.Cut(line, "{")
		if !slices.Contains(names, name) {
			names = append(names, name)
			expected.WriteString("# HELP " + name + " " + helps[name] + "\n# TYPE " + name + " " + string(types[name]) + "\n")
		}
		expected.WriteString(line)
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(expected.String()), names...); err != nil {
		t.Error(err)
	}
}
