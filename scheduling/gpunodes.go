package scheduling

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"github.com/muster-gpu/muster/agent/verdict"
	"github.com/muster-gpu/muster/api/v1alpha1"
)

// gpuNodes is what the agents say of the GPUs of nodes. Where there is no agent, or no
// GPUNode is served at all, it knows nothing. It is safe for concurrent use.
type gpuNodes struct {
	clock clock.PassiveClock
	// changed are told of a node of which something else is said than before, or
	// of which something old is said anew. They are set before anything is told.
	changed []func(node string)

	mu    sync.RWMutex
	nodes map[string]*gpuNode
}

// gpuNode is what was said last of the GPUs of one node. It is not changed afterwards.
type gpuNode struct {
	// said is when, by the node's clock, and heard by ours. What was there before it
	// was listened to is as old as it says.
	said, heard time.Time
	// devices are the GPUs and their slices, each slice after its GPU.
	devices []v1alpha1.GPUDevice
	// cut are the minor numbers of the GPUs that are cut into slices, and sick of those
	// that are unhealthy as a whole.
	cut, sick sets.Set[int32]
}

// unhealthyFor is how long a GPU counts as unhealthy of which nothing more is heard: long
// enough for an agent that is replaced or does not start, because a GPU does not heal by
// that, and not for ever, because agents may be taken away and leave their reports behind.
const unhealthyFor = time.Hour

// newGPUNode is what an object says that has come now, after old.
func newGPUNode(o *v1alpha1.GPUNode, old *gpuNode, now time.Time) *gpuNode {
	n := &gpuNode{said: o.Status.LastHeartbeat.Time, heard: now, devices: o.Status.Devices, cut: sets.New[int32](), sick: sets.New[int32]()}
	switch {
	case old == nil && n.said.Before(now):
		n.heard = n.said
	case old != nil && n.said.Equal(old.said):
		n.heard = old.heard
	}
	for i := range n.devices {
		switch d := &n.devices[i]; {
		case d.Profile != "":
			n.cut.Insert(d.Minor)
		case len(d.Unhealthy) > 0:
			n.sick.Insert(d.Minor)
		}
	}
	return n
}

func newGPUNodes(c clock.PassiveClock) *gpuNodes {
	return &gpuNodes{clock: c, nodes: map[string]*gpuNode{}}
}

// set takes in what is said of a node.
func (g *gpuNodes) set(o *v1alpha1.GPUNode) {
	now := g.clock.Now()
	g.mu.Lock()
	old := g.nodes[o.Name]
	n := newGPUNode(o, old, now)
	g.nodes[o.Name] = n
	g.mu.Unlock()
	if old == nil || old.fresh(now) != n.fresh(now) || old.knowsHealth(now) != n.knowsHealth(now) || !equality.Semantic.DeepEqual(old.devices, n.devices) {
		g.tell(o.Name)
	}
}

// forget is told that nothing is said of a node any more.
func (g *gpuNodes) forget(node string) {
	g.mu.Lock()
	delete(g.nodes, node)
	g.mu.Unlock()
	g.tell(node)
}

func (g *gpuNodes) tell(node string) {
	for _, do := range g.changed {
		do(node)
	}
}

// none says that nothing was said of any node.
func (g *gpuNodes) none() bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return len(g.nodes) == 0
}

// get is what was said last of a node, however old it is; nil if nothing was. How the
// GPUs are joined stays true for longer than what they do.
func (g *gpuNodes) get(node string) *gpuNode {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.nodes[node]
}

// fresh says that what is said of the use of a node's GPUs can be believed: it was said
// lately, by a clock that is not far from this one. Nothing is not.
func (n *gpuNode) fresh(now time.Time) bool {
	if n == nil {
		return false
	}
	age := now.Sub(n.said)
	return age <= verdict.FreshFor && age >= -verdict.FreshFor
}

// knowsHealth says that the GPUs that are said to be unhealthy are to be avoided. That is
// so for longer than what they do is believed, and whatever the time on the node's clock.
func (n *gpuNode) knowsHealth(now time.Time) bool {
	return n != nil && now.Sub(n.heard) <= unhealthyFor
}

// clockDoubt says that an agent is heard of and not believed, because its clock is wrong;
// empty if not.
func (n *gpuNode) clockDoubt(now time.Time) string {
	if n == nil || now.Sub(n.heard) > verdict.FreshFor {
		return ""
	}
	way := "ahead of"
	switch ahead := n.said.Sub(n.heard); {
	case ahead < -verdict.FreshFor:
		way = "behind"
	case ahead <= verdict.FreshFor:
		return ""
	}
	return fmt.Sprintf("the clock of its GPU agent is more than %s %s the scheduler's; what it says of GPUs that idle does not count", verdict.FreshFor, way)
}
