package device

// Device is one GPU, or one MIG slice of one. It does not change while it is there.
type Device struct {
	// UUID is the only name that lasts: indexes and minor numbers are given anew.
	// GPU-... for a whole GPU, MIG-... for a slice.
	UUID string
	// Parent is the UUID of the GPU that a slice is cut from, "" for a whole GPU.
	Parent string
	// Minor is N of /dev/nvidiaN, of the parent for a slice. -1 where unknown.
	Minor int
	// Product is the name that the vendor gives it, as "NVIDIA H200".
	Product string
	// MemoryBytes is what it has of memory of its own.
	MemoryBytes uint64
	// GPUInstance and ComputeInstance number a slice within its parent, -1 for a
	// whole GPU. The numbers are used again for other slices later.
	GPUInstance, ComputeInstance int
	// Profile of a slice, as "1g.10gb", "" for a whole GPU.
	Profile string
	// Share is how much of a GPU it is.
	Share Share
	// NUMANode is that of its PCI device, -1 where there is none.
	NUMANode int
	// PCIRoot is the root complex below which it sits, as "pci0000:17".
	PCIRoot string
	// Island names the GPUs that reach each other by NVLink, "" where none do.
	Island string
	// Peers are the UUIDs of the GPUs of this node that it reaches by NVLink.
	Peers []string
}

// Health is how a device is. The zero value is that of a healthy one.
type Health struct {
	// Lost: the driver does not reach it any more.
	Lost bool
	// Reasons say what is wrong, one short sentence each; none if nothing is.
	Reasons []string
	// XIDs counts the errors that the driver has reported since the reader began, by
	// the number of their kind.
	XIDs map[uint64]uint64
}

// Healthy says that new work may be put on it.
func (h Health) Healthy() bool { return !h.Lost && len(h.Reasons) == 0 }

// Process is one that has a context on a device.
type Process struct {
	// PID as the host numbers it.
	PID uint32
	// MemoryBytes that it holds of the device, 0 where the driver does not say.
	MemoryBytes uint64
}
