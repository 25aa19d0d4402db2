package workload

import (
	"encoding/json"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
)

// A Job may say with how few pods it can do. Where it is started with fewer than
// it asks for, its parallelism is that number until it is suspended, and a note on
// the Job says what it was.

// The annotations of a Job that may run in part, Kueue's.
const (
	minParallelismAnnotation  = "kueue.x-k8s.io/job-min-parallelism"
	syncCompletionsAnnotation = "kueue.x-k8s.io/job-completions-equal-parallelism"
)

// partAnnotation is the note on a Job that runs in part.
const partAnnotation = "muster.dev/admitted-in-part"

// partNote is what the note says.
type partNote struct {
	// Pods is the parallelism that the Job was given. With any other one the note
	// means nothing: somebody has changed the Job since.
	Pods int32 `json:"pods"`
	// Parallelism is its author's, and Completions are, if these were changed too.
	Parallelism int32  `json:"parallelism"`
	Completions *int32 `json:"completions,omitempty"`
}

// partOf is the note of a Job that has fewer pods than it asks for; nil of another.
func partOf(b *batchv1.Job) *partNote {
	note := &partNote{}
	if err := json.Unmarshal([]byte(b.Annotations[partAnnotation]), note); err != nil {
		return nil
	}
	if note.Pods < 1 || note.Pods >= note.Parallelism || ptr.Deref(b.Spec.Parallelism, 1) != note.Pods {
		return nil
	}
	return note
}

// wholeJob is the Job with the parallelism and the completions that its author gave it.
func wholeJob(b *batchv1.Job) *batchv1.Job {
	note := partOf(b)
	if note == nil {
		return b
	}
	whole := b.DeepCopy()
	whole.Spec.Parallelism = &note.Parallelism
	if note.Completions != nil {
		whole.Spec.Completions = note.Completions
	}
	return whole
}

// partly notes in the pod set of a Job, which it was made from, how few pods will
// do, and of one that runs in part, how many it asks for.
func (set *PodSet) partly(b *batchv1.Job) *reason.Reason {
	whole := wholeJob(b)
	asks := podsAtOnce(&whole.Spec)
	if least, found := b.Annotations[minParallelismAnnotation]; found {
		n, err := strconv.ParseInt(least, 10, 32)
		if err != nil || n < 1 || int32(n) > asks {
			return reason.New(reason.Misconfigured, "the Job has the annotation %s=%q, which is not a number of pods from 1 to the %d that it asks for", minParallelismAnnotation, least, asks)
		}
		set.MinCount = int32(n)
	}
	if asks > set.Count {
		set.Whole = asks
	}
	sync, found := b.Annotations[syncCompletionsAnnotation]
	if !found {
		return nil
	}
	same, err := strconv.ParseBool(sync)
	indexed := ptr.Deref(b.Spec.CompletionMode, batchv1.NonIndexedCompletion) == batchv1.IndexedCompletion
	switch {
	case err != nil:
		return reason.New(reason.Misconfigured, "the Job has the annotation %s=%q, which is neither true nor false", syncCompletionsAnnotation, sync)
	case same && (!indexed || ptr.Deref(whole.Spec.Completions, 0) != ptr.Deref(whole.Spec.Parallelism, 1)):
		return reason.New(reason.Misconfigured, "the Job has the annotation %s, which is for Jobs of completionMode Indexed with as many completions as parallelism", syncCompletionsAnnotation)
	}
	set.SyncCompletions = same
	return nil
}

// sizeOperations give a Job as many pods as it is admitted with, 0 for all that it
// asks for, and write, or take away, the note.
func sizeOperations(b *batchv1.Job, pods int32) ([]operation, error) {
	whole := wholeJob(b)
	want := whole
	note := partNote{Pods: pods, Parallelism: ptr.Deref(whole.Spec.Parallelism, 1)}
	if pods > 0 && pods < podsAtOnce(&whole.Spec) {
		want = whole.DeepCopy()
		want.Spec.Parallelism = &pods
		if same, _ := strconv.ParseBool(b.Annotations[syncCompletionsAnnotation]); same {
			note.Completions, want.Spec.Completions = whole.Spec.Completions, &pods
		}
	}
	var operations []operation
	if !ptr.Equal(want.Spec.Parallelism, b.Spec.Parallelism) {
		operations = append(operations, operation{Op: "add", Path: "/spec/parallelism", Value: want.Spec.Parallelism})
	}
	if !ptr.Equal(want.Spec.Completions, b.Spec.Completions) {
		operations = append(operations, operation{Op: "add", Path: "/spec/completions", Value: want.Spec.Completions})
	}
	const path = "/metadata/annotations/muster.dev~1admitted-in-part"
	had, found := b.Annotations[partAnnotation]
	if want == whole {
		if found {
			operations = append(operations, operation{Op: "remove", Path: path})
		}
		return operations, nil
	}
	said, err := json.Marshal(note)
	if err != nil {
		return nil, err
	}
	if had != string(said) {
		// There are annotations, that of the least number among them.
		operations = append(operations, operation{Op: "add", Path: path, Value: string(said)})
	}
	return operations, nil
}

// kueuesSize gives a Job that Kueue has started with fewer pods as many as its
// Workload has: Kueue leaves no note.
func kueuesSize(b *batchv1.Job, admitted []kueue.PodSet) []operation {
	i := slices.IndexFunc(admitted, func(ps kueue.PodSet) bool { return ps.Name == kueue.NewPodSetReference(MainPodSet) })
	if i < 0 || admitted[i].MinCount == nil || b.Spec.Template.Labels[kueuesLabel] == "" || admitted[i].Count <= podsAtOnce(&b.Spec) {
		return nil
	}
	operations := []operation{{Op: "add", Path: "/spec/parallelism", Value: admitted[i].Count}}
	if same, _ := strconv.ParseBool(b.Annotations[syncCompletionsAnnotation]); same {
		operations = append(operations, operation{Op: "add", Path: "/spec/completions", Value: admitted[i].Count})
	}
	return operations
}
