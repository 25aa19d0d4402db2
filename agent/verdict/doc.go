// Package verdict says of each GPU that a pod holds whether it works, and counts
// the seconds in which it did.
//
// A unit is one device in the hands of one container. Each tick it gets one sample,
// and is then active, idle, stalled or unknown by the Rules of its queue and its
// workload. Idle and stalled need evidence over a whole window; where that is
// missing a unit is unknown, and what is quiet, but not for long enough, still
// counts as active. Reclaimable is a second answer, later and stricter, for those
// who want to take the GPU away.
//
// The package is pure: it has no clock and no client, and it acts on nothing. Start
// from Tracker.
package verdict
