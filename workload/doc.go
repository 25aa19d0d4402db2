// Package workload reads and steers the kinds of jobs that Muster manages.
//
// A Kind turns an owner object (TrainJob, JobSet, batch Job), or pods that no
// such object owns (one, or a group of them), into a Job: its queue, its
// priority and its pod sets, phase by phase; and it suspends and resumes it.
// The package also builds the Kueue Workload object that stands for a Job, with
// the name and the pod sets that Kueue itself would write, and says which slot
// of a Job a pod fills. It decides nothing about quota or nodes.
// Start from Job.
package workload
