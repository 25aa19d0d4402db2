package scheduling

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// batchJob is a Job of count pods of gpus GPUs each, of which ended are over.
func batchJob(name string, count int32, gpus int64, ended *workload.Ended) *workload.Job {
	ps := set(workload.MainPodSet, 0, count, gpus)
	ps.Ended = ended
	j := job(name, ps)
	j.Owner.GroupVersionKind = batchv1.SchemeGroupVersion.WithKind("Job")
	return j
}

func endedNow(j *workload.Job, ended workload.Ended) *workload.Job {
	return with(j, func(j *workload.Job) { j.PodSets[0].Ended = &ended })
}

// batchPod is a pod of a Job; index -1 is one without a number.
func batchPod(j *workload.Job, index int32, uid string) *corev1.Pod {
	p := pod(j, workload.MainPodSet, index, uid)
	for _, key := range []string{jobset.JobSetUIDKey, jobset.ReplicatedJobNameKey, jobset.JobIndexKey} {
		delete(p.Labels, key)
	}
	p.OwnerReferences[0].UID, p.OwnerReferences[0].Name = j.Owner.UID, j.Owner.Name
	return p
}

func TestSlotsOfPodsThatAreOverAreGivenUp(t *testing.T) {
	type at struct{ Pods, Done []int }
	for name, tc := range map[string]struct {
		completions int32
		ended       workload.Ended
		before      at
		want        []int
	}{
		"none is over":                                  {4, workload.Ended{Indices: []int32{}}, at{}, nil},
		"those with their numbers":                      {4, workload.Ended{Count: 2, Indices: []int32{0, 2}}, at{}, []int{0, 2}},
		"not while the pod is there":                    {4, workload.Ended{Count: 2, Indices: []int32{0, 2}}, at{Pods: []int{0}}, []int{2}},
		"not a second time":                             {4, workload.Ended{Count: 2, Indices: []int32{0, 2}}, at{Done: []int{0}}, []int{2}},
		"a number that the set does not have":           {4, workload.Ended{Count: 1, Indices: []int32{9}}, at{}, nil},
		"the last ones where pods have no numbers":      {4, workload.Ended{Count: 2}, at{}, []int{3, 2}},
		"empty ones where pods have no numbers":         {4, workload.Ended{Count: 2}, at{Pods: []int{3, 1}}, []int{2, 0}},
		"as many as are over, with those before":        {4, workload.Ended{Count: 2}, at{Done: []int{1}}, []int{3}},
		"none while as many pods are still to come":     {9, workload.Ended{Count: 5}, at{}, nil},
		"those that no pod is left for":                 {9, workload.Ended{Count: 6}, at{}, []int{3}},
		"fewer than are over, until pods have left":     {4, workload.Ended{Count: 3}, at{Pods: []int{0, 1, 2}}, []int{3}},
		"all when everything is over, whoever counted":  {4, workload.Ended{Count: 4}, at{Done: []int{0}}, []int{3, 2, 1}},
		"more than there are slots, as a failure shows": {4, workload.Ended{Count: 7}, at{}, []int{3, 2, 1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			ps := set("main", 0, 4, 1)
			ps.Completions = tc.completions
			s := newSet(ps, []string{"a", "b", "c", "d"})
			for _, i := range tc.before.Pods {
				s.slots[i].pod = &corev1.Pod{}
			}
			for _, i := range tc.before.Done {
				s.slots[i].done = true
			}
			var got []int
			for _, sl := range s.end(&tc.ended) {
				got = append(got, sl.index)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("given up (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBatchJobGivesUpASlotWhenItsStatusSaysThatThePodIsOver(t *testing.T) {
	for name, order := range map[string][]string{
		"the pod leaves first":        {"pod", "status"},
		"the status is counted first": {"status", "pod"},
	} {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 8, 8)
			j := s.admitted(batchJob("a", 2, 4, &workload.Ended{Indices: []int32{}}), []string{"node-0", "node-0"})
			bound := s.bindAll(batchPod(j, 0, "p0"), batchPod(j, 1, "p1"))
			for _, what := range order {
				if what == "pod" {
					s.gone(bound[0])
					// Who counts is the Job: a pod may be gone from the API by now.
					s.settle(false)
				} else {
					s.read(endedNow(j, workload.Ended{Count: 1, Indices: []int32{0}}), nil, nil)
				}
			}
			if sl := s.slot(j, "main", 0); !sl.done || sl.hold != nil {
				t.Errorf("the slot is %+v", *sl)
			}
			if got := s.taken("node-0"); got != 4 {
				t.Errorf("%d GPUs are taken, want 4", got)
			}
		})
	}
}

func TestBatchJobThatRanBeforeHoldsOnlyForWhatIsLeft(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.pending(batchJob("a", 2, 4, &workload.Ended{Count: 1, Indices: []int32{1}}))
	s.plan(j, []string{"node-0", "node-0"})
	wl := s.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), s.admissionWritten(j))
	if got := s.taken("node-0"); got != 4 {
		t.Errorf("%d GPUs are taken, want 4", got)
	}
	s.written(j.Owner.UID, 0, wl, wrote, nil)
	s.read(running(j), wl, nil)
	p := batchPod(j, 0, "p0")
	s.Seen(p)
	if ok, why := s.MayEnter(p); !ok {
		t.Errorf("the only pod that is left may not enter: %s", why)
	}

	after := testScene(t, 8, 8)
	after.restore(running(j), wl, nil)
	if got := after.used(); got != 8 {
		t.Errorf("after a restart %d GPUs are charged, want 8", got)
	}
	if got := after.taken("node-0"); got != 4 {
		t.Errorf("after a restart %d GPUs are taken, want 4", got)
	}
}

