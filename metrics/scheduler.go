package metrics

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/legacyregistry"
)

// cycleBuckets are for what happens on the scheduling goroutine, in seconds.
var cycleBuckets = prometheus.ExponentialBuckets(0.0001, 2, 16)

// Metrics of the scheduler that it counts itself. Those of queues and nodes are read
// when they are asked for: see Leads.
var (
	// Leading is whether this process decides.
	Leading = defineScheduler(Gauge, "muster_scheduler_leading",
		"1 in the replica of the scheduler that leads, and so decides; 0 in a standby.").gauge()
	// PassSeconds is the time of one admission pass.
	PassSeconds = defineScheduler(Histogram, "muster_admission_pass_seconds",
		"Time of one admission pass on the scheduling goroutine, in seconds.").histogram(cycleBuckets)
	// PlanSeconds is the time of planning one job.
	PlanSeconds = defineScheduler(Histogram, "muster_plan_seconds",
		"Time of finding nodes for all pods of one job, in seconds, found or not.").histogram(cycleBuckets)
	// AdmissionsUndone counts admissions whose write failed.
	AdmissionsUndone = defineScheduler(Counter, "muster_admissions_undone_total",
		"Admissions taken back because their Workload could not be written.").counter()
	// UnmanagedGPUs is the GPUs in use that are charged to nobody.
	UnmanagedGPUs = defineScheduler(Gauge, "muster_unmanaged_gpus",
		"GPUs of pods on nodes that Muster did not admit, by why it did not.", "namespace", "reason").gaugeVec()
	// FreeGPUs and FragmentedGPUs are measured now and then.
	FreeGPUs = defineScheduler(Gauge, "muster_free_gpus",
		"GPUs of nodes that take pods which no pod uses and no job holds.").gauge()
	FragmentedGPUs = defineScheduler(Gauge, "muster_fragmented_gpus",
		"Of the free GPUs, how many the pods that are asked for lately are expected not to be able to use: too few on a node, or without CPU or memory beside them.").gauge()
	// HeldGPUSeconds counts what is held for pods that have not come yet.
	HeldGPUSeconds = defineScheduler(Counter, "muster_held_gpu_seconds_total",
		"GPUs of admitted jobs whose pods are not on their nodes yet, times the seconds that they were held.", "cluster_queue").counterVec()
	// Renderings counts pod templates that were rendered; how is dry-run, local
	// or refused.
	Renderings = defineScheduler(Counter, "muster_render_total",
		"Pod templates of jobs rendered as pods: by a dry run, locally, or locally after a dry run was refused.", "how").counterVec()
	// AnotherScheduler is whether a Kueue manager keeps Muster from admitting.
	AnotherScheduler = defineScheduler(Gauge, "muster_another_scheduler",
		"1 while a Kueue manager is alive although Muster is to decide quota itself, so that Muster admits nothing; else 0.").gauge()
	// DomainsUsed, LevelsCrossed and ExcessDomains say how close to each other the
	// pods of placed jobs are, for each request of a job and for each pod set of
	// several pods that asks for nothing; asked is required, preferred, unconstrained
	// or nothing.
	DomainsUsed = defineScheduler(Histogram, "muster_placement_domains",
		"Topology domains that a placed job is in, of the level that it asks for or else of the innermost.",
		"cluster_queue", "asked").histogramVec([]float64{1, 2, 4, 8, 16, 32})
	LevelsCrossed = defineScheduler(Histogram, "muster_placement_levels_crossed",
		"Topology levels at which a placed job is in more than one domain; 0 is a job that shares a domain of the innermost.",
		"cluster_queue", "asked").histogramVec([]float64{0, 1, 2, 3, 4})
	ExcessDomains = defineScheduler(Counter, "muster_placement_excess_domains_total",
		"Topology domains that placed jobs are in beyond the fewest that had room for them.", "cluster_queue", "asked").counterVec()
	// HoldsBroken counts slots whose room was taken while they were held, by one of the
	// reasons below.
	HoldsBroken = defineScheduler(Counter, "muster_holds_broken_total",
		"Places held for a pod that were lost to a pod which others had put on the node (reason pod), or to a node that became smaller (reason node).",
		"reason").counterVec()
)

// Why a hold is broken: others have put a pod on the node, or the node became smaller.
const (
	HoldBrokenByPod  = "pod"
	HoldBrokenByNode = "node"
)

// The counter is there before a hold is broken: an alert is on its increase, of which one
// that comes into being with its first count has none.
func init() {
	for _, reason := range []string{HoldBrokenByPod, HoldBrokenByNode} {
		HoldsBroken.WithLabelValues(reason)
	}
}

func defineScheduler(t Type, name, help string, labels ...string) Definition {
	return define(SchedulerProgram, t, name, help, labels...)
}

// Scheduler are the metrics of the scheduler, with those under Kueue's names if it is
// to serve them.
func Scheduler(kueueNames bool) []prometheus.Collector {
	all := []prometheus.Collector{
		Leading, PassSeconds, PlanSeconds, AdmissionsUndone, UnmanagedGPUs, FreeGPUs, FragmentedGPUs, HeldGPUSeconds,
		Renderings, AnotherScheduler, DomainsUsed, LevelsCrossed, ExcessDomains, HoldsBroken,
		admissions, admissionWaitSeconds, evictions, preemptions, leader,
	}
	if kueueNames {
		all = append(all, kueue)
	}
	return all
}

// RegisterScheduler makes the metrics part of the process's /metrics, which the
// kube-scheduler's library serves. It may be called more than once.
func RegisterScheduler(kueueNames bool) error {
	for _, c := range Scheduler(kueueNames) {
		if err := legacyregistry.Registerer().Register(c); err != nil && !errors.As(err, new(prometheus.AlreadyRegisteredError)) {
			return err
		}
	}
	return nil
}
