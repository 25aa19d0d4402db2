package verdict

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Rules are the times and bounds by which a unit is judged.
type Rules struct {
	// Tick is the time between two samples.
	Tick time.Duration
	// IdleAfter is the window in which at most one sample may be busy.
	IdleAfter time.Duration
	// IdleAge is the age that a container has at least when it is called idle: images,
	// data and checkpoints are loaded first.
	IdleAge time.Duration
	// StalledAfter is the window in which every sample must be spinning.
	StalledAfter time.Duration
	// ReclaimAfter is how long a unit is idle without a break before it is reclaimable,
	// and ReclaimAge the age that its container has then at least.
	ReclaimAfter, ReclaimAge time.Duration
	// ReclaimStalled has units that are stalled count like idle ones there.
	ReclaimStalled bool
	// BlindAfter is how long nothing may be measured before a unit is unknown.
	BlindAfter time.Duration
	// Covered is the part of a window that samples must cover, 0..1.
	Covered float64
	// BusyFrom is the use from which a sample is busy, 0..1.
	BusyFrom float64
	// SpinningFrom is the part of the time in which kernels run, 0..1, from which a
	// sample may be spinning: it is if the multiprocessors have less work than
	// BusyFrom, or if the device draws less than SpinningPower of its limit. A GPU of
	// a data centre that does nothing draws a tenth to a sixth of its limit.
	SpinningFrom, SpinningPower float64
}

// Defaults are the Rules where nothing else is said.
func Defaults() Rules {
	return Rules{
		Tick:          15 * time.Second,
		IdleAfter:     600 * time.Second,
		IdleAge:       900 * time.Second,
		StalledAfter:  900 * time.Second,
		ReclaimAfter:  300 * time.Second,
		ReclaimAge:    1800 * time.Second,
		BlindAfter:    60 * time.Second,
		Covered:       0.8,
		BusyFrom:      0.01,
		SpinningFrom:  0.99,
		SpinningPower: 0.2,
	}
}

// NotebookIdleAfter is the window of notebooks, whose users read and think.
const NotebookIdleAfter = 1800 * time.Second

// MaxIdleAfter is the longest window that may be asked for: samples are kept for
// as long.
const MaxIdleAfter = 24 * time.Hour

// Override replaces some of the Rules. A zero field replaces nothing.
type Override struct {
	IdleAfter, IdleAge       time.Duration
	StalledAfter             time.Duration
	ReclaimAfter, ReclaimAge time.Duration
	ReclaimStalled           *bool
}

// Settings are the Rules of a whole cluster, and where others hold.
type Settings struct {
	Rules Rules
	// Kinds are the overrides for kinds of workloads, and Queues those for
	// ClusterQueues.
	Kinds, Queues map[string]Override
}

// DefaultSettings are the Settings where nothing else is said.
func DefaultSettings() Settings {
	return Settings{
		Rules: Defaults(),
		Kinds: map[string]Override{"Notebook": {IdleAfter: NotebookIdleAfter}},
	}
}

// For are the Rules for a workload of that kind in that queue: the override of the
// kind comes before the common rules, that of the queue before the kind's, and the
// workload's own before all.
func (s Settings) For(kind, queue string, own Override) Rules {
	return s.Rules.with(s.Kinds[kind]).with(s.Queues[queue]).with(own)
}

func (r Rules) with(o Override) Rules {
	r.IdleAfter = cmp.Or(o.IdleAfter, r.IdleAfter)
	r.IdleAge = cmp.Or(o.IdleAge, r.IdleAge)
	r.StalledAfter = cmp.Or(o.StalledAfter, r.StalledAfter)
	r.ReclaimAfter = cmp.Or(o.ReclaimAfter, r.ReclaimAfter)
	r.ReclaimAge = cmp.Or(o.ReclaimAge, r.ReclaimAge)
	if o.ReclaimStalled != nil {
		r.ReclaimStalled = *o.ReclaimStalled
	}
	return r
}

// Annotations by which a workload asks for rules of its own.
const (
	// IdleAfterAnnotation is the window of idleness, as "45m".
	IdleAfterAnnotation = "muster.dev/idle-after"
	// IdleExemptUntilAnnotation is a time, as "2026-12-24T18:00:00Z", before which the
	// workload is not reclaimable. What it does is said and counted all the same.
	IdleExemptUntilAnnotation = "muster.dev/idle-exempt-until"
)

// Asked is what the annotations of a workload ask for. One that cannot be read
// changes nothing; the error names each such annotation, and what is wrong with it.
func Asked(annotations map[string]string) (own Override, exemptUntil time.Time, err error) {
	var wrong []error
	if text, ok := annotations[IdleAfterAnnotation]; ok {
		after, err := time.ParseDuration(text)
		switch {
		case err != nil:
			wrong = append(wrong, fmt.Errorf("annotation %s: %w", IdleAfterAnnotation, err))
		case after < time.Minute || after > MaxIdleAfter:
			wrong = append(wrong, fmt.Errorf("annotation %s: %q is not from 1m to 24h", IdleAfterAnnotation, text))
		default:
			own.IdleAfter = after
		}
	}
	if text, ok := annotations[IdleExemptUntilAnnotation]; ok {
		until, err := time.Parse(time.RFC3339, text)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("annotation %s: %w", IdleExemptUntilAnnotation, err))
		}
		exemptUntil = until
	}
	return own, exemptUntil, errors.Join(wrong...)
}
