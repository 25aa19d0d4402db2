package placement

import (
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-gpu/muster/placement/fragmentation"
)

// scores is what a Planner remembers for the scores of nodes, so that a plan costs
// little more than what it must look at.
type scores struct {
	mixture mixture
	memo    fragmentation.Memo
	// pools are those of the nodes, in the order of the last snapshot.
	pools []poolsOf
	// found has the room for candidates.
	found []candidate
}

// poolsOf are the pools of a node. They change only with its object.
type poolsOf struct {
	node  *v1.Node
	pools uint64
}

// begin takes the mix as it is now, for so many nodes.
func (s *scores) begin(m mixture, nodes int) {
	if s.mixture.version != m.version || len(s.pools) != nodes {
		s.pools = make([]poolsOf, nodes)
	}
	s.mixture = m
}

// remainderOf is what the i-th node has free beside GPUs. Its pools are remembered.
func (t *trial) remainderOf(i int) remainder {
	node, p := t.nodes[i], &t.scores.pools[i]
	if _, shown := node.(*deviceNode); shown {
		return remainderOn(node, t.scores.mixture.of(node))
	}
	if node := node.Node(); p.node != node {
		*p = poolsOf{node, t.scores.mixture.of(t.nodes[i])}
	}
	return remainderOn(node, p.pools)
}

func remainderOn(node fwk.NodeInfo, pools uint64) remainder {
	allocatable, requested := node.GetAllocatable(), node.GetRequested()
	return remainder{
		milliCPU: allocatable.GetMilliCPU() - requested.GetMilliCPU(),
		memory:   allocatable.GetMemory() - requested.GetMemory(),
		pools:    pools,
	}
}

// free is what is free with so many GPUs.
func (r remainder) free(gpus int64) fragmentation.Free {
	return fragmentation.Free{MilliCPU: max(0, r.milliCPU), Memory: max(0, r.memory), Pools: r.pools, Devices: int32(max(0, gpus))}
}

// scoring is that of the nodes for the class; nil where chance orders them.
func (s *classSearch) scoring() scoring {
	if s.variation != nil {
		return nil
	}
	one, mask := s.demand.request(), s.scores.mixture.mask(&s.demand)
	// Nodes that are alike tend to be next to each other.
	var last struct {
		remainder remainder
		gpus      int64
		pods      int
		score     fragmentation.Score
	}
	return func(c *candidate, pods int) Score {
		if c.gpus <= 0 {
			return Score{}
		}
		if pods != last.pods || c.gpus != last.gpus || c.remainder != last.remainder {
			free, all := c.remainder.free(c.gpus), one.Times(pods)
			free.Pools &= mask
			last.score, _ = s.scores.memo.Place(s.scores.mixture.Mix, &free, &all)
			last.remainder, last.gpus, last.pods = c.remainder, c.gpus, pods
		}
		fit := s.islands.fit(s.nodes[c.node], c.gpus, &s.demand, pods)
		return scoreOf(last.score, fit, s.scores.mixture.Mix, c.remainder.pools&mask)
	}
}
