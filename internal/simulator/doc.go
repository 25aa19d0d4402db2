// Package simulator stands in for the kubelets of GPU nodes: it creates Node
// objects, renews their leases, and takes the pods bound to them through their
// life, without running anything.
//
// Two things it does that a plain fake kubelet does not. It gives out GPU
// indices, exactly: an index of a node belongs to one living pod at a time.
// And a training gang makes progress only while all its ranks run, as a
// collective operation does, so half a gang holds GPUs and gets nowhere.
//
// It never decides where a pod runs, never restarts a container in place (a
// non-zero exit makes the pod Failed whatever its restart policy), and never
// judges a node's health: a condition that somebody sets on a node stays.
// Everything it must remember is written on the pods, so it can be killed and
// started again at any time. Start from Run; the decisions are in decide.go,
// gang.go and gpus.go.
package simulator
