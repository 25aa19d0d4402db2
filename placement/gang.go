package placement

import (
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/placement/topology"
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
	// Topology is what the pods ask for of being close to each other, nil for
	// nothing. Classes with the same Topology ask for it together: in the order of
	// ranks the pods of one follow those of the one before.
	Topology *Topology
	// Leader: the class is one pod that is to be beside the first of the other
	// pods of its Topology.
	Leader bool
	// Beside has the class planned after the classes of that Topology, as close as
	// can be to the first of their pods; nil for wherever it packs best.
	Beside *Topology
	// Kept has the node of the sibling for each rank of the class, "" for those
	// that are to be placed, when a part of a gang is planned again; nil if all
	// are to be placed. It counts only with a Topology.
	Kept []string
	// Near are the nodes that other pods of the gang, of any class, stay on when a
	// part of it is planned again, and NearBy the labels by which nodes are in
	// domains, outermost first. Pods with GPUs that ask for no domain go as near to
	// one of those nodes as there is room.
	Near, NearBy []string
}

// Over stands in Class.Kept for the node of a pod that is over, so that none comes
// again, or that is not placed with this plan.
const Over = "-"

// Topology is a request for closeness, by Kueue's rules.
type Topology struct {
	// Unasked: nothing is asked. The pods are placed as if there was no Topology;
	// it is only said how close they are. The Levels are all that counts then.
	Unasked bool
	// Levels are the labels by which nodes are in domains, outermost first.
	// kubernetes.io/hostname may be the last.
	Levels []string
	// Level is the one that is asked for, "" for any.
	Level string
	// Required: all pods share a domain of the Level; else it is preferred.
	Required bool
	// Slices are pods, one after the other, that must share a domain of their own,
	// from the outermost to those within others.
	Slices []Slice
}

// Slice is Size pods in one domain of a Level. Of slices within others, the Level
// is further in than theirs, and Size goes into theirs without a rest.
type Slice struct {
	Level string
	Size  int
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
	// Placed, if it is set, is told how close the pods of each Topology are, those
	// in Class.Kept among them, once all of the gang has nodes.
	Placed func(*Topology, topology.Quality)
	// Progress, if it is set, is what earlier plans of the gang have tried in vain: this
	// one goes on from there, and notes how far it comes.
	Progress *Progress
}

// ErrStopped is the error of a plan that was told to stop.
var ErrStopped = errors.New("something else came first")

// Assignment has, for each class in the order of Gang.Classes, the node of
// each of its pods: Class.Count names, equal names next to each other. With a
// Topology they are in the order of ranks, else in that in which the nodes were
// chosen.
type Assignment [][]string
