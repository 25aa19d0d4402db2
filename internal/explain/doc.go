// Package explain prints from where the values of a pod are, of which RuntimeDefaults
// have something to say. It decides nothing and writes nothing into the cluster.
// Start from Run.
package explain
