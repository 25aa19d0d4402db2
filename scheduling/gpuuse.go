package scheduling

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/agent/verdict"
	"github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/workload"
)

// gpuUse is what a job does with its GPUs, as far as the agents say.
type gpuUse struct {
	state gpuState
	// gpus is how many the job has, stalled how many of them are.
	gpus    int64
	stalled int
	// since is since when the last of them does what state says.
	since time.Time
	// reclaimable: all of them can be taken away without a loss, says every node,
	// and has said so lately.
	reclaimable bool
}

// gpuState sums up what a job does with its GPUs. Those that are known are the reasons
// of the condition of its Workload.
type gpuState string

const (
	// gpusUnknown: of some of them nobody says anything, or not lately.
	gpusUnknown gpuState = ""
	// gpusInUse: some are.
	gpusInUse gpuState = "InUse"
	// gpusIdle: none has been used for long.
	gpusIdle gpuState = "Idle"
	// gpusStalled: none gets anything done, though kernels run on some.
	gpusStalled gpuState = "Stalled"
)

// useOf is what an admitted job does with its GPUs.
func (l *Ledger) useOf(e *entry, now time.Time) gpuUse {
	u := gpuUse{gpus: e.gpus()}
	if u.gpus == 0 || e.state != Admitted {
		return u
	}
	s := survey{nodes: l.gpuNodes, now: now}
	for _, set := range e.sets {
		if workload.GPUs(set.set.Claimed.Shared) > 0 {
			// Which pods are to have how many of these, nobody says.
			s.unknown = true
		}
		for _, sl := range set.slots {
			switch {
			case set.gpus == 0 || sl.done || sl.surplus:
			case !sl.bound:
				s.unknown = true
			default:
				s.ask(sl.pod, int(set.gpus))
			}
		}
	}
	for _, p := range e.unplaced {
		s.unknown = s.unknown || p.Spec.NodeName != ""
	}
	return s.sum(u.gpus)
}

// survey asks what pods do with their GPUs.
type survey struct {
	nodes *gpuNodes
	now   time.Time

	// asked is how many GPUs the pods have, reports what was said of these.
	asked           int
	reports         []verdict.Report
	active, unknown bool
	stalled         int
	since           time.Time
}

// ask asks about a pod that has so many GPUs.
func (s *survey) ask(pod *corev1.Pod, gpus int) {
	s.asked += gpus
	node := s.nodes.get(pod.Spec.NodeName)
	if !node.fresh(s.now) {
		s.unknown = true
		return
	}
	told := 0
	for i := range node.devices {
		for j := range node.devices[i].Holders {
			h := &node.devices[i].Holders[j]
			if h.PodUID != string(pod.UID) {
				continue
			}
			parts := min(partsOf(h), gpus)
			told += parts
			for range parts {
				s.reports = append(s.reports, verdict.Report{Reclaimable: h.Reclaimable, Heartbeat: node.said})
			}
			s.hear(h, parts)
		}
	}
	s.unknown = s.unknown || told < gpus
}

// sum is what those do that were asked about, who have so many GPUs.
func (s *survey) sum(gpus int64) gpuUse {
	u := gpuUse{gpus: gpus, stalled: s.stalled, since: s.since}
	switch {
	case s.active:
		u.state = gpusInUse
	case s.unknown || s.asked == 0:
	case s.stalled > 0:
		u.state = gpusStalled
	default:
		u.state = gpusIdle
	}
	u.reclaimable = !s.unknown && verdict.Reclaimable(s.asked, s.reports, s.now)
	return u
}

func (s *survey) hear(h *v1alpha1.GPUHolder, parts int) {
	switch h.Verdict {
	case v1alpha1.GPUIdle, v1alpha1.GPUStalled:
		if h.Verdict == v1alpha1.GPUStalled {
			s.stalled += parts
		}
		// For how long it would have done nothing, nobody knows.
		s.unknown = s.unknown || h.Since.IsZero()
	case v1alpha1.GPUActive:
		s.active = true
	default:
		s.unknown = true
	}
	if h.Since.After(s.since) {
		s.since = h.Since.Time
	}
}

// partsOf is how many of what a device is shared out in the pod holds, each of which it
// has asked for: one where it has all of it, or where that is not said as it should be.
func partsOf(h *v1alpha1.GPUHolder) int {
	var parts, of int
	if n, err := fmt.Sscanf(h.Share, "%d/%d", &parts, &of); err != nil || n != 2 || parts < 1 || parts > of {
		return 1
	}
	return parts
}

// reclaimable says that all GPUs of a job can be taken away without a loss: it has used
// none of them for long, and has not asked to be left alone.
func (l *Ledger) reclaimable(e *entry, u gpuUse, now time.Time) bool {
	return u.reclaimable && !now.Before(e.job.Hints.IdleExemptUntil)
}

// inWords says what a job does with its GPUs, as a sentence that is its own subject.
func (u gpuUse) inWords() string {
	since := u.since.UTC().Format(time.RFC3339)
	switch {
	case u.state == gpusStalled:
		return fmt.Sprintf("kernels run on %d of its %s, and get nothing done since %s", u.stalled, amount(u.gpus, 0), since)
	case u.gpus == 1:
		return fmt.Sprintf("its GPU has not been used since %s", since)
	default:
		return fmt.Sprintf("none of its %d GPUs has been used since %s", u.gpus, since)
	}
}
