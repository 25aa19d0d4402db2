package workload

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/api/reason"
)

// partialJob is a suspended Job of eight pods that can do with two.
func partialJob(changes ...func(*batchv1.Job)) *batchv1.Job {
	return newBatchJob(func(b *batchv1.Job) {
		b.Annotations = map[string]string{minParallelismAnnotation: "2"}
		size(new(int32(8)), new(int32(8)))(b)
		for _, change := range changes {
			change(b)
		}
	})
}

func note(b *batchv1.Job, key, value string) {
	if b.Annotations == nil {
		b.Annotations = map[string]string{}
	}
	b.Annotations[key] = value
}

func synced(b *batchv1.Job) { note(b, syncCompletionsAnnotation, "true") }

func unsuspended(b *batchv1.Job) { b.Spec.Suspend = new(false) }

func TestBatchJobThatMayRunInPart(t *testing.T) {
	least := func(value string) func(*batchv1.Job) {
		return func(b *batchv1.Job) { note(b, minParallelismAnnotation, value) }
	}
	with := func(value string) func(*batchv1.Job) {
		return func(b *batchv1.Job) { note(b, partAnnotation, value) }
	}
	type want struct {
		Count, Completions, Least, Whole int32
		Sync                             bool
		No                               string
	}
	for name, tc := range map[string]struct {
		changes []func(*batchv1.Job)
		want    want
	}{
		"it asks for all of its pods":                      {nil, want{Count: 8, Completions: 8, Least: 2}},
		"as few completions as pods":                       {[]func(*batchv1.Job){synced}, want{Count: 8, Completions: 8, Least: 2, Sync: true}},
		"all of its pods are the least":                    {[]func(*batchv1.Job){least("8")}, want{Count: 8, Completions: 8, Least: 8}},
		"it runs in part":                                  {[]func(*batchv1.Job){size(new(int32(3)), new(int32(8))), unsuspended, with(`{"pods":3,"parallelism":8}`)}, want{Count: 3, Completions: 8, Least: 2, Whole: 8}},
		"it runs in part with as few completions":          {[]func(*batchv1.Job){synced, size(new(int32(3)), new(int32(3))), unsuspended, with(`{"pods":3,"parallelism":8,"completions":8}`)}, want{Count: 3, Completions: 3, Least: 2, Whole: 8, Sync: true}},
		"suspended by somebody it asks for all":            {[]func(*batchv1.Job){size(new(int32(3)), new(int32(8))), with(`{"pods":3,"parallelism":8}`)}, want{Count: 8, Completions: 8, Least: 2}},
		"its author has changed it while it ran":           {[]func(*batchv1.Job){size(new(int32(5)), new(int32(8))), unsuspended, with(`{"pods":3,"parallelism":8}`)}, want{Count: 5, Completions: 8, Least: 2}},
		"a note that nobody can read":                      {[]func(*batchv1.Job){size(new(int32(3)), new(int32(8))), unsuspended, with(`{`)}, want{Count: 3, Completions: 8, Least: 2}},
		"a note that makes no sense":                       {[]func(*batchv1.Job){unsuspended, with(`{"pods":8,"parallelism":4}`)}, want{Count: 8, Completions: 8, Least: 2}},
		"more than it asks for":                            {[]func(*batchv1.Job){least("9")}, want{No: `the Job has the annotation kueue.x-k8s.io/job-min-parallelism="9", which is not a number of pods from 1 to the 8 that it asks for`}},
		"none at all":                                      {[]func(*batchv1.Job){least("0")}, want{No: `the Job has the annotation kueue.x-k8s.io/job-min-parallelism="0", which is not a number of pods from 1 to the 8 that it asks for`}},
		"no number":                                        {[]func(*batchv1.Job){least("two")}, want{No: `the Job has the annotation kueue.x-k8s.io/job-min-parallelism="two", which is not a number of pods from 1 to the 8 that it asks for`}},
		"neither true nor false":                           {[]func(*batchv1.Job){func(b *batchv1.Job) { note(b, syncCompletionsAnnotation, "maybe") }}, want{No: `the Job has the annotation kueue.x-k8s.io/job-completions-equal-parallelism="maybe", which is neither true nor false`}},
		"completions of a Job whose pods have no numbers":  {[]func(*batchv1.Job){synced, func(b *batchv1.Job) { b.Spec.CompletionMode = nil }}, want{No: `the Job has the annotation kueue.x-k8s.io/job-completions-equal-parallelism, which is for Jobs of completionMode Indexed with as many completions as parallelism`}},
		"completions that are more than pods at all times": {[]func(*batchv1.Job){synced, size(new(int32(8)), new(int32(9)))}, want{No: `the Job has the annotation kueue.x-k8s.io/job-completions-equal-parallelism, which is for Jobs of completionMode Indexed with as many completions as parallelism`}},
	} {
		t.Run(name, func(t *testing.T) {
			job, managed, no, err := kindNamed(t, "Job").Read(t.Context(), fakeClient(t), partialJob(tc.changes...))
			if err != nil || !managed {
				t.Fatalf("Read: managed %v, err %v", managed, err)
			}
			got := want{No: no.String()}
			if no == nil {
				ps := job.PodSets[0]
				got = want{ps.Count, ps.Completions, ps.MinCount, ps.Whole, ps.SyncCompletions, ""}
			} else if no.Class != reason.Misconfigured {
				t.Errorf("the class is %s", no.Class)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("read (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBatchJobRunsInPartAndIsWholeAgainWhenItIsSuspended(t *testing.T) {
	type is struct {
		Suspended                bool
		Parallelism, Completions int32
		Note                     string
	}
	now := func(b *batchv1.Job) is {
		return is{*b.Spec.Suspend, *b.Spec.Parallelism, ptr.Deref(b.Spec.Completions, 0), b.Annotations[partAnnotation]}
	}
	kind := kindNamed(t, "Job")
	three := []PodSetInfo{{Name: "main", Count: 3, NodeSelector: h100Main[0].NodeSelector, Tolerations: h100Main[0].Tolerations}}
	for name, tc := range map[string]struct {
		changes      []func(*batchv1.Job)
		runs, before is
	}{
		"its completions stay": {nil,
			is{false, 3, 8, `{"pods":3,"parallelism":8}`}, is{true, 8, 8, ""}},
		"its completions are as few": {[]func(*batchv1.Job){synced},
			is{false, 3, 3, `{"pods":3,"parallelism":8,"completions":8}`}, is{true, 8, 8, ""}},
		"it has no completions": {[]func(*batchv1.Job){func(b *batchv1.Job) { b.Spec.CompletionMode, b.Spec.Completions = nil, nil }},
			is{false, 3, 0, `{"pods":3,"parallelism":8}`}, is{true, 8, 0, ""}},
		"more parallelism than completions": {[]func(*batchv1.Job){size(new(int32(10)), new(int32(8)))},
			is{false, 3, 8, `{"pods":3,"parallelism":10}`}, is{true, 10, 8, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			b := partialJob(tc.changes...)
			writes := 0
			c := templateRule(fakeClient(t, b.DeepCopy()).(client.WithWatch), false, &writes)
			whole, _, _, _ := kind.Read(t.Context(), c, b)
			wl := NewWorkload(whole, 0, nil)
			if ps := wl.Spec.PodSets[0]; ps.Count != 8 || ps.MinCount == nil || *ps.MinCount != 2 {
				t.Fatalf("the Workload has %d pods, %v at least", ps.Count, ps.MinCount)
			}
			get := func() *batchv1.Job { t.Helper(); return get(t, c, newBatchJob(nil)) }
			step := func(what string, err error, wrote int, want is) {
				t.Helper()
				if diff := cmp.Diff(want, now(get())); diff != "" || err != nil || writes != wrote {
					t.Fatalf("%s: %v, after %d requests (-want +got):\n%s", what, err, writes, diff)
				}
			}
			step("resumed", kind.Resume(t.Context(), c, get(), three), 1, tc.runs)
			if got := get().Spec.Template.Spec.NodeSelector["gpu"]; got != "h100" {
				t.Errorf("its node selector is %q", got)
			}
			step("resumed again", kind.Resume(t.Context(), c, get(), three), 1, tc.runs)
			if err := kind.Resume(t.Context(), c, get(), h100Main); !errors.Is(err, ErrNotSuspended) {
				t.Errorf("resuming it whole while it runs in part: %v", err)
			}
			// The Workload of before still describes it.
			running, _, no, err := kind.Read(t.Context(), c, get())
			if no != nil || err != nil || running.PodSets[0].Count != 3 || !SamePodSets(wl, running) {
				t.Errorf("running it is read as %+v (%v, %v)", running.PodSets, no, err)
			}
			// Somebody suspends it, and it is resumed.
			own := get()
			own.Spec.Suspend = new(true)
			if err := c.Update(t.Context(), own); err != nil {
				t.Fatal(err)
			}
			step("resumed after somebody has suspended it", kind.Resume(t.Context(), c, get(), three), 2, tc.runs)
			step("suspended", kind.Suspend(t.Context(), c, get()), 3, tc.before)
			step("suspended again", kind.Suspend(t.Context(), c, get()), 3, tc.before)
			again, _, _, _ := kind.Read(t.Context(), c, get())
			if diff := cmp.Diff(whole.PodSets, again.PodSets); diff != "" {
				t.Errorf("it is read as another one (-before +after):\n%s", diff)
			}
			all := tc.before
			all.Suspended = false
			step("resumed whole", kind.Resume(t.Context(), c, get(), h100Main), 4, all)
		})
	}
}

func TestBatchJobThatSomebodySuspendedInPartIsResumedWhole(t *testing.T) {
	b := partialJob(synced, size(new(int32(3)), new(int32(3))))
	note(b, partAnnotation, `{"pods":3,"parallelism":8,"completions":8}`)
	c := fakeClient(t, b)
	if err := kindNamed(t, "Job").Resume(t.Context(), c, get(t, c, b), h100Main); err != nil {
		t.Fatal(err)
	}
	got := get(t, c, b)
	if _, noted := got.Annotations[partAnnotation]; *got.Spec.Parallelism != 8 || *got.Spec.Completions != 8 || noted || *got.Spec.Suspend {
		t.Errorf("it runs as %+v, annotations %v", got.Spec, got.Annotations)
	}
}

func TestBatchJobKeepsWhatItsAuthorHasChangedWhileItRanInPart(t *testing.T) {
	b := partialJob(unsuspended, size(new(int32(5)), new(int32(8))))
	note(b, partAnnotation, `{"pods":3,"parallelism":8}`)
	c := fakeClient(t, b)
	if err := kindNamed(t, "Job").Suspend(t.Context(), c, get(t, c, b)); err != nil {
		t.Fatal(err)
	}
	got := get(t, c, b)
	if _, noted := got.Annotations[partAnnotation]; *got.Spec.Parallelism != 5 || noted || !*got.Spec.Suspend {
		t.Errorf("it is %+v, annotations %v", got.Spec, got.Annotations)
	}
	// Nor is a change lost that comes between the reading and the writing.
	b = partialJob(unsuspended, size(new(int32(3)), new(int32(8))))
	note(b, partAnnotation, `{"pods":3,"parallelism":8}`)
	c = fakeClient(t, b)
	stale := get(t, c, b)
	newer := stale.DeepCopy()
	newer.Spec.Parallelism = new(int32(6))
	if err := c.Update(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	if err := kindNamed(t, "Job").Suspend(t.Context(), c, stale); err == nil || *get(t, c, b).Spec.Parallelism != 6 {
		t.Errorf("over a newer change: %v, parallelism %d", err, *get(t, c, b).Spec.Parallelism)
	}
}

func TestBatchJobThatKueueStartedInPartIsWholeAgainWhenItIsRestored(t *testing.T) {
	kueues := func(b *batchv1.Job) { b.Spec.Template.Labels[kueuesLabel] = "main" }
	for name, tc := range map[string]struct {
		changes                  []func(*batchv1.Job)
		parallelism, completions int32
	}{
		"its completions stayed":      {[]func(*batchv1.Job){kueues, size(new(int32(3)), new(int32(8)))}, 8, 8},
		"its completions were as few": {[]func(*batchv1.Job){kueues, synced, size(new(int32(3)), new(int32(3)))}, 8, 8},
		"Kueue has not started it":    {[]func(*batchv1.Job){size(new(int32(3)), new(int32(8)))}, 3, 8},
	} {
		t.Run(name, func(t *testing.T) {
			whole, _, _, _ := kindNamed(t, "Job").Read(t.Context(), fakeClient(t), partialJob())
			b := partialJob(tc.changes...)
			c := fakeClient(t, b)
			err := kindNamed(t, "Job").(Restorer).Restore(t.Context(), c, get(t, c, b), NewWorkload(whole, 0, nil).Spec.PodSets)
			got := get(t, c, b)
			if err != nil || *got.Spec.Parallelism != tc.parallelism || *got.Spec.Completions != tc.completions || !*got.Spec.Suspend {
				t.Errorf("%v: it is %+v", err, got.Spec)
			}
		})
	}
}

func TestWorkloadOfAnotherLeastNumberIsMadeAnew(t *testing.T) {
	job, _, _, _ := kindNamed(t, "Job").Read(t.Context(), fakeClient(t), partialJob())
	wl := NewWorkload(job, 0, nil)
	for name, least := range map[string]*int32{"another": new(int32(3)), "none": nil} {
		wl := wl.DeepCopy()
		wl.Spec.PodSets[0].MinCount = least
		if SamePodSets(wl, job) {
			t.Errorf("%s: it counts as the same", name)
		}
	}
	b := partialJob()
	delete(b.Annotations, minParallelismAnnotation)
	whole, _, _, _ := kindNamed(t, "Job").Read(t.Context(), fakeClient(t), b)
	if ps := NewWorkload(whole, 0, nil).Spec.PodSets[0]; ps.MinCount != nil {
		t.Errorf("a job that must be whole has the least number %d", *ps.MinCount)
	}
}
