package scheduling

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const (
	// noteCohortCycle is the event of a Cohort whose parents lead back to it. The
	// ClusterQueues below it say so in their conditions, but there may be none.
	noteCohortCycle = "CohortCycle"
	// noteCohortInvalid is that of one which Kueue's webhook would refuse: a Cohort
	// has no conditions.
	noteCohortInvalid = "CohortInvalid"
)

// tellCohorts tells each Cohort what is wrong with it, once for each wrong.
func (r *reporter) tellCohorts(ctx context.Context) error {
	cycles, invalid := r.ledger.oddCohorts()
	err := r.tellOdd(ctx, cycles, r.cycles, noteCohortCycle, "its parents lead back to it (%s): no ClusterQueue below it admits jobs until that is changed")
	if err != nil {
		return err
	}
	r.cycles = cycles
	if err := r.tellOdd(ctx, invalid, r.invalid, noteCohortInvalid, "%s; Kueue takes no such Cohort"); err != nil {
		return err
	}
	r.invalid = invalid
	return nil
}

// tellOdd records an event on the Cohorts of which is said something else than was
// told before, and takes out those that do not exist.
func (r *reporter) tellOdd(ctx context.Context, odd, told map[string]string, why, format string) error {
	for name, what := range odd {
		if told[name] == what {
			continue
		}
		cohort := &kueue.Cohort{}
		switch err := r.reader.Get(ctx, client.ObjectKey{Name: name}, cohort); {
		case isGone(err):
			delete(odd, name)
			continue
		case err != nil:
			return fmt.Errorf("reading Cohort %s: %w", name, err)
		}
		r.recorder.Event(cohort, corev1.EventTypeWarning, why, fmt.Sprintf(format, what))
	}
	return nil
}

// oddCohorts are the cycles of Cohorts, by each Cohort in them, and what else is wrong
// with Cohorts.
func (l *Ledger) oddCohorts() (cycles, invalid map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.quota.Cycles(), l.quota.CohortFindings()
}
