package scheduling

import (
	"fmt"
	"time"

	"github.com/muster-gpu/muster/api/reason"
)

// findings are what is to be told of a search that found nobody to stop.
type findings struct {
	// candidates is how many jobs the policies let it stop, each for itself.
	candidates int
	// together is how many of them may go at once, quota says that there is quota then.
	together int
	quota    bool
	// hopeless: all their GPUs would be too few. placeless is why no nodes were found,
	// nil where none were looked for.
	hopeless  bool
	placeless *reason.Reason
}

// inVain says what a search has found that was in vain, as a part of the sentence that
// says why a job is refused; empty if that is nothing.
func (s *search) inVain() string {
	protected := ""
	if !s.protected.IsZero() {
		protected = s.protected.UTC().Format(time.RFC3339)
	}
	f := s.found
	switch {
	case f.candidates == 0 && protected != "":
		return fmt.Sprintf("the jobs that it may preempt are protected until %s at least", protected)
	case f.candidates == 0:
		return ""
	case protected != "":
		protected = fmt.Sprintf(", and others are protected until %s at least", protected)
	}
	all := fmt.Sprintf("all %d jobs", f.candidates)
	if f.candidates == 1 {
		all = "the only job"
	}
	switch {
	case f.together == 0:
		return fmt.Sprintf("%s it preempt %s now%s", s.forbidden(), none(f.candidates), protected)
	case f.together < f.candidates:
		return fmt.Sprintf("%s it preempt all %d jobs at once, and no set of them was found that is enough%s", s.forbidden(), f.candidates, protected)
	case !f.quota:
		return fmt.Sprintf("stopping %s that it may preempt would not give it the quota%s", all, protected)
	case f.hopeless || f.placeless == nil:
		return fmt.Sprintf("stopping %s that it may preempt would not free enough GPUs%s", all, protected)
	}
	return fmt.Sprintf("with %s stopped that it may preempt there would be no place for it (%s)%s", all, f.placeless.Message, protected)
}

// forbidden begins a sentence about what it may not preempt.
func (s *search) forbidden() string {
	if s.ledger.quota.SharesFairly() {
		return "fair sharing does not let"
	}
	return "the policies of its ClusterQueue do not let"
}

func none(jobs int) string {
	if jobs == 1 {
		return "the only job that it might"
	}
	return fmt.Sprintf("any of the %d jobs that it might", jobs)
}
