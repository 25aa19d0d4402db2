package scheduling

import (
	"context"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
)

func TestAnAdmissionAndWhyItsJobHasWaitedAreWrittenOneAfterTheOther(t *testing.T) {
	s := testScene(t, 8, 8)
	// The reporter writes, and the API takes its time.
	began, goOn := make(chan struct{}), make(chan struct{})
	writes := 0
	j := s.jobsOn(t, interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
			if writes++; writes == 1 {
				close(began)
				<-goOn
			}
			return c.SubResource(sub).Update(ctx, obj, opts...)
		},
	})
	of := job("a", set("node", 0, 1, 8))
	wl := s.stored(t, j, of)
	line := s.line(s.entry(of), *reason.New(reason.NoPlacement, "no node has 8"))
	told := make(chan error, 1)
	go func() { told <- (&reporter{Jobs: j}).tell(t.Context(), line) }()
	<-began
	// Meanwhile the job is planned.
	s.plan(of, []string{"node-0"})
	admitted := make(chan error, 1)
	go func() { admitted <- j.writeAdmission(t.Context(), of.Owner.UID) }()
	select {
	case err := <-admitted:
		t.Fatalf("the admission is written while another write is under way (error %v)", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(goOn)
	for what, done := range map[string]chan error{"telling why it waits": told, "writing its admission": admitted} {
		if err := <-done; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := s.state(of); got != Admitted {
		t.Errorf("the job is %s: its admission was refused, want Admitted", got)
	}
	if got := latest(t, j, wl); !isAdmitted(got) || writes != 2 {
		t.Errorf("after %d writes the Workload says %+v", writes, got.Status.Conditions)
	}
}

func TestAJobThatIsBeingAdmittedIsNotToldThatItWaits(t *testing.T) {
	s := testScene(t, 8, 8)
	writes := 0
	j := s.jobsOn(t, interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
			writes++
			return c.SubResource(sub).Update(ctx, obj, opts...)
		},
	})
	of := job("a", set("node", 0, 1, 8))
	wl := s.stored(t, j, of)
	line := s.line(s.entry(of), *reason.New(reason.NoPlacement, "no node has 8"))
	s.plan(of, []string{"node-0"})
	for _, step := range []string{"while it is being admitted", "when it is admitted"} {
		if err := (&reporter{Jobs: j}).tell(t.Context(), line); err != nil {
			t.Fatal(err)
		}
		if c := apimeta.FindStatusCondition(latest(t, j, wl).Status.Conditions, kueue.WorkloadQuotaReserved); c != nil && c.Reason == string(reason.NoPlacement) {
			t.Errorf("%s its Workload says that it waits: %s", step, c.Message)
		}
		if s.state(of) == Admitting {
			if err := j.writeAdmission(t.Context(), of.Owner.UID); err != nil {
				t.Fatal(err)
			}
		}
	}
	if writes != 1 {
		t.Errorf("its Workload is written %d times, want 1", writes)
	}
}

func TestThoseWhoWriteTheSameWorkloadTakeTurns(t *testing.T) {
	var of turns
	inside, most := 0, 0
	done := make(chan struct{})
	for range 50 {
		go func() {
			defer of.one(types.UID("a"))()
			// The race detector sees it if two are here at once.
			inside++
			most = max(most, inside)
			inside--
			done <- struct{}{}
		}()
	}
	for range 50 {
		<-done
	}
	if most != 1 {
		t.Errorf("%d write at once", most)
	}
}
