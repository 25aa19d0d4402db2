package metrics

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// What Kueue's manager serves, under its names and with its labels, for dashboards and
// alerts that were made for it. See pkg/metrics of Kueue 0.19.
var (
	kueuePending = defineKueue(Gauge, "pending_workloads",
		"Jobs that wait, by ClusterQueue and status: active or inadmissible.", "cluster_queue", "status").desc()
	kueueReserving = defineKueue(Gauge, "reserving_active_workloads", "Jobs that have quota, by ClusterQueue.", "cluster_queue").desc()
	kueueAdmitted  = defineKueue(Gauge, "admitted_active_workloads", "Jobs that are admitted and have not ended, by ClusterQueue.", "cluster_queue").desc()
	kueueStatus    = defineKueue(Gauge, "cluster_queue_status",
		"1 for what a ClusterQueue is: pending, active or terminating.", "cluster_queue", "status").desc()
	kueueShare = defineKueue(Gauge, "cluster_queue_weighted_share",
		"Share of what a ClusterQueue borrows in its cohort by its weight; NaN is an infinite one. Only with fair sharing.", "cluster_queue", "cohort").desc()
	kueueNominal   = kueueQuota("cluster_queue_nominal_quota", "Nominal quota of a ClusterQueue.").desc()
	kueueBorrowing = kueueQuota("cluster_queue_borrowing_limit", "How much more than its nominal quota a ClusterQueue may use; +Inf without a limit.").desc()
	kueueLending   = kueueQuota("cluster_queue_lending_limit", "How much of its nominal quota a ClusterQueue lends; +Inf without a limit.").desc()
	kueueReserved  = kueueQuota("cluster_queue_resource_reservation", "What jobs of a ClusterQueue have that have quota.").desc()
	kueueUsed      = kueueQuota("cluster_queue_resource_usage", "What jobs of a ClusterQueue have that are admitted.").desc()
)

// kueue counts what happens, and serves it with the leader's State.
var kueue = newKueueNames()

type kueueNames struct {
	role                                              atomic.Value // string
	quotaReserved, admissions, evictions, preemptions *prometheus.CounterVec
	quotaReservedWait, admissionWait                  *prometheus.HistogramVec
}

func newKueueNames() *kueueNames {
	byClass := []string{"cluster_queue", "priority_class"}
	k := &kueueNames{
		quotaReserved: defineKueue(Counter, "quota_reserved_workloads_total", "Jobs that were given quota.", byClass...).counterVec(),
		admissions:    defineKueue(Counter, "admitted_workloads_total", "Jobs that were admitted.", byClass...).counterVec(),
		quotaReservedWait: defineKueue(Histogram, "quota_reserved_wait_time_seconds",
			"Time from a job's creation, or from its last eviction, until it has quota, in seconds.", byClass...).histogramVec(kueueBuckets(14)),
		admissionWait: defineKueue(Histogram, "admission_wait_time_seconds",
			"Time from a job's creation, or from its last eviction, to its admission, in seconds.", byClass...).histogramVec(kueueBuckets(16)),
		evictions: defineKueue(Counter, "evicted_workloads_total",
			"Jobs that were stopped after they were admitted, by the reason of their condition Evicted.", "cluster_queue", "reason", "underlying_cause").counterVec(),
		preemptions: defineKueue(Counter, "preempted_workloads_total",
			"Jobs that were stopped so that others can start, by the ClusterQueue of those.", "preempting_cluster_queue", "reason").counterVec(),
	}
	k.role.Store("standalone")
	return k
}

// kueueBuckets are those of Kueue's histograms, in seconds.
func kueueBuckets(count int) []float64 {
	return append([]float64{1}, prometheus.ExponentialBuckets(2.5, 2, count-1)...)
}

// defineKueue defines a metric of Kueue's, all of which say who serves them.
func defineKueue(t Type, name, help string, labels ...string) Definition {
	return defineScheduler(t, "kueue_"+name, help, append(labels[:len(labels):len(labels)], "replica_role")...)
}

