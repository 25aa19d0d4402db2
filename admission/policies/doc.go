// Package policies brings the cluster's policies to the engine that asks them, and says
// of each what has become of it.
//
// Policies are AdmissionPolicies, Muster's own library, and ConfigMaps of one namespace.
// Each replica reads them and asks its own engine; one of the replicas, which holds a
// Lease, writes the statuses. Start from Feed.
package policies
