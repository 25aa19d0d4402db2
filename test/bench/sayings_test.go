package bench

import (
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// saying is what one write of a Workload says that was not said before.
type saying string

const (
	saysCreated  saying = "created"
	saysAdmitted saying = "admitted"
	// saysReserved: quota is reserved, and the job is to be admitted by another write.
	saysReserved saying = "quota reserved"
	saysEvicted  saying = "evicted"
	// saysRequeued: it has no quota any more.
	saysRequeued saying = "requeued"
	saysFinished saying = "finished"
	saysPending  saying = "why it waits"
	saysOther    saying = "other"
)

// sayings are what a Workload has said so far.
type sayings struct {
	created, reserved, admitted, evicted, finished bool
}

// then is what a newer version of the Workload says.
func (s sayings) then(wl *kueue.Workload) (saying, sayings) {
	is := func(condition string) bool { return apimeta.IsStatusConditionTrue(wl.Status.Conditions, condition) }
	now := sayings{true, is(kueue.WorkloadQuotaReserved), is(kueue.WorkloadAdmitted), is(kueue.WorkloadEvicted), is(kueue.WorkloadFinished)}
	switch {
	case !s.created:
		return saysCreated, now
	case now.finished:
		return saysFinished, now
	case now.admitted && !s.admitted:
		return saysAdmitted, now
	case now.reserved && !s.reserved:
		return saysReserved, now
	case now.evicted && !s.evicted:
		return saysEvicted, now
	case s.reserved && !now.reserved, s.admitted && !now.admitted:
		return saysRequeued, now
	case !now.reserved:
		return saysPending, now
	}
	return saysOther, now
}

func TestSayings(t *testing.T) {
	wl := func(conditions ...string) *kueue.Workload {
		w := &kueue.Workload{}
		for _, c := range conditions {
			apimeta.SetStatusCondition(&w.Status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue})
		}
		return w
	}
	const reserved, admitted, evicted, finished = kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted, kueue.WorkloadEvicted, kueue.WorkloadFinished
	var s sayings
	for i, step := range []struct {
		wl   *kueue.Workload
		want saying
	}{
		{wl(), saysCreated},
		{wl(), saysPending},
		{wl(reserved), saysReserved},
		{wl(reserved, admitted), saysAdmitted},
		{wl(reserved, admitted, evicted), saysEvicted},
		{wl(evicted), saysRequeued},
		{wl(reserved, admitted), saysAdmitted},
		{wl(reserved, admitted), saysOther},
		{wl(reserved, admitted, finished), saysFinished},
	} {
		var got saying
		if got, s = s.then(step.wl); got != step.want {
			t.Errorf("write %d says %q, want %q", i+1, got, step.want)
		}
	}
}
