package workload

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// childJob is the Job that JobSet has made for a replicated job that was
// resumed with h100, and suspended since.
func childJob(t *testing.T, js *jobset.JobSet, change ...func(*batchv1.Job)) *batchv1.Job {
	t.Helper()
	b := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: js.Namespace, Name: js.Name + "-node-0", Labels: map[string]string{jobset.JobSetNameKey: js.Name},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(js, jobset.SchemeGroupVersion.WithKind("JobSet"))},
	}}
	b.Spec.Suspend = new(true)
	b.Spec.Template = *js.Spec.ReplicatedJobs[0].Template.Spec.Template.DeepCopy()
	b.Spec.Template.Labels = map[string]string{jobset.JobSetNameKey: js.Name}
	in, err := injectionOf(&h100[0], &b.Spec.Template)
	if err != nil {
		t.Fatal(err)
	}
	if err := in.inject(&b.Spec.Template); err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(b)
	}
	return b
}

// JobSet only adds to the templates of the Jobs that it keeps, so what is not
// taken out of them stays for ever.
func TestRestoreTakesAnInjectionOutOfTheJobsOfAJobSet(t *testing.T) {
	for name, tc := range map[string]struct {
		change   func(*batchv1.Job)
		restored bool
		err      error
	}{
		"one that is suspended":                 {nil, true, nil},
		"one that has not been suspended yet":   {func(b *batchv1.Job) { b.Spec.Suspend = nil }, false, ErrStillActive},
		"one that still has pods":               {func(b *batchv1.Job) { b.Status.Active = 1 }, false, ErrStillActive},
		"one that has completed is left alone":  {completed, false, nil},
		"one of another JobSet is left alone":   {func(b *batchv1.Job) { b.OwnerReferences[0].UID = "other" }, false, nil},
		"one that was never resumed is as ever": {func(b *batchv1.Job) { _, _ = restore(&b.Spec.Template) }, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			js := newJobSet(nil, replicated("node", 1, 2, tolerates("spot")))
			b := childJob(t, js)
			if tc.change != nil {
				tc.change(b)
			}
			c := fakeClient(t, js, b.DeepCopy())
			err := kindNamed(t, "JobSet").(Restorer).Restore(t.Context(), c, js, nil)
			if !errors.Is(err, tc.err) {
				t.Fatalf("err %v, want %v", err, tc.err)
			}
			got := &batchv1.Job{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(b), got); err != nil {
				t.Fatal(err)
			}
			want := b.Spec.Template
			if tc.restored {
				want = *js.Spec.ReplicatedJobs[0].Template.Spec.Template.DeepCopy()
				want.Labels = map[string]string{jobset.JobSetNameKey: js.Name}
			}
			if diff := cmp.Diff(want, got.Spec.Template); diff != "" {
				t.Errorf("template (-want +got):\n%s", diff)
			}
			if got.Spec.Suspend != nil && !*got.Spec.Suspend {
				t.Error("it was resumed")
			}
		})
	}
}

func completed(b *batchv1.Job) {
	b.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
}

func TestRestoreTakesAnInjectionOutOfTheJobsOfATrainJob(t *testing.T) {
	tj := newTrainJob(nil)
	js := childOf(replicated("node", 1, 2))
	b := childJob(t, js)
	c := fakeClient(t, tj, js, b)
	if err := kindNamed(t, "TrainJob").(Restorer).Restore(t.Context(), c, tj, nil); err != nil {
		t.Fatal(err)
	}
	got := &batchv1.Job{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(b), got); err != nil {
		t.Fatal(err)
	}
	if len(got.Spec.Template.Spec.NodeSelector)+len(got.Spec.Template.Spec.Tolerations) > 0 {
		t.Errorf("left over: %+v", got.Spec.Template)
	}
	if err := kindNamed(t, "TrainJob").(Restorer).Restore(t.Context(), fakeClient(t, tj), tj, nil); err != nil {
		t.Errorf("without a JobSet: %v", err)
	}
}