func TestBatchJobIsChargedOnceAfterARestart(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.pending(batchJob("a", 2, 4, &workload.Ended{Indices: []int32{}}))
	s.plan(j, []string{"node-0", "node-0"})
	wl := s.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), s.admissionWritten(j))
	for _, podsFirst := range []bool{true, false} {
		after := testScene(t, 8, 8)
		tell := func() {
			for i, uid := range []string{"p0", "p1"} {
				after.confirm(onNode(batchPod(j, int32(i), uid), "node-0"))
			}
		}
		if podsFirst {
			tell()
		}
		after.restore(running(j), wl, nil)
		if !podsFirst {
			tell()
		}
		if got := after.used(); got != 8 {
			t.Errorf("pods first %v: %d GPUs are charged, want 8", podsFirst, got)
		}
		if got := after.taken("node-0"); got != 8 {
			t.Errorf("pods first %v: %d GPUs are taken, want 8", podsFirst, got)
		}
		for i := range 2 {
			if sl := after.slot(j, "main", i); !sl.bound || sl.node != "node-0" {
				t.Errorf("pods first %v: slot %d is %+v", podsFirst, i, *sl)
			}
		}
	}
}

func TestRunningJobIsNotAdmittedBeforeItIsSuspended(t *testing.T) {
	s := testScene(t, 8, 8)
	j := running(batchJob("a", 1, 8, nil))
	wl := s.workloadOfJob(j)
	if got := s.read(j, wl, nil); got.do != doSuspend {
		t.Errorf("what is done is %v", got.do)
	}
	if s.isHead(j) {
		t.Error("it would be admitted with the pods that it has made by itself")
	}
	s.read(suspended(j), wl, nil)
	if !s.isHead(j) {
		t.Error("suspended, it is not admitted")
	}
}

func TestJobsThatOnlyTheirControllerTellsApartHaveOneShape(t *testing.T) {
	labelled := func(name string, extra string) *workload.Job {
		j := batchJob(name, 1, 8, nil)
		j.PodSets[0].Template.Labels = map[string]string{
			"job-name": name, "controller-uid": name, batchv1.JobNameLabel: name, batchv1.ControllerUidLabel: name, "app": extra,
		}
		return j
	}
	if shapeOf(labelled("a", "x")) != shapeOf(labelled("b", "x")) {
		t.Error("two Jobs of one template differ")
	}
	if shapeOf(labelled("a", "x")) == shapeOf(labelled("a", "y")) {
		t.Error("Jobs with other labels are alike")
	}
}

// jobsWith is a Jobs controller over an API that serves batch Jobs, and JobSets
// if said so, but not Kueue's.
func jobsWith(t *testing.T, s *scene, jobSets bool, objects ...runtime.Object) *Jobs {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, jobset.AddToScheme, kueue.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	served := func(obj client.Object) bool {
		switch obj.(type) {
		case *kueue.Workload:
			return false
		case *jobset.JobSet:
			return jobSets
		}
		return true
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithRuntimeObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, o ...client.GetOption) error {
			if !served(obj) {
				return &apimeta.NoKindMatchError{}
			}
			return c.Get(ctx, key, obj, o...)
		},
	}).Build()
	kinds := map[schema.GroupKind]workload.Kind{}
	for _, k := range workload.Kinds(workload.Options{}) {
		kinds[k.GroupVersionKind().GroupKind()] = k
	}
	return &Jobs{ledger: s.Ledger, effects: newEffects(), clock: clock.RealClock{}, reader: c, client: c, kinds: kinds, podsSeen: noVersion}
}

