package scheduling

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// noteCohortCycle is the event of a Cohort whose parents lead back to it. The
// ClusterQueues below it say so in their conditions, but there may be none.
const noteCohortCycle = "CohortCycle"

// tellCycles tells each Cohort of a cycle about it, once for each cycle.
func (r *reporter) tellCycles(ctx context.Context) error {
	cycles := r.ledger.cycles()
	for name, way := range cycles {
		if r.cycles[name] == way {
			continue
		}
		cohort := &kueue.Cohort{}
		switch err := r.reader.Get(ctx, client.ObjectKey{Name: name}, cohort); {
		case isGone(err):
			delete(cycles, name)
			continue
		case err != nil:
			return fmt.Errorf("reading Cohort %s: %w", name, err)
		}
		r.recorder.Event(cohort, corev1.EventTypeWarning, noteCohortCycle,
			fmt.Sprintf("its parents lead back to it (%s): no ClusterQueue below it admits jobs until that is changed", way))
	}
	r.cycles = cycles
	return nil
}

// cycles are the cycles of Cohorts, by each Cohort in them.
func (l *Ledger) cycles() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.quota.Cycles()
}
