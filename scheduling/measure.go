package scheduling

import (
	"time"

	"github.com/muster-gpu/muster/metrics"
)

// measureEvery is the shortest time between two looks at what all nodes have free.
const measureEvery = 15 * time.Second

// measure tells the metrics how many GPUs are free, and how many of them are of little
// use, now and then.
func (p *pass) measure() error {
	now := p.ledger.clock.Now()
	if now.Sub(p.measured) < measureEvery {
		return nil
	}
	p.measured = now
	if err := p.refresh(); err != nil {
		return err
	}
	snap, err := p.snapshot()
	if err != nil {
		return err
	}
	nodes, err := snap.NodeInfos().List()
	if err != nil {
		return err
	}
	free, fragmented := p.planner.Mix().Free(nodes)
	metrics.FreeGPUs.Set(float64(free))
	metrics.FragmentedGPUs.Set(fragmented)
	return nil
}
