// Package reason holds the one type in which Muster says no.
//
// A Reason is a bounded Class, fit for a metric label or a condition's
// reason, and one sentence with numbers, fit for a person. Quota, placement,
// the job adapters and the admission cycle all return it; events, conditions,
// metrics and the command line all print it. It decides nothing.
package reason
