// Package quota says whether a job's requests fit its queue, and in which
// flavors.
//
// A Tree holds the LocalQueues, ClusterQueues and ResourceFlavors of Kueue's
// API, and the charges of the jobs that were admitted. Kueue's arithmetic and
// rules are the specification: flavors are tried in the listed order, all
// resources of a resource group that a pod set asks for come from one flavor,
// and what the ClusterQueue does not cover is refused.
//
// In this form a ClusterQueue gives its own nominalQuota and nothing else: one
// with a cohortName neither borrows nor lends, and nothing is ever preempted.
// A ClusterQueue that names an AdmissionCheck is inactive, because nothing here
// would run the check. A flavor's topologyName is not looked at.
//
// The package is pure: it has no client, no clock and no lock, and it never
// picks a node. A Tree is not safe for concurrent use; the ledger's lock guards
// it. Start from Tree.Assign.
package quota
