package scheduling

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// The reasons of evictions for which Kueue has none.
const (
	// evictedByQueueChange: a job that does not run names another queue than that in
	// which it was admitted.
	evictedByQueueChange = "QueueChanged"
	// evictedByPodSetsChange: a job asks for other pods than it was admitted with.
	evictedByPodSetsChange = "PodSetsChanged"
	// evictedForDeletion: its Workload was deleted.
	evictedForDeletion = "WorkloadDeleted"
	// evictedTooLate: the admission of a scheduler that leads no more came when
	// what it gives had been given to others.
	evictedTooLate = "AdmissionOutdated"
)

// changed is the eviction of a job that was admitted as had, and is another one now.
func changed(had, job *workload.Job) eviction {
	if had.Queue != job.Queue {
		return eviction{reason: evictedByQueueChange, message: fmt.Sprintf("it was admitted in %s, and names %s now", inQueue(had.Queue), inQueue(job.Queue))}
	}
	return eviction{reason: evictedByPodSetsChange, message: "it asks for other pods than it was admitted with: " + otherPods(had, job)}
}

// otherPods says in what the pods of two versions of a job differ.
func otherPods(had, job *workload.Job) string {
	var out []string
	names := func(j *workload.Job) []string {
		var out []string
		for i := range j.PodSets {
			out = append(out, j.PodSets[i].Name)
		}
		return out
	}
	if was, now := names(had), names(job); !slices.Equal(was, now) {
		return fmt.Sprintf("its pod sets were %s, and are %s", strings.Join(was, ", "), strings.Join(now, ", "))
	}
	for i := range had.PodSets {
		x, y := &had.PodSets[i], &job.PodSets[i]
		if x.Count != y.Count {
			out = append(out, fmt.Sprintf("%s had %d pods, and has %d", x.Name, x.Count, y.Count))
		}
		was, now := quota.RequestsOf(workload.Requests(&x.Template)).String(), quota.RequestsOf(workload.Requests(&y.Template)).String()
		if was != now {
			out = append(out, fmt.Sprintf("each pod of %s asked for %s, and asks for %s", x.Name, was, now))
		}
	}
	return strings.Join(out, "; ")
}
