package scheduling

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/rendering"
	"github.com/muster-gpu/muster/workload"
)

// jobsOn is the Jobs controller of a scene, on an API that has the objects
// given and behaves as funcs say.
func (s *scene) jobsOn(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) *Jobs {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, jobset.AddToScheme, kueue.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&kueue.Workload{}).
		WithIndex(&corev1.Pod{}, "status.phase", func(o client.Object) []string { return []string{string(o.(*corev1.Pod).Status.Phase)} }).
		WithIndex(&corev1.Event{}, "reason", func(o client.Object) []string { return []string{o.(*corev1.Event).Reason} }).
		WithInterceptorFuncs(funcs).Build()
	kinds := map[schema.GroupKind]workload.Kind{}
	for _, k := range workload.Kinds(workload.Options{SchedulerNames: sets.New(corev1.DefaultSchedulerName)}) {
		kinds[k.GroupVersionKind().GroupKind()] = k
	}
	return &Jobs{
		ledger: s.Ledger, effects: newEffects(), clock: s.clock, reader: c, client: c, kinds: kinds, podsSeen: noVersion,
		renderer: rendering.NewRenderer(c, c, s.clock, false),
		recorder: record.NewFakeRecorder(100),
		timing:   Timing{StartTimeout: time.Minute, Backoff: Backoff{Base: time.Minute, Max: 5 * time.Minute, Limit: new(int32(4))}},
	}
}

// stored reads a job in whose Workload is in the API.
func (s *scene) stored(t *testing.T, j *Jobs, of *workload.Job) *kueue.Workload {
	t.Helper()
	wl := workload.NewWorkload(of, 0, nil)
	if err := j.client.Create(t.Context(), wl); err != nil {
		t.Fatal(err)
	}
	s.read(of, wl, nil)
	return wl
}

func latest(t *testing.T, j *Jobs, wl *kueue.Workload) *kueue.Workload {
	t.Helper()
	got := &kueue.Workload{}
	if err := j.client.Get(t.Context(), client.ObjectKeyFromObject(wl), got); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestAdmissionIsReadBackAsItWasWritten(t *testing.T) {
	s := testScene(t, 64, 8, 8)
	j := s.pending(job("a", set("node", 0, 3, 4), set("later", 1, 1, 2)))
	s.plan(j, []string{"node-1", "node-0", "node-0"}, []string{"node-1"})
	a, _ := s.admissionOf(j.Owner.UID)
	status := admissionStatus(a)
	if diff := cmp.Diff(a.assignment, assignmentOf(j, status)); diff != "" {
		t.Errorf("assignment (-written +read):\n%s", diff)
	}
	got := [][]string{nodesOf(status, "node"), nodesOf(status, "later")}
	if diff := cmp.Diff(a.nodes, got); diff != "" {
		t.Errorf("nodes (-written +read):\n%s", diff)
	}
	if want := "14 GPUs on node-0..node-1 from queue main"; a.message != want {
		t.Errorf("it is told as %q, want %q", a.message, want)
	}
}

func TestBackOffDoublesUpToItsBoundAndThenTheJobIsDeactivated(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.jobsOn(t, interceptor.Funcs{})
	of := job("a", set("node", 0, 1, 8))
	wl := s.stored(t, j, of)
	why := eviction{reason: kueue.WorkloadEvictedByPodsReadyTimeout, message: "late", backOff: true}
	for i, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute} {
		if err := j.writeEviction(t.Context(), of.Owner.UID, why); err != nil {
			t.Fatal(err)
		}
		got := latest(t, j, wl)
		if at := got.Status.RequeueState.RequeueAt.Sub(epoch0); at != want || *got.Status.RequeueState.Count != int32(i+1) {
			t.Errorf("start %d is tried again after %s (count %d), want %s", i+1, at, *got.Status.RequeueState.Count, want)
		}
		if !*got.Spec.Active {
			t.Fatalf("deactivated after %d starts", i+1)
		}
		// It is admitted again.
		got.Status.Conditions = nil
		if err := j.client.Status().Update(t.Context(), got); err != nil {
			t.Fatal(err)
		}
		s.observe(of.Owner.UID, got)
	}
	if err := j.writeEviction(t.Context(), of.Owner.UID, why); err != nil {
		t.Fatal(err)
	}
	got := latest(t, j, wl)
	if *got.Spec.Active {
		t.Error("it is tried a fifth time")
	}
	if n := *got.Status.RequeueState.Count; n != 4 {
		t.Errorf("it backs off a %dth time as well", n)
	}
	c := apimeta.FindStatusCondition(got.Status.Conditions, kueue.WorkloadEvicted)
	if c == nil || c.Reason != "DeactivatedDueToRequeuingLimitExceeded" || c.Message != "it failed to start 5 times in a row, the last time: late" {
		t.Errorf("it is evicted as %+v", c)
	}
	s.read(suspended(of), got, nil)
	if want, got := "spec.active is false, because it failed to start 5 times", s.entry(of).blocked; got == nil || !strings.Contains(got.Message, want) {
		t.Errorf("it waits because of %v, want %q", got, want)
	}
}

