// Package policy asks policies in Rego whether an object may be created or
// changed, with OPA as a library.
//
// A Policy is compiled alone, so that one that is wrong stops no other, with
// the built-ins of an allow-list: none reads a network, a file or a random
// number. What serves is an immutable snapshot of policies and data behind one
// pointer. A policy that does not compile, fails or runs too long is replaced by
// the last version of it that was good, and by its failure mode where there is
// none. An update is refused only for what the old object did not have.
//
// It reads nothing from the cluster: policies, data and what is to be known of
// an object are handed in. Start from Engine.
package policy
