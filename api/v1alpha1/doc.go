// Package v1alpha1 is the API of the group muster.dev: what platform teams write
// into the cluster for Muster beside Kueue's own kinds, and what Muster says of a
// node's GPUs there. It holds types, and decides nothing. Start from RuntimeDefaults,
// AdmissionPolicy and GPUNode.
//
// +groupName=muster.dev
// +kubebuilder:object:generate=true
package v1alpha1
