package metrics

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Buckets for what happens on the scheduling goroutine, in seconds.
var cycleBuckets = metrics.ExponentialBuckets(0.0001, 2, 16)

// Metrics of the scheduler.
var (
	// PassSeconds is the time of one admission pass.
	PassSeconds = metrics.NewHistogram(&metrics.HistogramOpts{
		Name: "muster_admission_pass_seconds", StabilityLevel: metrics.ALPHA, Buckets: cycleBuckets,
		Help: "Time of one admission pass on the scheduling goroutine, in seconds.",
	})
	// PlanSeconds is the time of planning one job.
	PlanSeconds = metrics.NewHistogram(&metrics.HistogramOpts{
		Name: "muster_plan_seconds", StabilityLevel: metrics.ALPHA, Buckets: cycleBuckets,
		Help: "Time of finding nodes for all pods of one job, in seconds, found or not.",
	})
	// Admissions counts admitted jobs.
	Admissions = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "muster_admissions_total", StabilityLevel: metrics.ALPHA,
		Help: "Jobs admitted: quota charged and every pod's place held.",
	}, []string{"cluster_queue"})
	// AdmissionsUndone counts admissions whose write failed.
	AdmissionsUndone = metrics.NewCounter(&metrics.CounterOpts{
		Name: "muster_admissions_undone_total", StabilityLevel: metrics.ALPHA,
		Help: "Admissions taken back because their Workload could not be written.",
	})
	// AdmissionWaitSeconds is the time from creation, or eviction, to admission.
	AdmissionWaitSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name: "muster_admission_wait_seconds", StabilityLevel: metrics.ALPHA, Buckets: metrics.ExponentialBuckets(1, 2, 18),
		Help: "Time from a job's creation, or from its last eviction, to its admission, in seconds.",
	}, []string{"cluster_queue"})
	// PendingWorkloads is the number of waiting jobs.
	PendingWorkloads = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "muster_pending_workloads", StabilityLevel: metrics.ALPHA,
		Help: "Jobs that wait to be admitted, for whatever reason, without those that are deactivated.",
	}, []string{"cluster_queue"})
	// ReservedNodes is the nodes that are kept for jobs that have waited for long;
	// a ClusterQueue that has no such job is not there.
	ReservedNodes = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "muster_reserved_nodes", StabilityLevel: metrics.ALPHA,
		Help: "Nodes kept for a job that has waited for long, by its ClusterQueue, which has one such job at most.",
	}, []string{"cluster_queue"})
	// UnmanagedGPUs is the GPUs in use that are charged to nobody.
	UnmanagedGPUs = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "muster_unmanaged_gpus", StabilityLevel: metrics.ALPHA,
		Help: "GPUs of pods on nodes that Muster did not admit, by why it did not.",
	}, []string{"namespace", "reason"})
	// Evictions counts jobs that were stopped, by the reasons of
	// the condition Evicted.
	Evictions = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "muster_evictions_total", StabilityLevel: metrics.ALPHA,
		Help: "Jobs stopped as a whole after they were admitted.",
	}, []string{"reason"})
	// Preemptions counts jobs that were stopped for others, by Kueue's reasons
	// and the ClusterQueue of those for which they were.
	Preemptions = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "muster_preemptions_total", StabilityLevel: metrics.ALPHA,
		Help: "Jobs stopped as a whole so that others can start, by why they may be and the ClusterQueue of those that start.",
	}, []string{"reason", "cluster_queue"})
	// HeldGPUSeconds counts what is held for pods that have not come yet.
	HeldGPUSeconds = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "muster_held_gpu_seconds_total", StabilityLevel: metrics.ALPHA,
		Help: "GPUs of admitted jobs whose pods are not on their nodes yet, times the seconds that they were held.",
	}, []string{"cluster_queue"})
	// Renderings counts pod templates that were rendered; how is dry-run, local
	// or refused.
	Renderings = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "muster_render_total", StabilityLevel: metrics.ALPHA,
		Help: "Pod templates of jobs rendered as pods: by a dry run, locally, or locally after a dry run was refused.",
	}, []string{"how"})
	// AnotherScheduler is whether a Kueue manager keeps Muster from admitting.
	AnotherScheduler = metrics.NewGauge(&metrics.GaugeOpts{
		Name: "muster_another_scheduler", StabilityLevel: metrics.ALPHA,
		Help: "1 while a Kueue manager is alive although Muster is to decide quota itself, so that Muster admits nothing; else 0.",
	})
	// DomainsUsed, LevelsCrossed and ExcessDomains say how close to each other the
	// pods of placed jobs are, for each request of a job and for each pod set of
	// several pods that asks for nothing; asked is required, preferred, unconstrained
	// or nothing.
	DomainsUsed = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name: "muster_placement_domains", StabilityLevel: metrics.ALPHA,
		Help:    "Topology domains that a placed job is in, of the level that it asks for or else of the innermost.",
		Buckets: []float64{1, 2, 3, 4, 6, 8, 12, 16, 32, 64},
	}, []string{"cluster_queue", "asked"})
	LevelsCrossed = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name: "muster_placement_levels_crossed", StabilityLevel: metrics.ALPHA,
		Help:    "Topology levels at which a placed job is in more than one domain; 0 is a job that shares a domain of the innermost.",
		Buckets: []float64{0, 1, 2, 3, 4, 6, 8},
	}, []string{"cluster_queue", "asked"})
	ExcessDomains = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "muster_placement_excess_domains_total", StabilityLevel: metrics.ALPHA,
		Help: "Topology domains that placed jobs are in beyond the fewest that had room for them.",
	}, []string{"cluster_queue", "asked"})
	// HoldsBroken counts slots whose room was taken while they were held.
	HoldsBroken = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "muster_holds_broken_total", StabilityLevel: metrics.ALPHA,
		Help: "Places held for a pod that were lost to a pod which others had put on the node (reason pod), or to a node that became smaller (reason node).",
	}, []string{"reason"})
)

// All are the metrics of the scheduler.
func All() []metrics.Registerable {
	return []metrics.Registerable{
		PassSeconds, PlanSeconds, Admissions, AdmissionsUndone, AdmissionWaitSeconds, PendingWorkloads, ReservedNodes, UnmanagedGPUs, Evictions, Preemptions,
		HeldGPUSeconds, Renderings, AnotherScheduler, HoldsBroken, DomainsUsed, LevelsCrossed, ExcessDomains,
	}
}

var register sync.Once

// Register makes the metrics part of the process's /metrics. It may be called
// more than once.
func Register() {
	register.Do(func() {
		for _, m := range All() {
			legacyregistry.MustRegister(m)
		}
	})
}
