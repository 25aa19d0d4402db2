package scheduling

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

func TestWhatHappensToAWorkloadWhileItsJobIsReadForTheFirstTimeIsKnown(t *testing.T) {
	owner := workload.Owner{GroupVersionKind: jobset.SchemeGroupVersion.WithKind("JobSet"), UID: "a-uid"}
	owner.Namespace, owner.Name = namespace, "a"
	key := client.ObjectKey{Namespace: namespace, Name: workload.WorkloadName(owner)}
	for _, tt := range []struct {
		name string
		// meanwhile happens when the cache has given the Workload away, and
		// before the Ledger knows the job.
		meanwhile func(*testing.T, *Jobs, client.Client, *kueue.Workload)
		check     func(*testing.T, *Jobs, *entry)
	}{
		{
			name: "it is activated",
			meanwhile: func(t *testing.T, j *Jobs, c client.Client, wl *kueue.Workload) {
				wl.Spec.Active = new(true)
				if err := c.Update(t.Context(), wl); err != nil {
					t.Fatal(err)
				}
				j.workloadSeen(wl)
			},
			check: func(t *testing.T, _ *Jobs, e *entry) {
				if e.blocked != nil {
					t.Errorf("the job is blocked: %s", e.blocked)
				}
			},
		},
		{
			name: "it is deleted",
			meanwhile: func(t *testing.T, j *Jobs, c client.Client, wl *kueue.Workload) {
				if err := c.Delete(t.Context(), wl); err != nil {
					t.Fatal(err)
				}
				j.workloadGone(wl)
			},
			check: func(t *testing.T, j *Jobs, e *entry) {
				wl := &kueue.Workload{}
				if err := j.client.Get(t.Context(), key, wl); err != nil {
					t.Fatalf("the job has no Workload: %v", err)
				}
				if e.workload == nil || e.workload.ResourceVersion != wl.ResourceVersion {
					t.Errorf("the Workload is %+v, the Ledger knows %+v", wl, e.workload)
				}
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := testScene(t, 8, 8)
			js := &jobset.JobSet{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: namespace, Name: "a", UID: owner.UID, Labels: map[string]string{workload.QueueLabel: "queue"},
				},
				Spec: jobset.JobSetSpec{Suspend: new(true), ReplicatedJobs: []jobset.ReplicatedJob{{Name: "node", Replicas: 1}}},
			}
			var j *Jobs
			happened := false
			j = s.jobsOn(t, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, at client.ObjectKey, obj client.Object, o ...client.GetOption) error {
					err := c.Get(ctx, at, obj, o...)
					if wl, ok := obj.(*kueue.Workload); ok && err == nil && !happened {
						happened = true
						tt.meanwhile(t, j, c, wl.DeepCopy())
					}
					return err
				},
			}, js)
			job, _, no, err := j.kinds[owner.GroupKind()].Read(t.Context(), j.reader, js)
			if err != nil || no != nil {
				t.Fatal(err, no)
			}
			wl := workload.NewWorkload(job, 0, nil)
			wl.Spec.Active = new(false)
			if err := j.client.Create(t.Context(), wl); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := j.reconcile(t.Context(), keyOf(owner)); err != nil && !apierrors.IsConflict(err) {
					t.Fatal(err)
				}
			}
			tt.check(t, j, s.jobs[owner.UID])
		})
	}
}

func TestARunningJobFollowsFromOnePriorityClassToAnother(t *testing.T) {
	classes := []client.Object{}
	for name, value := range map[string]int32{"low": 1, "high": 10} {
		classes = append(classes, &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value})
	}
	for name, tt := range map[string]struct {
		from, to string
		want     int32
	}{
		"another one": {from: "low", to: "high", want: 10},
		"the same":    {from: "low", to: "low", want: 7},
		// The API takes neither from an admitted Workload.
		"none any more": {from: "low", to: "", want: 7},
		"a first one":   {from: "", to: "high", want: 7},
	} {
		s := testScene(t, 8, 8)
		j := s.jobsOn(t, interceptor.Funcs{}, classes...)
		of := with(job("a", set("node", 0, 1, 8)), func(j *workload.Job) { j.PriorityClass = tt.from })
		wl, no, err := j.ensureWorkload(t.Context(), of)
		if err != nil || no != nil {
			t.Fatal(err, no)
		}
		// Somebody has written another priority.
		wl.Spec.Priority = new(int32(7))
		if err := j.client.Update(t.Context(), wl); err != nil {
			t.Fatal(err)
		}
		isTrue(kueue.WorkloadAdmitted)(wl)
		if err := j.client.Status().Update(t.Context(), wl); err != nil {
			t.Fatal(err)
		}
		if _, no, err = j.ensureWorkload(t.Context(), with(of, func(j *workload.Job) { j.PriorityClass = tt.to })); err != nil || no != nil {
			t.Fatal(err, no)
		}
		if got := *latest(t, j, wl).Spec.Priority; got != tt.want {
			t.Errorf("%s: its priority is %d, want %d", name, got, tt.want)
		}
	}
}
