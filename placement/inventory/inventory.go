package inventory

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/dynamic-resource-allocation/structured"

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

	// devices are the GPUs that are devices, and parts of GPUs that are.
	devices []Device
}

// Device is one for dynamic resource allocation, with the index of the GPU that it is,
// or of which it is a part.
type Device struct {
	ID  structured.DeviceID
	GPU int
}

// Index is that of the GPU that the device is, or of which it is a part.
func (n *Node) Index(id structured.DeviceID) (int, bool) {
	for _, d := range n.devices {
		if d.ID == id {
			return d.GPU, true
		}
	}
	return 0, false
}

// HasDevices says that GPUs of the node are devices, or parts of them.
func (n *Node) HasDevices() bool { return len(n.devices) > 0 }

// WholeDevices says that all GPUs are devices, and that no parts of them are.
func (n *Node) WholeDevices() bool { return len(n.devices) == n.Shape.Devices() }

// Devices are all devices, whole GPUs and parts of them. They are not to be changed.
func (n *Node) Devices() []Device { return n.devices }

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
