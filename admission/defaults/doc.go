// Package defaults adds what RuntimeDefaults want to the pods that ask for GPUs:
// to the pod templates of a JobSet at its creation, when it has what the author of
// the job and the author of its runtime want, and to any other pod at its own.
//
// It only adds. What is there already, from whatever source, stays; RuntimeDefaults
// of class required refuse the object then. It never looks at a TrainJob's own
// spec, and once a JobSet exists it only puts back what somebody has taken out and
// a suspended JobSet may change.
//
// Start with Stamp, which is pure; Handler is the edge around it, and Catalog what
// both know of the cluster.
package defaults
