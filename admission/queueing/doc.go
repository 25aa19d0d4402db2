// Package queueing decides what changes in a TrainJob, a JobSet, a batch Job, a
// training job of Kubeflow's version 1 or a pod at the moment it is created: a job with a queue label starts suspended,
// and its pods carry Muster's scheduler name, as do queued pods that no job
// owns. A job that names no queue gets the default one of its namespace.
//
// Suspending here is a convenience, not the guarantee: the webhook is
// fail-open, and the scheduler suspends a queued job that it finds running
// without admission. So nothing here ever refuses an object, and an object that
// cannot be read is passed on as it came: the API server's own validation says
// what is wrong with it. Running jobs are never looked at.
//
// Start with Decide, which is pure; Handler is the thin edge around it.
package queueing
