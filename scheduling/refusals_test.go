package scheduling

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-gpu/muster/workload"
)

// childJob is a batch Job that says it is of a JobSet; owner is who controls it.
func childJob(name string, says, owner types.UID) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(name),
		Labels:          map[string]string{jobset.JobSetUIDKey: string(says)},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "jobset.x-k8s.io/v1alpha2", Kind: "JobSet", Name: "x", UID: owner, Controller: new(true)}},
	}}
}

// told is an event of an object, so long after the tests began.
func told(about types.UID, after time.Duration, why, message string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%s-%s", about, strings.ToLower(why), after)},
		InvolvedObject: corev1.ObjectReference{Namespace: namespace, UID: about}, Reason: why, Message: message,
		LastTimestamp: metav1.NewTime(epoch0.Add(after)),
	}
}

func TestRefusalIsTheNewestOfThoseWhoCreateThePods(t *testing.T) {
	of := job("a", set("node", 0, 4, 1))
	trainJob := with(of, func(j *workload.Job) { j.Owner.UID = "train-uid" })
	bare := with(of, func(j *workload.Job) { j.PodOwnerUID = "" })
	child, forged := childJob("child", of.PodOwnerUID, of.PodOwnerUID), childJob("forged", of.PodOwnerUID, "other-uid")
	series := told("child", 0, failedCreates[0], "from the newer API")
	series.LastTimestamp = metav1.Time{}
	series.EventTime = metav1.NewMicroTime(epoch0.Add(time.Second))
	series.Series = &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(epoch0.Add(time.Minute))}
	tests := map[string]struct {
		of      *workload.Job
		objects []client.Object
		away    bool
		want    string
	}{
		"nobody said anything": {of: of},
		"the Job below a JobSet": {of: of, objects: []client.Object{child, told("child", time.Second, failedCreates[0],
			`Error creating: pods "x" is forbidden: exceeded quota: team-quota`)}, want: `pods "x" is forbidden: exceeded quota: team-quota`},
		"the Job below the JobSet of a TrainJob": {of: trainJob, objects: []client.Object{child, told("child", time.Second, failedCreates[0], "no")}, want: "no"},
		"the Training Operator":                  {of: of, objects: []client.Object{told(of.Owner.UID, time.Second, failedCreates[1], "no")}, want: "no"},
		"the owner of the pods itself":           {of: of, objects: []client.Object{told(of.Owner.UID, time.Second, failedCreates[0], "no")}, want: "no"},
		"the owner, while nothing is below it":   {of: bare, objects: []client.Object{told(of.Owner.UID, time.Second, failedCreates[0], "no")}, want: "no"},
		"the newest of several": {of: of, objects: []client.Object{child, told("child", 2*time.Second, failedCreates[0], "second"),
			told("child", 3*time.Second, failedCreates[0], "third"), told("child", time.Second, failedCreates[0], "first")}, want: "third"},
		"the newer events API has a series": {of: of, objects: []client.Object{child, series, told("child", 30*time.Second, failedCreates[0], "old")},
			want: "from the newer API"},
		"events folded into one": {of: of, objects: []client.Object{child, told("child", time.Second, failedCreates[0],
			"(combined from similar events): Error creating: no")}, want: "no"},
		"what was said before the admission is marked": {of: of, objects: []client.Object{child, told("child", -2*time.Second, failedCreates[0], "old")},
			want: "old, told at " + epoch0.Add(-2*time.Second).Format(time.RFC3339) + ", before this start"},
		"and not said if there is anything newer": {of: of, objects: []client.Object{child, told("child", -2*time.Second, failedCreates[0], "old"),
			told("child", time.Second, failedCreates[0], "new")}, want: "new"},
		"but in the same second":            {of: of, objects: []client.Object{child, told("child", 0, failedCreates[0], "now")}, want: "now"},
		"not what is said of others":        {of: of, objects: []client.Object{child, told("else", time.Second, failedCreates[0], "other")}},
		"not another kind of event":         {of: of, objects: []client.Object{child, told("child", time.Second, "SuccessfulCreate", "Created pod: x")}},
		"not a Job that only has the label": {of: of, objects: []client.Object{forged, told("forged", time.Second, failedCreates[0], "forged")}},
		"a long message is cut": {of: of, objects: []client.Object{child, told("child", time.Second, failedCreates[0], strings.Repeat("ä", 1000))},
			want: strings.Repeat("ä", 256) + "..."},
		"events that cannot be read": {of: of, objects: []client.Object{child, told("child", time.Second, failedCreates[0], "no")}, away: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 8, 8)
			funcs := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if tc.away {
					return errors.New("the API is away")
				}
				return c.List(ctx, list, opts...)
			}}
			j := s.jobsOn(t, funcs, tc.objects...)
			late := lapse{job: tc.of, admitted: epoch0.Add(500 * time.Millisecond), creators: newEntry(tc.of).creators()}
			if got := j.refusal(t.Context(), late); got != tc.want {
				t.Errorf("it is %q, want %q", got, tc.want)
			}
		})
	}
}

func TestEvictionSaysWhyPodsWereNotCreated(t *testing.T) {
	tests := map[string]struct {
		exist int
		by    types.UID
		want  string
	}{
		"where a pod does not exist": {3, "child", `none of 4 pods came onto their nodes in 1m0s; all are released; a pod could not be created: exceeded quota: team-quota`},
		"also by who controls pods":  {3, "job-1", `none of 4 pods came onto their nodes in 1m0s; all are released; a pod could not be created: exceeded quota: team-quota`},
		"and not where all exist":    {4, "child", "none of 4 pods came onto their nodes in 1m0s; all are released"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 8, 8)
			of := job("a", set("node", 0, 4, 1))
			j := s.jobsOn(t, interceptor.Funcs{}, childJob("child", of.PodOwnerUID, of.PodOwnerUID),
				told(tc.by, 10*time.Second, failedCreates[0], "Error creating: exceeded quota: team-quota"))
			s.pending(of)
			s.plan(of, []string{"node-0", "node-0", "node-0", "node-0"})
			s.written(of.Owner.UID, 0, s.workloadOfJob(of, s.admissionWritten(of), admittedSince(epoch0, nil, nil)), wrote, nil)
			for _, p := range pods(of, "node", "p")[:tc.exist] {
				s.Seen(p)
			}
			j.expire(t.Context())
			s.clock.Step(time.Minute)
			j.expire(t.Context())
			e := s.entry(of)
			if e.state != Leaving || e.eviction.message != tc.want {
				t.Errorf("it is %s, evicted as %+v, want %q", e.state, e.eviction, tc.want)
			}
		})
	}
}

func TestJobThatStartsWhileItsEventsAreReadIsNotGivenUp(t *testing.T) {
	s := testScene(t, 8, 8)
	of := s.admitted(job("a", set("node", 0, 1, 8)), []string{"node-0"})
	start := func() { s.bindAll(pod(of, "node", 0, "p")) }
	j := s.jobsOn(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		start()
		start = func() {}
		return c.List(ctx, list, opts...)
	}})
	j.expire(t.Context())
	s.clock.Step(time.Minute)
	j.expire(t.Context())
	if got := s.state(of); got != Admitted {
		t.Errorf("it is %s", got)
	}
}
