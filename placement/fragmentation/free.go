package fragmentation

// Whole is a whole device, in the unit of shares of one: thousandths.
const Whole = 1000

// MaxParts is how many devices of a node may be in use in part; of more, those
// with the least left are taken for used up.
const MaxParts = 16

// MaxPools is the number of pools.
const MaxPools = 64

// Request is what one pod asks of a node.
type Request struct {
	// MilliCPU and Memory, in thousandths of a CPU and in bytes.
	MilliCPU, Memory int64
	// Devices is the number of whole GPUs.
	Devices int32
	// Share is that of one GPU, in thousandths and less than Whole, for pods that
	// use one with others; Devices is 0 then.
	Share uint16
	// Pool is the set of nodes that such pods may use, a number of the caller's
	// below MaxPools.
	Pool uint8
}

// GPUs is what the pod takes of all GPUs, in thousandths.
func (r *Request) GPUs() int64 { return int64(r.Devices)*Whole + int64(r.Share) }

// Times is what n pods ask for together, if they ask for no shares.
func (r Request) Times(n int) Request {
	r.MilliCPU *= int64(n)
	r.Memory *= int64(n)
	r.Devices *= int32(n)
	return r
}

// Free is what of a node is not taken. It is a value: nodes that are alike are
// equal.
type Free struct {
	// MilliCPU and Memory as in Request.
	MilliCPU, Memory int64
	// Pools has a bit for each pool that the node is in.
	Pools uint64
	// Devices is the number of GPUs that nobody uses.
	Devices int32
	// Parts are the free shares of the GPUs that are used in part, in thousandths,
	// the largest first, and 0 behind them.
	Parts [MaxParts]uint16
}

// GPUs is what of all GPUs of the node is free, in thousandths.
func (f *Free) GPUs() int64 {
	n := int64(f.Devices) * Whole
	for _, part := range f.Parts {
		if part == 0 {
			break
		}
		n += int64(part)
	}
	return n
}

// Holds tells whether a pod fits in what is free, whatever its pool.
func (f *Free) Holds(r *Request) bool {
	return f.MilliCPU >= r.MilliCPU && f.Memory >= r.Memory && f.Devices >= r.Devices &&
		(r.Share == 0 || f.Devices > 0 || f.Parts[0] >= r.Share)
}

// Unused is the place of a device that nobody uses, beside those of Free.Parts.
const Unused = -1

// Less is what is left when a pod has come that fits. Its share is taken from the
// device at a place in Parts, or from an Unused one.
func (f Free) Less(r *Request, device int) Free {
	f.MilliCPU -= r.MilliCPU
	f.Memory -= r.Memory
	f.Devices -= r.Devices
	switch {
	case r.Share == 0:
	case device == Unused:
		f.Devices--
		f.put(Whole - r.Share)
	default:
		left := f.Parts[device] - r.Share
		copy(f.Parts[device:], f.Parts[device+1:])
		f.Parts[MaxParts-1] = 0
		f.put(left)
	}
	return f
}

// put adds a device that has so much left to Parts.
func (f *Free) put(left uint16) {
	at := 0
	for at < MaxParts && f.Parts[at] >= left {
		at++
	}
	if at < MaxParts {
		copy(f.Parts[at+1:], f.Parts[at:MaxParts-1])
		f.Parts[at] = left
	}
}
