// Package identity says of which job a pod is, what place it has there, and how the job's
// Workload is called, from the pod alone: it asks nobody and keeps nothing.
//
// Package workload knows the kinds of jobs. This is the part of it that the GPU agent needs
// on each node, and links nothing that the rest needs: no client, and of the API's types
// only those of pods. Start from PodJob and WorkloadName.
package identity
