package metrics_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-gpu/muster/metrics"
)

func TestKueueNames(t *testing.T) {
	defer metrics.Leads(two)()
	metrics.SetKueueRole(true)
	defer metrics.SetKueueRole(false)
	metrics.Admitted("vision", "high", 3*time.Second)
	metrics.Evicted("vision", "Preempted")
	metrics.Evicted("vision", "DeactivatedDueToRequeuingLimitExceeded")
	metrics.Preempted("vision", "InCohortReclamation")
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.Scheduler(true)...)
	compare(t, registry, `
kueue_admitted_active_workloads{cluster_queue="old",replica_role="leader"} 0
kueue_admitted_active_workloads{cluster_queue="research",replica_role="leader"} 3
kueue_cluster_queue_borrowing_limit{cluster_queue="research",cohort="all",flavor="h200",replica_role="leader",resource="nvidia.com/gpu"} 4
kueue_cluster_queue_lending_limit{cluster_queue="research",cohort="all",flavor="h200",replica_role="leader",resource="nvidia.com/gpu"} 2
kueue_cluster_queue_nominal_quota{cluster_queue="research",cohort="all",flavor="h200",replica_role="leader",resource="nvidia.com/gpu"} 8
kueue_cluster_queue_resource_reservation{cluster_queue="research",cohort="all",flavor="h200",replica_role="leader",resource="nvidia.com/gpu"} 12
kueue_cluster_queue_resource_usage{cluster_queue="research",cohort="all",flavor="h200",replica_role="leader",resource="nvidia.com/gpu"} 10
kueue_cluster_queue_weighted_share{cluster_queue="research",cohort="all",replica_role="leader"} 250
kueue_pending_workloads{cluster_queue="old",replica_role="leader",status="active"} 0
kueue_pending_workloads{cluster_queue="old",replica_role="leader",status="inadmissible"} 0
kueue_pending_workloads{cluster_queue="research",replica_role="leader",status="active"} 1
kueue_pending_workloads{cluster_queue="research",replica_role="leader",status="inadmissible"} 2
kueue_reserving_active_workloads{cluster_queue="old",replica_role="leader"} 0
kueue_reserving_active_workloads{cluster_queue="research",replica_role="leader"} 4
`)
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var counted []string
	for _, f := range all {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			if line := f.GetName() + " " + strings.Join(labels, " "); strings.HasPrefix(line, "kueue_") && strings.Contains(line, "=vision") {
				counted = append(counted, line)
			}
		}
	}
	for _, want := range []string{
		"kueue_admission_wait_time_seconds cluster_queue=vision priority_class=high replica_role=leader",
		"kueue_quota_reserved_wait_time_seconds cluster_queue=vision priority_class=high replica_role=leader",
		"kueue_admitted_workloads_total cluster_queue=vision priority_class=high replica_role=leader",
		"kueue_quota_reserved_workloads_total cluster_queue=vision priority_class=high replica_role=leader",
		"kueue_evicted_workloads_total cluster_queue=vision reason=Preempted replica_role=leader underlying_cause=",
		"kueue_evicted_workloads_total cluster_queue=vision reason=Deactivated replica_role=leader underlying_cause=RequeuingLimitExceeded",
		"kueue_preempted_workloads_total preempting_cluster_queue=vision reason=InCohortReclamation replica_role=leader",
	} {
		if !slices.Contains(counted, want) {
			t.Errorf("%q is not among\n%s", want, strings.Join(counted, "\n"))
		}
	}
}

func TestMusterDoesNotSpeakForAKueueThatLives(t *testing.T) {
	defer metrics.Leads(two)()
	metrics.Admitted("research", "", time.Second)
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.Scheduler(true)...)
	ofKueue := func() bool {
		return slices.ContainsFunc(namesServed(t, registry), func(name string) bool { return strings.HasPrefix(name, "kueue_") })
	}
	metrics.SetAnotherScheduler(true)
	if ofKueue() {
		t.Error("metrics have Kueue's names while its manager serves them itself")
	}
	metrics.SetAnotherScheduler(false)
	if !ofKueue() {
		t.Error("no metric has a name of Kueue's once its manager is gone")
	}
}
