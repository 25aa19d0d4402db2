// Package topology chooses the domains that the pods of a gang share: nodes
// that are close to each other, such as those of a rack, of a block of racks, or
// of one NVLink network.
//
// Start from Tree. It has the nodes, grouped by the values of node labels, level
// by level, with how many of the gang's pods each has room for. Tree.Place
// answers with a node for each pod, in rank order: consecutive ranks share the
// lowest domains. The domain that fits best is taken, so that large holes stay
// large; where none is large enough and the request allows it, the fewest domains
// that are.
//
// The package is pure: it knows neither Kubernetes nor what a pod asks for. Room
// is an upper bound; the caller finds out what a node really takes, lowers its
// room with Tree.Limit, and asks again. What is asked follows the rules of Kueue's
// topology-aware scheduling, the choice among what they allow is our own.
package topology
