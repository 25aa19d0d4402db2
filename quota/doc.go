// Package quota says whether a job's requests fit its queue, and in which
// flavors.
//
// A Tree holds the LocalQueues, ClusterQueues, Cohorts and ResourceFlavors of
// Kueue's API, and the charges of the jobs that were admitted. Kueue's
// arithmetic and rules are the specification: what Cohorts lend and borrow
// (cell.go), which flavor a pod set gets (flavors.go, fungibility.go), and whose
// jobs may be asked to leave (candidates.go, fair.go). Use is counted twice, as
// it is now and as it will be when those that leave have left; a job is admitted
// only where it fits both.
//
// Where Kueue is looser than its own rule, this is not: a job may be reclaimed
// only for a flavor and resource of which its own queue has more than its nominal
// quota, while Kueue is content with any that the request is short of. A
// ClusterQueue that names an AdmissionCheck is inactive, because nothing here
// would run the check. Of a flavor's Topology only the names of its levels are
// looked at, and a flavor that has one serves jobs that ask for none. Jobs are not
// admitted in part, and usage-based fair sharing of admissions is not done.
//
// The package is pure: it has no client, no clock and no lock, and it never
// picks a node. A Tree is not safe for concurrent use; the ledger's lock guards
// it. Start from Tree.Assign.
package quota