func TestAnAdmissionSaysThatTheEvictionBeforeItIsOver(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.jobsOn(t, interceptor.Funcs{})
	of := job("a", set("node", 0, 1, 8))
	wl := s.stored(t, j, of)
	if err := j.writeEviction(t.Context(), of.Owner.UID, eviction{reason: kueue.WorkloadEvictedByPreemption, message: "for another"}); err != nil {
		t.Fatal(err)
	}
	s.observe(of.Owner.UID, latest(t, j, wl))
	s.plan(of, []string{"node-0"})
	if err := j.writeAdmission(t.Context(), of.Owner.UID); err != nil {
		t.Fatal(err)
	}
	c := apimeta.FindStatusCondition(latest(t, j, wl).Status.Conditions, kueue.WorkloadEvicted)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != "QuotaReserved" || c.Message != "Previously: for another" {
		t.Errorf("Evicted is %+v", c)
	}
}

func TestDeactivationOutlivesAConflict(t *testing.T) {
	s := testScene(t, 8, 8)
	conflicts := 1
	j := s.jobsOn(t, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
		if conflicts--; conflicts >= 0 {
			return apierrors.NewConflict(schema.GroupResource{Resource: "workloads"}, obj.GetName(), nil)
		}
		return c.Patch(ctx, obj, patch, opts...)
	}})
	j.timing.Backoff.Limit = new(int32(0))
	of := job("a", set("node", 0, 1, 8))
	wl := s.stored(t, j, of)
	why := eviction{reason: kueue.WorkloadEvictedByPodsReadyTimeout, message: "late", backOff: true}
	if err := j.writeEviction(t.Context(), of.Owner.UID, why); err == nil {
		t.Fatal("the conflict is not told")
	}
	if err := j.writeEviction(t.Context(), of.Owner.UID, why); err != nil {
		t.Fatal(err)
	}
	if *latest(t, j, wl).Spec.Active {
		t.Error("the job is never deactivated")
	}
}

func TestAdmissionWrite(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "workloads"}, "a", nil)
	tests := map[string]struct {
		// lands: the write takes effect, whatever the answer.
		lands   bool
		answer  error
		readErr error
		want    State
		retried bool
	}{
		"a write that succeeds admits the job":                            {lands: true, want: Admitted},
		"a conflict takes the admission back":                             {answer: conflict, want: Pending},
		"a lost answer to a write that landed admits the job":             {lands: true, answer: errUnanswered, want: Admitted},
		"a lost answer keeps the charge and is tried again":               {answer: errUnanswered, want: Admitting, retried: true},
		"while the API cannot be read nothing is taken back":              {lands: true, answer: errUnanswered, readErr: errUnanswered, want: Admitting, retried: true},
		"a conflict that cannot be looked into may be with our own write": {lands: true, answer: conflict, readErr: errUnanswered, want: Admitting, retried: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 8, 8)
			j := s.jobsOn(t, interceptor.Funcs{
				SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
					if tc.lands {
						if err := c.SubResource(sub).Update(ctx, obj, opts...); err != nil {
							return err
						}
					}
					return tc.answer
				},
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
					if tc.readErr != nil {
						return tc.readErr
					}
					return c.Get(ctx, key, obj, opts...)
				},
			})
			of := job("a", set("node", 0, 1, 8))
			s.stored(t, j, of)
			s.plan(of, []string{"node-0"})
			err := j.writeAdmission(t.Context(), of.Owner.UID)
			if got := s.state(of); got != tc.want || (err != nil) != tc.retried {
				t.Errorf("the job is %s and the error %v, want %s", got, err, tc.want)
			}
			if held, charged := s.taken("node-0"), s.used(); held != charged {
				t.Errorf("%d GPUs are held and %d charged", held, charged)
			}
		})
	}
}

