package scheduling

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/workload"
)

// The events of a group of pods that is admitted, beside those of all jobs.
const (
	// notePodsGone warns: pods that ran have gone, and no others have come.
	notePodsGone = "PodsGone"
	// noteGroupFull: a pod waits because its group has all its pods.
	noteGroupFull = "GroupFull"
)

// goneFor is how long a group's pods may be gone before it is told: their
// controller may make others, and how they ended is asked first.
const goneFor = time.Second

// groupsTold is what was told of groups that are admitted, so that it is told
// once.
type groupsTold struct {
	// gone is how many of a group's pods had gone, by the group's UID.
	gone map[types.UID]int
	// full are the pods that wait for one of their group to go.
	full map[types.UID]struct{}
}

// tendGroups tells what nobody else notices of groups of pods: no controller
// replaces a pod of theirs that is gone, and one too many is not refused.
func (l *Ledger) tendGroups(now time.Time, t Timing) {
	told := groupsTold{gone: map[types.UID]int{}, full: map[types.UID]struct{}{}}
	for e := range l.waits.charged {
		if e.state != Admitted || e.job.Owner.Kind != workload.PodGroupGVK.Kind {
			continue
		}
		uid := e.job.Owner.UID
		if n := e.gone(now); n > 0 && now.Sub(e.lateSince.time()) >= goneFor && !l.kueueDecides() {
			if told.gone[uid] = n; l.groupsTold.gone[uid] != n {
				_, all := e.progress(now)
				l.effects.Note(e.job, notePodsGone, goneNow(n, all)+fmt.Sprintf("; %s kept, and all are released if %s in %s", plural(n, "its place is", "their places are"), plural(n, "none takes it", "none take them"), e.mayMiss(t)))
			}
		}
		for _, pod := range e.unplaced {
			if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
				continue
			}
			told.full[pod.UID] = struct{}{}
			if _, already := l.groupsTold.full[pod.UID]; !already {
				alone := *e.job
				alone.Pods = []*corev1.Pod{pod}
				l.effects.Note(&alone, noteGroupFull, e.noPlaceInGroup())
			}
		}
	}
	l.groupsTold = told
}

// noPlaceInGroup says why a pod of an admitted group waits that has no slot.
func (e *entry) noPlaceInGroup() string {
	all, free := 0, 0
	for _, set := range e.sets {
		for _, s := range set.slots {
			all++
			if s.pod == nil && !s.done && !s.surplus {
				free++
			}
		}
	}
	if free > 0 {
		return fmt.Sprintf("group %s has no place for a pod like this one: those that are free are for pods that ask for something else", e.job.Owner.Name)
	}
	return fmt.Sprintf("group %s has its %s; this one waits until one of them goes", e.job.Owner.Name, amount(0, int64(all)))
}

// gone is the number of slots whose pod was on its node since the admission and
// is there no more.
func (e *entry) gone(now time.Time) int {
	n := 0
	for _, set := range e.sets {
		for _, s := range set.slots {
			if s.missing(now) && s.hasCome() {
				n++
			}
		}
	}
	return n
}

// hasCome says that a pod of the slot has been on its node since the admission.
func (s *slot) hasCome() bool { return s.came || s.wasReady }

// notThere says which pods of a job are not on their nodes, and since when.
func (e *entry) notThere(now time.Time, since time.Duration) string {
	bound, all := e.progress(now)
	switch gone := e.gone(now); {
	case gone == 0:
		return fmt.Sprintf("%s pods came onto their nodes in %s", onlySome(bound, all), since)
	case bound+gone == all:
		return fmt.Sprintf("%d of %d pods %s been gone for %s", gone, all, plural(gone, "has", "have"), since)
	default:
		return fmt.Sprintf("%s pods are on their nodes after %s", onlySome(bound, all), since)
	}
}

// goneNow says that n of all pods have gone.
func goneNow(n, all int) string {
	return fmt.Sprintf("%d of %d pods %s gone", n, all, plural(n, "has", "have"))
}

// onlySome says that n of all are too few.
func onlySome(n, all int) string {
	if n == 0 {
		return fmt.Sprintf("none of %d", all)
	}
	return fmt.Sprintf("only %d of %d", n, all)
}

func plural(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}
