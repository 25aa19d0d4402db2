package inventory

import (
	"iter"
	"maps"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/placement/islands"
)

// Source knows the GPUs of nodes. It must be safe for concurrent use.
type Source interface {
	// Node is what is known of the node, false if nothing is. What it returns is not
	// changed afterwards, and is the same until something has changed.
	Node(*v1.Node) (*Node, bool)
}

// Node is the GPUs of a node.
type Node struct {
	// Shape has all GPUs of the node, broken ones and those that are cut up
	// included, in the order of their indices.
	Shape *islands.Shape
	// UUIDs are those of the GPUs, nil if they are not known.
	UUIDs []string
	// Doubt says in what the source cannot be believed, "" if it can.
	Doubt string

	// indices are those of the GPUs by their names as devices, and of the GPUs of
	// which devices are parts.
	indices map[DeviceID]int
}

// DeviceID is the name of a device for dynamic resource allocation.
type DeviceID struct{ Driver, Pool, Device string }

// Index is that of the GPU that the device is, or of which it is a part.
func (n *Node) Index(id DeviceID) (int, bool) {
	i, ok := n.indices[id]
	return i, ok
}

// HasDevices says that GPUs of the node are devices, or parts of them.
func (n *Node) HasDevices() bool { return len(n.indices) > 0 }

// WholeDevices says that all GPUs are devices, and that no parts of them are.
func (n *Node) WholeDevices() bool { return len(n.indices) == n.Shape.Devices() }

// Devices are all devices, whole GPUs and parts of them, with the indices of the GPUs.
func (n *Node) Devices() iter.Seq2[DeviceID, int] { return maps.All(n.indices) }

// Sources asks one source after the other.
type Sources []Source

// Node is that of the first source that knows the node.
func (s Sources) Node(node *v1.Node) (*Node, bool) {
	for _, source := range s {
		if n, ok := source.Node(node); ok {
			return n, true
		}
	}
	return nil, false
}
