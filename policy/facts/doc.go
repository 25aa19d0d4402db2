// Package facts says what is known of an object beyond its own fields, for policies
// to read as input.workload: what pods it will have, how many GPUs they take, which
// images they run, and who made it.
//
// A policy that reads objects itself misses GPUs that only a runtime asks for, init
// containers, sidecars, claims and ephemeral containers. Here all kinds have one
// form, and GPUs are counted as quota counts them. What cannot be known is said in
// Workload.Unknown and never taken for zero. It reads nothing from the cluster but
// through Around. Start from Reader.
package facts
