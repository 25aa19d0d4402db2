// Package serving puts a decision about admission behind HTTP so that it is never
// the reason for an outage: what is the program's own fault (an error, a panic, too
// many requests at once) is answered with 503, and the failure policy that the
// webhook is registered with decides. An answer that says "not allowed" would be a
// refusal under any policy. Start from New.
package serving
