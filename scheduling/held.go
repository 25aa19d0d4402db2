package scheduling

import (
	"time"

	"github.com/muster-gpu/muster/metrics"
)

// countHeld adds what was held without a pod during the time given.
func (j *Jobs) countHeld(d time.Duration) {
	for queue, gpus := range j.ledger.heldGPUs() {
		metrics.HeldGPUSeconds.WithLabelValues(queue).Add(float64(gpus) * d.Seconds())
	}
}

// heldGPUs are the GPUs, by ClusterQueue, of the slots that are held and whose
// pods are not on their nodes.
func (l *Ledger) heldGPUs() map[string]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]int64{}
	for e := range l.waits.charged {
		for _, set := range e.sets {
			if set.gpus == 0 {
				continue
			}
			for _, s := range set.slots {
				if s.hold != nil {
					out[e.assignment.ClusterQueue] += set.gpus
				}
			}
		}
	}
	return out
}
