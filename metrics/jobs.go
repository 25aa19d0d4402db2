package metrics

import "time"

// What happens to jobs, which is counted under Muster's names and under Kueue's.
var (
	admissions = defineScheduler(Counter, "muster_admissions_total",
		"Jobs admitted: quota charged and every pod's place held.", "cluster_queue").counterVec()
	admissionWaitSeconds = defineScheduler(Histogram, "muster_admission_wait_seconds",
		"Time from a job's creation, or from its last eviction, to its admission, in seconds.",
		"cluster_queue").histogramVec([]float64{1, 10, 60, 300, 900, 1800, 3600, 2 * 3600, 4 * 3600, 12 * 3600, 24 * 3600, 72 * 3600})
	evictions = defineScheduler(Counter, "muster_evictions_total",
		"Jobs stopped as a whole after they were admitted, by the reason of their condition Evicted.",
		"cluster_queue", "reason").counterVec()
	preemptions = defineScheduler(Counter, "muster_preemptions_total",
		"Jobs stopped as a whole so that others can start, by why they may be and the ClusterQueue of those that start.",
		"reason", "cluster_queue").counterVec()
)

// ClusterQueueKnown has the counters of a ClusterQueue served from now on, at zero if they
// are new: one that comes into being with its first count has no increase. It may be
// called more than once.
func ClusterQueueKnown(clusterQueue string) {
	admissions.WithLabelValues(clusterQueue)
	admissionWaitSeconds.WithLabelValues(clusterQueue)
	HeldGPUSeconds.WithLabelValues(clusterQueue)
}

// Admitted counts a job that is admitted. priorityClass is its WorkloadPriorityClass or
// PriorityClass, "" for none; it has waited since it was created or last evicted.
func Admitted(clusterQueue, priorityClass string, waited time.Duration) {
	admissions.WithLabelValues(clusterQueue).Inc()
	admissionWaitSeconds.WithLabelValues(clusterQueue).Observe(waited.Seconds())
	kueue.admitted(clusterQueue, priorityClass, waited)
}

// Evicted counts a job that is stopped, by the reason of its condition Evicted.
func Evicted(clusterQueue, reason string) {
	evictions.WithLabelValues(clusterQueue, reason).Inc()
	kueue.evicted(clusterQueue, reason)
}

// Preempted counts a job that is stopped for one of the ClusterQueue given, by Kueue's
// reasons.
func Preempted(forClusterQueue, reason string) {
	preemptions.WithLabelValues(reason, forClusterQueue).Inc()
	kueue.preempted(forClusterQueue, reason)
}
