package simulator

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Labels of JobSet, on Jobs and their pods.
const (
	jobSetUIDLabel     = "jobset.sigs.k8s.io/jobset-uid"
	replicatedJobLabel = "jobset.sigs.k8s.io/replicatedjob-name"
	replicasLabel      = "jobset.sigs.k8s.io/replicatedjob-replicas"
	jobIndexLabel      = "jobset.sigs.k8s.io/job-index"
)

// podGang begins the key of a pod that is its own gang.
const podGang = "pod/"

// gangKey names the gang of a pod: the replicated job of its JobSet, else its
// Job, else the pod itself.
func gangKey(pod *corev1.Pod) string {
	if key, ok := jobSetGang(pod.Labels); ok {
		return key
	}
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "Job" && owner.APIVersion == batchv1.SchemeGroupVersion.String() {
		return "job/" + string(owner.UID)
	}
	return podGang + string(pod.UID)
}

// jobGangKey names the gang to which the pods of a Job belong.
func jobGangKey(job *batchv1.Job) string {
	if key, ok := jobSetGang(job.Labels); ok {
		return key
	}
	return "job/" + string(job.UID)
}

func jobSetGang(labels map[string]string) (string, bool) {
	uid, name := labels[jobSetUIDLabel], labels[replicatedJobLabel]
	return "jobset/" + uid + "/" + name, uid != "" && name != ""
}

// expectedRanks is how many ranks a gang has when it is complete; ok is false
// while not all of its Jobs exist.
func expectedRanks(key string, jobs []*batchv1.Job) (ranks int, ok bool) {
	if strings.HasPrefix(key, podGang) {
		return 1, true
	}
	// A JobSet that restarts deletes its Jobs and creates them anew under the
	// same index.
	newest := map[string]*batchv1.Job{}
	replicas := 1
	for _, job := range jobs {
		if job.DeletionTimestamp != nil {
			continue
		}
		if n, err := strconv.Atoi(job.Labels[replicasLabel]); err == nil {
			replicas = n
		}
		index := job.Labels[jobIndexLabel]
		if other := newest[index]; other == nil || other.CreationTimestamp.Before(&job.CreationTimestamp) {
			newest[index] = job
		}
	}
	for _, job := range newest {
		ranks += jobRanks(job)
	}
	return ranks, len(newest) >= replicas
}

// jobRanks is how many pods of a Job run side by side.
func jobRanks(job *batchv1.Job) int {
	ranks := 1
	if job.Spec.Parallelism != nil {
		ranks = int(*job.Spec.Parallelism)
	}
	if job.Spec.Completions != nil {
		ranks = min(ranks, int(*job.Spec.Completions))
	}
	return ranks
}

// isQueue says whether a Job works through more pods than run at once. Such
// pods are independent of each other.
func isQueue(job *batchv1.Job) bool {
	return job.Spec.Completions != nil && int(*job.Spec.Completions) > jobRanks(job)
}

// rank is what matters of one pod to the progress of its gang.
type rank struct {
	// started is zero while the pod does not run yet.
	started time.Time
	// lost is when a rank that ran stopped taking part, other than by
	// succeeding; zero while it takes part.
	lost time.Time
	// gone is true when the rank stopped and nobody wrote down when.
	gone bool
}

func rankOf(pod *corev1.Pod) rank {
	r := rank{started: timeOf(pod, StartedAtAnnotation)}
	switch {
	case pod.Status.Phase == corev1.PodSucceeded:
	case pod.Status.Phase == corev1.PodFailed:
		r.lost = timeOf(pod, FinishedAtAnnotation)
		r.gone = r.lost.IsZero()
	case pod.DeletionTimestamp != nil:
		r.lost = deletionRequested(pod)
	}
	return r
}

// deletionRequested is when the deletion was asked for; deletionTimestamp is
// when the grace period ends.
func deletionRequested(pod *corev1.Pod) time.Time {
	requested := pod.DeletionTimestamp.Time
	if pod.DeletionGracePeriodSeconds != nil {
		requested = requested.Add(-time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second)
	}
	return requested
}

// progress is how long the gang has run with all its ranks together, by now.
// It is counted from the last rank's start, so a rank that is replaced takes
// the gang back to zero, as a restart without a checkpoint does, and until the
// first rank is lost. advancing says whether it still grows.
func progress(ranks []rank, expected int, now time.Time) (done time.Duration, advancing bool) {
	if len(ranks) < expected || len(ranks) == 0 {
		return 0, false
	}
	advancing = true
	var began time.Time
	until := now
	for _, r := range ranks {
		if r.started.IsZero() || r.gone {
			return 0, false
		}
		if r.started.After(began) {
			began = r.started
		}
		if !r.lost.IsZero() {
			advancing = false
			if r.lost.Before(until) {
				until = r.lost
			}
		}
	}
	return max(0, until.Sub(began)), advancing
}

// gangRanks picks one pod for each rank. Pods with a completion index compete
// for it, and the newest wins; of the others, those that take part come first,
// and no more than expected are taken.
func gangRanks(pods []*corev1.Pod, expected int) []rank {
	ordered := slices.Clone(pods)
	slices.SortFunc(ordered, func(a, b *corev1.Pod) int {
		return cmp.Or(
			b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
			cmp.Compare(standing(a), standing(b)),
			cmp.Compare(a.Name, b.Name))
	})
	taken := map[string]bool{}
	var ranks []rank
	var unnumbered []*corev1.Pod
	for _, pod := range ordered {
		index, numbered := pod.Labels[batchv1.JobCompletionIndexAnnotation]
		if !numbered {
			unnumbered = append(unnumbered, pod)
			continue
		}
		if place := pod.Labels[jobIndexLabel] + "/" + index; !taken[place] {
			taken[place] = true
			ranks = append(ranks, rankOf(pod))
		}
	}
	slices.SortStableFunc(unnumbered, func(a, b *corev1.Pod) int { return cmp.Compare(standing(a), standing(b)) })
	for _, pod := range unnumbered[:min(len(unnumbered), max(0, expected-len(ranks)))] {
		ranks = append(ranks, rankOf(pod))
	}
	return ranks
}

// standing orders pods by how much they take part: 0 does, 1 leaves, 2 has
// failed.
func standing(pod *corev1.Pod) int {
	switch {
	case pod.Status.Phase == corev1.PodFailed:
		return 2
	case pod.DeletionTimestamp != nil && pod.Status.Phase != corev1.PodSucceeded:
		return 1
	default:
		return 0
	}
}