func kueueQuota(name, help string) Definition {
	return defineKueue(Gauge, name, help, "cohort", "cluster_queue", "flavor", "resource")
}

// SetKueueRole says whether one of several replicas leads, or there is only one.
func SetKueueRole(elects bool) {
	role := "standalone"
	if elects {
		role = "leader"
	}
	kueue.role.Store(role)
}

func (k *kueueNames) roleNow() string { return k.role.Load().(string) }

func (k *kueueNames) admitted(clusterQueue, priorityClass string, waited time.Duration) {
	labels := []string{clusterQueue, priorityClass, k.roleNow()}
	k.quotaReserved.WithLabelValues(labels...).Inc()
	k.admissions.WithLabelValues(labels...).Inc()
	k.quotaReservedWait.WithLabelValues(labels...).Observe(waited.Seconds())
	k.admissionWait.WithLabelValues(labels...).Observe(waited.Seconds())
}

// evicted counts a reason such as DeactivatedDueToRequeuingLimitExceeded as Deactivated
// with a cause.
func (k *kueueNames) evicted(clusterQueue, reason string) {
	reason, cause, _ := strings.Cut(reason, "DueTo")
	k.evictions.WithLabelValues(clusterQueue, reason, cause, k.roleNow()).Inc()
}

func (k *kueueNames) preempted(forClusterQueue, reason string) {
	k.preemptions.WithLabelValues(forClusterQueue, reason, k.roleNow()).Inc()
}

func (k *kueueNames) counted() []prometheus.Collector {
	return []prometheus.Collector{k.quotaReserved, k.admissions, k.quotaReservedWait, k.admissionWait, k.evictions, k.preemptions}
}

// Describe implements prometheus.Collector.
func (k *kueueNames) Describe(to chan<- *prometheus.Desc) {
	described(to, kueuePending, kueueReserving, kueueAdmitted, kueueStatus, kueueShare,
		kueueNominal, kueueBorrowing, kueueLending, kueueReserved, kueueUsed)
	for _, c := range k.counted() {
		c.Describe(to)
	}
}

// Collect implements prometheus.Collector. Where Kueue's own manager is alive, it alone
// speaks under its names.
func (k *kueueNames) Collect(to chan<- prometheus.Metric) {
	if kueueIsAlive.Load() {
		return
	}
	for _, c := range k.counted() {
		c.Collect(to)
	}
	role := k.roleNow()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append(labels[:len(labels):len(labels)], role)...)
	}
	queues := leader.state().ClusterQueues
	for i := range queues {
		q := &queues[i]
		gauge(kueuePending, float64(q.Due), q.Name, "active")
		gauge(kueuePending, float64(q.Refused), q.Name, "inadmissible")
		gauge(kueueReserving, float64(q.Reserving), q.Name)
		gauge(kueueAdmitted, float64(q.Admitted), q.Name)
		for _, status := range queueStatuses {
			gauge(kueueStatus, one(status == q.Status), q.Name, status)
		}
		if q.Share != nil {
			gauge(kueueShare, *q.Share, q.Name, q.Cohort)
		}
		for _, of := range q.Quota {
			labels := []string{q.Cohort, q.Name, of.Flavor, of.Resource}
			gauge(kueueNominal, of.Nominal, labels...)
			gauge(kueueBorrowing, of.BorrowingLimit, labels...)
			gauge(kueueLending, of.LendingLimit, labels...)
			gauge(kueueReserved, of.Reserved, labels...)
			gauge(kueueUsed, of.Used, labels...)
		}
	}
}

// kueueIsAlive is what AnotherScheduler says.
var kueueIsAlive atomic.Bool

// SetAnotherScheduler says whether a Kueue manager is alive and keeps Muster from
// admitting.
func SetAnotherScheduler(alive bool) {
	kueueIsAlive.Store(alive)
	AnotherScheduler.Set(one(alive))
}

var queueStatuses = []string{QueueActive, QueuePending, QueueTerminating}
