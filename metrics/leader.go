package metrics

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// State is what the scheduler that leads knows of queues and nodes. A scrape costs least
// where all is in the order of its names.
type State struct {
	ClusterQueues []ClusterQueue
	GPUNodes      []GPUNode
}

// ClusterQueue is one with its jobs and its quota.
type ClusterQueue struct {
	// Name, and Cohort as the object names it, "" for none.
	Name, Cohort string
	// Status is one of the constants below.
	Status string
	// Due are the jobs that wait for their turn, Refused those that wait for something
	// to change, behind one that does, or for a time; both without those that are deactivated.
	Due, Refused int
	// Reserving have quota, Admitted of them are admitted.
	Reserving, Admitted int
	// ReservedNodes are kept for a job that has waited for long.
	ReservedNodes int
	// Share is that of fair sharing, NaN for an infinite one; nil without fair sharing.
	Share *float64
	Quota []Quota
}

// What a ClusterQueue is, in Kueue's words: pending is one that admits nothing now.
const (
	QueueActive      = "active"
	QueuePending     = "pending"
	QueueTerminating = "terminating"
)

// Quota is that of one flavor and resource, in the resource's unit: CPUs, bytes, pieces.
type Quota struct {
	Flavor, Resource string
	// Nominal, and BorrowingLimit and LendingLimit, which are +Inf where there is none.
	Nominal, BorrowingLimit, LendingLimit float64
	// Reserved is what jobs have that hold quota, Used what those of them have that are
	// admitted.
	Reserved, Used float64
	// Overuse is what of that the tree of quota does not allow.
	Overuse float64
}

// GPUNode is a node of which a GPU agent tells.
type GPUNode struct {
	Name string
	// Heartbeat is when it last did, by the scheduler's clock.
	Heartbeat time.Time
}

var (
	pendingWorkloads = defineScheduler(Gauge, "muster_pending_workloads",
		"Jobs that wait to be admitted, without those that are deactivated: active ones wait for their turn, inadmissible ones were refused, or stand behind one that was in a StrictFIFO queue, and wait for something to change.",
		"cluster_queue", "status").desc()
	admittedWorkloads = defineScheduler(Gauge, "muster_admitted_workloads",
		"Jobs that are admitted and have not ended.", "cluster_queue").desc()
	reservedNodes = defineScheduler(Gauge, "muster_reserved_nodes",
		"Nodes kept for a job that has waited for long, by its ClusterQueue, which has one such job at most; not there where it has none.",
		"cluster_queue").desc()
	queueActive = defineScheduler(Gauge, "muster_cluster_queue_active",
		"Whether a ClusterQueue admits jobs, as its condition Active says: 1 or 0.", "cluster_queue").desc()
	queueShare = defineScheduler(Gauge, "muster_cluster_queue_weighted_share",
		"Share of what a ClusterQueue borrows in its cohort by its weight, in thousandths; NaN is an infinite one. Only with fair sharing.",
		"cluster_queue", "cohort").desc()
	quotaNominal   = quotaDefinition("nominal", "Nominal quota of a ClusterQueue, in the resource's unit.").desc()
	quotaBorrowing = quotaDefinition("borrowing_limit", "How much more than its nominal quota a ClusterQueue may use, in the resource's unit; not there without a limit.").desc()
	quotaLending   = quotaDefinition("lending_limit", "How much of its nominal quota a ClusterQueue lends, in the resource's unit; not there without a limit.").desc()
	quotaUsed      = quotaDefinition("used", "What the admitted jobs of a ClusterQueue hold of its quota, in the resource's unit.").desc()
	quotaOveruse   = quotaDefinition("overuse",
		"What the jobs of a ClusterQueue hold beyond its nominal quota that its limits and its cohorts do not allow, in the resource's unit. It is there only where there is some, as after a quota or a limit was lowered under jobs that run. Each ClusterQueue that borrows what its cohort lacks has all of it, up to what it borrows.").desc()
	gpuNodeHeartbeat = defineScheduler(Gauge, "muster_gpu_node_last_heartbeat_timestamp_seconds",
		"Unix time, by the scheduler's clock, at which the GPU agent of a node was last heard to tell what its GPUs do; not there for a node that does not exist.", "node").desc()
)

func quotaDefinition(name, help string) Definition {
	return defineScheduler(Gauge, "muster_quota_"+name, help, "cohort", "cluster_queue", "flavor", "resource")
}

// leader has what the process knows while it leads.
var leader = &leaderState{}

type leaderState struct{ read atomic.Pointer[func() State] }

// Leads has the State served from now on, which is read when it is asked for. It is
// not any more after the function is called that is returned.
func Leads(read func() State) (end func()) {
	leader.read.Store(&read)
	return func() { leader.read.CompareAndSwap(&read, nil) }
}

// state is nothing where the process does not lead: another one tells.
func (l *leaderState) state() State {
	if read := l.read.Load(); read != nil {
		return (*read)()
	}
	return State{}
}

// Describe implements prometheus.Collector.
func (l *leaderState) Describe(to chan<- *prometheus.Desc) {
	described(to, pendingWorkloads, admittedWorkloads, reservedNodes, queueActive, queueShare,
		quotaNominal, quotaBorrowing, quotaLending, quotaUsed, quotaOveruse, gpuNodeHeartbeat)
}

// Collect implements prometheus.Collector.
func (l *leaderState) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	state := l.state()
	for i := range state.ClusterQueues {
		q := &state.ClusterQueues[i]
		gauge(pendingWorkloads, float64(q.Due), q.Name, "active")
		gauge(pendingWorkloads, float64(q.Refused), q.Name, "inadmissible")
		gauge(admittedWorkloads, float64(q.Admitted), q.Name)
		if q.ReservedNodes > 0 {
			gauge(reservedNodes, float64(q.ReservedNodes), q.Name)
		}
		gauge(queueActive, one(q.Status == QueueActive), q.Name)
		if q.Share != nil {
			gauge(queueShare, *q.Share, q.Name, q.Cohort)
		}
		for _, of := range q.Quota {
			labels := []string{q.Cohort, q.Name, of.Flavor, of.Resource}
			gauge(quotaNominal, of.Nominal, labels...)
			if !math.IsInf(of.BorrowingLimit, 1) {
				gauge(quotaBorrowing, of.BorrowingLimit, labels...)
			}
			if !math.IsInf(of.LendingLimit, 1) {
				gauge(quotaLending, of.LendingLimit, labels...)
			}
			gauge(quotaUsed, of.Used, labels...)
			if of.Overuse > 0 {
				gauge(quotaOveruse, of.Overuse, labels...)
			}
		}
	}
	for _, n := range state.GPUNodes {
		gauge(gpuNodeHeartbeat, float64(n.Heartbeat.Unix()), n.Name)
	}
}