func TestRestartKnowsThePodsThatSucceededAndLeavesTheJobAlone(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	of := job("a", set("init", 0, 1, 8), set("node", 1, 1, 8))
	s.pending(of)
	s.plan(of, []string{"node-0"}, []string{"node-1"})
	wl := s.workloadOfJob(of, isTrue(kueue.WorkloadAdmitted), s.admissionWritten(of))
	wl.ResourceVersion = ""
	done := pod(of, "init", 0, "init-0")
	done.Status.Phase = corev1.PodSucceeded
	after := testScene(t, 16, 8, 8)
	j := after.jobsOn(t, interceptor.Funcs{}, wl, done, jobSetOf(of))
	if err := j.restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	trainer := pod(of, "node", 0, "node-0")
	after.bindAll(trainer)
	for range 3 {
		after.expire(time.Minute)
		after.clock.Step(time.Hour)
	}
	if got := after.state(of); got != Admitted {
		t.Errorf("the running job is %s", got)
	}
	if got := after.taken("node-0"); got != 0 {
		t.Errorf("%d GPUs are held for a pod that has succeeded", got)
	}
}

func TestRestartDoesNotStartWhileTheAPICannotBeRead(t *testing.T) {
	s := testScene(t, 8, 8)
	away := errors.New("the API is away")
	j := s.jobsOn(t, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return away }})
	if err := j.restore(t.Context()); !errors.Is(err, away) {
		t.Errorf("the error is %v", err)
	}
}

// jobSetOf is the owner of a job, as it is in the API.
func jobSetOf(j *workload.Job) *jobset.JobSet {
	js := &jobset.JobSet{}
	js.Namespace, js.Name, js.UID = j.Owner.Namespace, j.Owner.Name, types.UID(j.Owner.UID)
	js.Labels = map[string]string{workload.QueueLabel: j.Queue}
	js.Spec.StartupPolicy = &jobset.StartupPolicy{StartupPolicyOrder: jobset.InOrder}
	for _, ps := range j.PodSets {
		rj := jobset.ReplicatedJob{Name: ps.Name, Replicas: 1}
		rj.Template.Spec.Parallelism, rj.Template.Spec.Completions = new(ps.Count), new(ps.Count)
		rj.Template.Spec.Template = ps.Template
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, rj)
	}
	return js
}

func TestTimeThatAJobRanIsNotCountedAsWaiting(t *testing.T) {
	of := job("a", set("node", 0, 1, 8))
	of.Created = epoch0
	evicted := func(status metav1.ConditionStatus, at time.Duration) []metav1.Condition {
		return []metav1.Condition{{Type: kueue.WorkloadEvicted, Status: status, LastTransitionTime: metav1.NewTime(epoch0.Add(at))}}
	}
	for name, tc := range map[string]struct {
		conditions []metav1.Condition
		want       time.Duration
	}{
		"never evicted":                    {nil, 0},
		"evicted":                          {evicted(metav1.ConditionTrue, time.Hour), time.Hour},
		"admitted since it was evicted":    {evicted(metav1.ConditionFalse, time.Hour), 0},
		"evicted before it was made again": {evicted(metav1.ConditionTrue, -time.Hour), 0},
	} {
		t.Run(name, func(t *testing.T) {
			wl := &kueue.Workload{Status: kueue.WorkloadStatus{Conditions: tc.conditions}}
			if got := waitsSince(admission{job: of, workload: wl}).Sub(epoch0); got != tc.want {
				t.Errorf("it waits since %s, want %s", got, tc.want)
			}
		})
	}
}