func TestPodsOfAJobThatIsNotManagedAreLetGo(t *testing.T) {
	object := func(change func(*batchv1.Job)) *batchv1.Job {
		b := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", UID: "a-uid"}}
		if change != nil {
			change(b)
		}
		return b
	}
	controlled := func(apiVersion, kind string) func(*batchv1.Job) {
		return func(b *batchv1.Job) {
			b.Labels = map[string]string{workload.QueueLabel: "main"}
			b.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "x", UID: "x", Controller: new(true)}}
		}
	}
	for name, tc := range map[string]struct {
		change  func(*batchv1.Job)
		letGo   bool
		jobSets bool
	}{
		"of no queue, without Kueue and JobSets": {nil, true, false},
		"of no queue":                            {nil, true, true},
		"of a JobSet":                            {controlled("jobset.x-k8s.io/v1alpha2", "JobSet"), true, true},
		"of a queue":                             {controlled("batch/v1", "CronJob"), false, true},
		"of a CronJob without a queue": {func(b *batchv1.Job) {
			controlled("batch/v1", "CronJob")(b)
			b.Labels = nil
		}, true, true},
	} {
		for when, restored := range map[string]bool{"before the admitted jobs are read": false, "after": true} {
			if restored && !tc.letGo {
				// It gets a Workload then, for which there is no API here.
				continue
			}
			t.Run(name+", "+when, func(t *testing.T) {
				s := testScene(t, 8, 8)
				s.restored = restored
				b := object(tc.change)
				p := batchPod(batchJob("a", 1, 1, nil), -1, "p")
				s.Seen(p)
				if ok, _ := s.MayEnter(p); ok {
					t.Fatal("the pod of a Job that nobody has read may enter")
				}
				j := jobsWith(t, s, tc.jobSets, b)
				key := JobKey{Group: "batch", Kind: "Job", NamespacedName: types.NamespacedName{Namespace: namespace, Name: "a"}, UID: "a-uid"}
				if err := j.readFirst(t.Context(), key); err != nil {
					t.Fatal(err)
				}
				if ok, why := s.MayEnter(p); ok != tc.letGo {
					t.Errorf("the pod may enter: %v (%s)", ok, why)
				}
				if woken := s.wishes.woken["p"] > 0; woken != tc.letGo {
					t.Errorf("the pod is woken: %v", woken)
				}
				s.ForgetPodOwner("a-uid")
				if len(s.podOwners) > 0 {
					t.Errorf("after the Job is gone, %v is kept", s.podOwners)
				}
			})
		}
	}
}

func TestPodsOfOwnersThatDoNotExistAreLetGo(t *testing.T) {
	ofJob := batchPod(batchJob("a", 1, 1, nil), -1, "p")
	ofJobSet := pod(batchJob("a", 1, 1, nil), "main", 0, "p")
	ofJobSet.Labels[jobset.JobSetNameKey] = "a"
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "a", UID: "a-uid"}
	other := metav1.ObjectMeta{Namespace: namespace, Name: "a", UID: "a-later"}
	for name, tc := range map[string]struct {
		pod     *corev1.Pod
		jobSets bool
		objects []runtime.Object
		letGo   bool
	}{
		"a Job that is gone":                       {ofJob, true, nil, true},
		"a Job of the same name":                   {ofJob, true, []runtime.Object{&batchv1.Job{ObjectMeta: other}}, true},
		"a Job that is there":                      {ofJob, true, []runtime.Object{&batchv1.Job{ObjectMeta: meta}}, false},
		"a JobSet that is gone":                    {ofJobSet, true, []runtime.Object{&batchv1.Job{ObjectMeta: meta}}, true},
		"a JobSet that is there":                   {ofJobSet, true, []runtime.Object{&jobset.JobSet{ObjectMeta: meta}}, false},
		"a JobSet where the API has no JobSets":    {ofJobSet, false, nil, true},
		"a JobSet that was made anew by that name": {ofJobSet, true, []runtime.Object{&jobset.JobSet{ObjectMeta: other}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 8, 8)
			p := tc.pod.DeepCopy()
			p.CreationTimestamp = metav1.NewTime(epoch0)
			s.Seen(p)
			j := jobsWith(t, s, tc.jobSets, tc.objects...)
			j.freeOrphans(t.Context())
			if ok, _ := s.MayEnter(p); ok {
				t.Error("a pod whose owner may still be told of may enter")
			}
			s.clock.Step(orphanAge + time.Second)
			j.freeOrphans(t.Context())
			if ok, why := s.MayEnter(p); ok != tc.letGo {
				t.Errorf("the pod may enter: %v (%s)", ok, why)
			}
		})
	}
}
