package sandbox

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are handed out in blocks whose first port stays bound for as long as
// the sandbox lives. Two sandboxes that start in the same instant therefore
// never choose the same ports, although most ports of a block are bound only
// seconds later, by the components.
const (
	portBlock = 64
	// Below the kernel's usual range of ephemeral ports (32768 and up), so
	// that no outgoing connection takes a port between choice and use.
	firstPort = 20000
	lastPort  = 32000
)

// portRange is one block: next hands out the ports after the first.
type portRange struct {
	base, used int
}

// claimPorts binds the first port of a free block and checks that the others
// are free. The listener is the claim: closing it gives the block back.
func claimPorts() (*portRange, net.Listener, error) {
	blocks := (lastPort - firstPort) / portBlock
	for _, block := range rand.Perm(blocks) {
		base := firstPort + block*portBlock
		claim, err := listenLoopback(base)
		if err != nil {
			continue
		}
		if blockFree(base) {
			return &portRange{base: base}, claim, nil
		}
		claim.Close()
	}
	return nil, nil, fmt.Errorf("no %d free ports in a row between %d and %d on 127.0.0.1", portBlock, firstPort, lastPort)
}

func blockFree(base int) bool {
	for port := base + 1; port < base+portBlock; port++ {
		listener, err := listenLoopback(port)
		if err != nil {
			return false
		}
		listener.Close()
	}
	return true
}

// next returns the next port of the block. It panics when the block is used
// up, which only a new component in this package can bring about.
func (r *portRange) next() int {
	r.used++
	if r.used >= portBlock {
		panic(fmt.Sprintf("sandbox: more than %d ports asked for", portBlock-1))
	}
	return r.base + r.used
}

func listenLoopback(port int) (net.Listener, error) {
	return net.Listen("tcp", loopback(port))
}

// loopback is the address of a port on the loopback interface.
func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
