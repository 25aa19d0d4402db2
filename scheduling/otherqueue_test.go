package scheduling

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

func inOtherQueue(j *workload.Job, queue string) *workload.Job {
	return with(j, func(j *workload.Job) { j.Queue = queue })
}

// queueNotes are the events on a job about a queue that it is not in.
func (s *scene) queueNotes(j *workload.Job) int {
	n := 0
	for _, note := range s.wishes.notes[j.Owner.Name] {
		if strings.HasPrefix(note, noteQueueChangeIgnored+": ") {
			n++
		}
	}
	return n
}

func TestAJobThatRunsStaysInItsQueue(t *testing.T) {
	for name, of := range map[string]*workload.Job{
		"a job":                          job("a", set("node", 0, 1, 8)),
		"a job that may grow and shrink": with(job("a", set("node", 0, 1, 8)), func(j *workload.Job) { j.Elastic = true }),
		"a pod":                          with(job("a", set("node", 0, 1, 8)), func(j *workload.Job) { j.Gated = true }),
		"a pod made from a template":     with(job("a", set("node", 0, 1, 8)), func(j *workload.Job) { j.Gated, j.Templated = true, true }),
	} {
		for to, says := range map[string]string{"other": "names queue other now", "": "was taken away"} {
			s := testScene(t, 8, 8)
			j := s.admitted(of, []string{"node-0"})
			for range 2 {
				if got := s.read(inOtherQueue(j, to), nil, nil); got.do != doNothing || s.state(j) != Admitted {
					t.Fatalf("%s that comes to name queue %q is %s, and %+v is to be done", name, to, s.state(j), got)
				}
			}
			if got := s.entry(j).job.Queue; got != "main" || s.queueNotes(j) != 1 {
				t.Errorf("%s is in queue %q; it is told %q", name, got, s.wishes.notes["a"])
			}
			if notes := s.wishes.notes["a"]; !strings.Contains(notes[len(notes)-1], says) || !strings.Contains(notes[len(notes)-1], "runs on in queue main") {
				t.Errorf("%s is told %q", name, notes)
			}
			s.read(j, nil, nil)
			if s.read(inOtherQueue(j, to), nil, nil); s.queueNotes(j) != 2 {
				t.Errorf("%s that names its queue again, and then not: %q", name, s.wishes.notes["a"])
			}
		}
	}
}

func TestTheQueueThatARunningJobNamesCountsWhenItHasStopped(t *testing.T) {
	for name, stop := range map[string]func(*scene, *workload.Job){
		"it is suspended": func(s *scene, j *workload.Job) {
			if got := s.read(suspended(j), nil, nil); got.do != doSuspend {
				s.t.Fatalf("a suspended job needs %+v", got)
			}
		},
		"it is stopped for another": func(s *scene, j *workload.Job) {
			s.stop(j, eviction{reason: kueue.WorkloadEvictedByPreemption})
		},
	} {
		s := testScene(t, 8, 8)
		j := s.admitted(job("a", set("node", 0, 1, 8)), []string{"node-0"})
		other := inOtherQueue(j, "other")
		s.read(other, nil, nil)
		stop(s, other)
		if s.state(j) != Leaving {
			t.Fatalf("%s: it is %s", name, s.state(j))
		}
		notes := s.queueNotes(j)
		s.read(suspended(other), s.workloadOfJob(other), nil)
		clear(s.wishes.synced)
		s.left(j.Owner.UID)
		if s.wishes.synced[keyOf(j.Owner)] == 0 || s.isHead(j) {
			t.Errorf("%s: it is not read again before it is tried", name)
		}
		if s.read(suspended(other), nil, nil); s.entry(j).job.Queue != "other" {
			t.Errorf("%s: it waits in queue %s", name, s.entry(j).job.Queue)
		}
		if got := s.queueNotes(j); got != notes {
			t.Errorf("%s: it is told %q", name, s.wishes.notes["a"])
		}
	}
}

func TestAJobThatRunsIsTakenOverInTheQueueInWhichItWasAdmitted(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.admitted(job("a", set("node", 0, 1, 8)), []string{"node-0"})
	wl := s.entry(j).workload
	s.fresh(8)
	s.Ledger.restore(inOtherQueue(j, "other"), wl, nil)
	if got := s.entry(j).job.Queue; got != "main" {
		t.Errorf("it is in queue %q", got)
	}
	s.read(inOtherQueue(j, "other"), wl, nil)
	if got := s.entry(j).job.Queue; got != "main" || s.state(j) != Admitted || s.queueNotes(j) != 1 {
		t.Errorf("when it is read it is %s in queue %q, and told %q", s.state(j), got, s.wishes.notes["a"])
	}
}

func TestAJobThatLosesItsQueueLabelGoesOnAsOneOfItsQueueWhileItRuns(t *testing.T) {
	for name, tc := range map[string]struct {
		stopped, evicted bool
		want             State
	}{
		"it runs":               {want: Admitted},
		"it is suspended":       {stopped: true, want: Gone},
		"it is being preempted": {evicted: true, want: Leaving},
	} {
		s := testScene(t, 8, 8)
		js := &jobset.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", UID: "a", Labels: map[string]string{workload.QueueLabel: "main"}}}
		template := set("node", 0, 1, 8).Template
		js.Spec.ReplicatedJobs = []jobset.ReplicatedJob{{Name: "node", Replicas: 1}}
		js.Spec.ReplicatedJobs[0].Template.Spec.Template = template
		js.Spec.Suspend = new(true)
		j := s.jobsOn(t, interceptor.Funcs{}, js)
		key := JobKey{Group: "jobset.x-k8s.io", Kind: "JobSet", NamespacedName: client.ObjectKeyFromObject(js), UID: js.UID}
		reconcile := func(ctx context.Context) {
			if err := j.reconcile(ctx, key); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		reconcile(t.Context())
		of := s.jobs[js.UID].job
		s.plan(of, []string{"node-0"})
		if err := j.writeAdmission(t.Context(), js.UID); err != nil {
			t.Fatal(err)
		}
		reconcile(t.Context())
		if err := j.client.Get(t.Context(), key.NamespacedName, js); err != nil {
			t.Fatal(err)
		}
		if *js.Spec.Suspend {
			t.Fatalf("%s: it was not resumed", name)
		}
		if tc.evicted {
			s.mu.Lock()
			s.evict(s.jobs[js.UID], eviction{reason: kueue.WorkloadEvictedByPreemption, message: "for another one"})
			s.mu.Unlock()
		}
		js.Labels, js.Spec.Suspend = nil, &tc.stopped
		if err := j.client.Update(t.Context(), js); err != nil {
			t.Fatal(err)
		}
		reconcile(t.Context())
		if diff := cmp.Diff(tc.want, s.state(of)); diff != "" {
			t.Errorf("%s: state (-want +got):\n%s", name, diff)
		}
		if got := s.queueNotes(of); (got == 1) != (tc.want == Admitted) {
			t.Errorf("%s: it is told %q", name, s.wishes.notes["a"])
		}
		if err := j.client.Get(t.Context(), key.NamespacedName, js); err != nil {
			t.Fatal(err)
		}
		if tc.want != Admitted && !*js.Spec.Suspend {
			t.Errorf("%s: it was not stopped", name)
		}
	}
}
