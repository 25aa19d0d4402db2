package scheduling

import (
	"context"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

func TestOnlyAnOwnerThatWasResumedBeforeIsReadFromTheAPIAgain(t *testing.T) {
	s := testScene(t, 8, 8)
	a := job("a", set("node", 0, 1, 8))
	s.pending(a)
	s.plan(a, []string{"node-0"})
	wl := s.workloadOfJob(a, isTrue(kueue.WorkloadAdmitted), s.admissionWritten(a))
	if !s.written(a.Owner.UID, 0, wl, wrote, nil) {
		t.Fatal("it is not admitted")
	}
	if got := s.read(suspended(a), wl, nil); got.do != doResume || !got.first {
		t.Errorf("to be done is %+v, want the first resumption", got)
	}
	s.started(a.Owner.UID)
	if got := s.read(suspended(a), wl, nil); got.do != doResume || got.first {
		t.Errorf("to be done is %+v, want another resumption", got)
	}
}

func TestEndOfAJobIsWrittenOnceWithoutReadingItsWorkload(t *testing.T) {
	s := testScene(t, 8, 8)
	reads := 0
	jobs := s.jobsOn(t, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
		reads++
		return c.Get(ctx, key, obj, opts...)
	}})
	of := job("a", set("node", 0, 1, 8))
	wl := s.stored(t, jobs, of)
	finished := with(of, func(j *workload.Job) { j.Finish = &workload.Finish{Succeeded: true} })
	if got := s.read(finished, wl, nil); got.do != doFinish {
		t.Fatalf("to be done is %+v, want that its end is written", got)
	}
	if err := jobs.writeFinish(t.Context(), finished); err != nil {
		t.Fatal(err)
	}
	if reads != 0 {
		t.Errorf("its Workload was read %d times", reads)
	}
	got := latest(t, jobs, wl)
	if !isFinished(got) {
		t.Errorf("its Workload says %+v", got.Status.Conditions)
	}
	if s.knows(of.Owner.UID) {
		t.Error("it is not forgotten")
	}
	if got := s.read(finished, got, nil); got.do != doNothing {
		t.Errorf("to be done is %+v, want nothing", got)
	}
}
