package scheduling

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
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

// heldLong is how long pods must have been missing for what is held for them to
// be told to others: most come in seconds.
const heldLong = 15 * time.Second

// noteHeld works out what jobs that find no nodes are told of GPUs that look free
// and are held, as the end of a sentence.
func (l *Ledger) noteHeld(now time.Time) {
	type share struct {
		name string
		gpus int64
	}
	var shares []share
	total := int64(0)
	for e := range l.waits.charged {
		if e.lateSince == 0 || now.Sub(e.lateSince.time()) < heldLong {
			continue
		}
		s := share{name: e.job.Owner.Kind + " " + e.job.Owner.NamespacedName.String()}
		for _, set := range e.sets {
			for _, sl := range set.slots {
				if sl.hold != nil {
					s.gpus += set.gpus
				}
			}
		}
		if s.gpus > 0 {
			shares = append(shares, s)
			total += s.gpus
		}
	}
	l.heldFor = ""
	if len(shares) == 0 {
		return
	}
	slices.SortFunc(shares, func(a, b share) int {
		return cmp.Or(cmp.Compare(b.gpus, a.gpus), strings.Compare(a.name, b.name))
	})
	whom := shares[0].name
	if others := len(shares) - 1; others > 0 {
		whom += fmt.Sprintf(" and %d more", others)
	}
	l.heldFor = fmt.Sprintf("; %s %s held for pods of %s that are not there", amount(total, 1), plural(int(total), "is", "are"), whom)
}
