package placement

import (
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Class is Count identical pods of a gang: one pod set of one phase.
type Class struct {
	// Name is the pod set's name.
	Name string
	// Pod is the prototype: name, namespace, labels and spec as the real pods
	// will have them, Spec.NodeName empty. It is only read.
	Pod *v1.Pod
	// Count is the number of pods to place; a class of none is planned at once.
	Count int
	// Fixed are the nodes that siblings of this class already run on when a
	// part of a gang is planned again. They are preferred, so that the gang
	// stays on few nodes; the siblings themselves are in the snapshot.
	Fixed []string
	// Avoid are nodes that the class is kept away from, whatever Filter says.
	Avoid []string
	// Reserved are nodes that are kept for other jobs.
	Reserved []string
}

// Gang is all the pods that must be placed together.
type Gang struct {
	// Name is the job's name, for errors.
	Name string
	// UID makes the UIDs of the hypothetical pods unique in the snapshot.
	UID     types.UID
	Classes []Class
	// Stop is asked before each node that is looked at; once it says yes, the
	// gang is given up with ErrStopped. Nil is never.
	Stop func() bool
}

// ErrStopped is the error of a plan that was told to stop.
var ErrStopped = errors.New("something else came first")

// Assignment has, for each class in the order of Gang.Classes, the node of
// each of its pods: Class.Count names, equal names next to each other, in the
// order in which the nodes were chosen.
type Assignment [][]string
