package workload

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
)

// newBatchJob is a suspended Job in queue main, as the API server stores it,
// with two pods of four GPUs each.
func newBatchJob(change func(*batchv1.Job)) *batchv1.Job {
	b := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "train", UID: "job-1",
			Labels:            map[string]string{QueueLabel: "main"},
			CreationTimestamp: metav1.Unix(1_700_000_000, 0),
		},
		Spec: batchv1.JobSpec{
			Suspend: new(true), Parallelism: new(int32(2)), Completions: new(int32(2)),
			CompletionMode: new(batchv1.IndexedCompletion),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
					"app": "llm", "job-name": "train", "controller-uid": "job-1",
					batchv1.JobNameLabel: "train", batchv1.ControllerUidLabel: "job-1",
				}},
				Spec: corev1.PodSpec{
					SchedulerName: "muster",
					Containers: []corev1.Container{{
						Name:      "node",
						Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("4")}},
					}},
				},
			},
		},
	}
	if change != nil {
		change(b)
	}
	return b
}

func jobControlledBy(apiVersion, kind string) func(*batchv1.Job) {
	return func(b *batchv1.Job) {
		b.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "x", UID: "x", Controller: new(true)}}
	}
}

func size(parallelism, completions *int32) func(*batchv1.Job) {
	return func(b *batchv1.Job) { b.Spec.Parallelism, b.Spec.Completions = parallelism, completions }
}

func TestBatchJobPodSet(t *testing.T) {
	n := func(i int32) *int32 { return &i }
	type want struct{ Count, Completions, PerReplica int32 }
	for name, tc := range map[string]struct {
		change func(*batchv1.Job)
		want   want
	}{
		"as many pods as completions":                               {size(n(4), n(4)), want{4, 4, 4}},
		"fewer completions than parallelism bound the pods":         {size(n(8), n(3)), want{3, 3, 3}},
		"more completions than parallelism follow in the same room": {size(n(2), n(9)), want{2, 9, 2}},
		"no completions is as many as run in parallel":              {size(n(5), nil), want{5, 5, 5}},
		"nothing said is one pod":                                   {size(nil, nil), want{1, 1, 1}},
		"none, while it runs": {func(b *batchv1.Job) {
			size(n(0), n(4))(b)
			b.Spec.Suspend = new(false)
		}, want{0, 4, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBatchJob(tc.change)
			job, managed, no, err := kindNamed(t, "Job").Read(t.Context(), fakeClient(t), b)
			if err != nil || !managed || no != nil {
				t.Fatalf("Read: managed %v, no %v, err %v", managed, no, err)
			}
			set := job.PodSets[0]
			if diff := cmp.Diff(tc.want, want{set.Count, set.Completions, set.PodsPerReplica}); diff != "" || len(job.PodSets) != 1 || set.Name != "main" {
				t.Errorf("pod sets %+v (-want +got):\n%s", job.PodSets, diff)
			}
			if job.PodOwnerUID != b.UID || job.Queue != "main" || job.Suspended != *b.Spec.Suspend || !job.Created.Equal(b.CreationTimestamp.Time) {
				t.Errorf("read %+v", job)
			}
		})
	}
}

func TestBatchJobWorkloadIsKueues(t *testing.T) {
	b := newBatchJob(nil)
	job, _, _, _ := kindNamed(t, "Job").Read(t.Context(), fakeClient(t), b)
	wl := NewWorkload(job, 0, nil)
	set := wl.Spec.PodSets[0]
	if diff := cmp.Diff(map[string]string{"app": "llm", batchv1.JobNameLabel: "train"}, set.Template.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&kueue.PodSetTopologyRequest{PodIndexLabel: new(batchv1.JobCompletionIndexAnnotation)}, set.TopologyRequest); diff != "" {
		t.Errorf("topology request (-want +got):\n%s", diff)
	}
	if set.Name != "main" || set.Count != 2 || !SamePodSets(wl, job) {
		t.Errorf("pod set %s of %d, the same: %v", set.Name, set.Count, SamePodSets(wl, job))
	}
	if job.PodSets[0].Template.Labels["job-name"] != "train" {
		t.Error("what is planned lacks labels that its pods will have")
	}
}

func TestBatchJobPodsThatAreOver(t *testing.T) {
	n := func(i int32) *int32 { return &i }
	indexed := func(completed, failed string) func(*batchv1.Job) {
		return func(b *batchv1.Job) { b.Status.CompletedIndexes, b.Status.FailedIndexes = completed, &failed }
	}
	unnumbered := func(b *batchv1.Job) { b.Spec.CompletionMode = new(batchv1.NonIndexedCompletion) }
	for name, tc := range map[string]struct {
		changes []func(*batchv1.Job)
		want    *Ended
	}{
		"none yet":                             {nil, &Ended{}},
		"some indices succeeded":               {[]func(*batchv1.Job){size(n(8), n(8)), indexed("1,3-5", "")}, &Ended{4, []int32{1, 3, 4, 5}}},
		"some indices failed for good":         {[]func(*batchv1.Job){size(n(8), n(8)), indexed("6", "0,2")}, &Ended{3, []int32{0, 2, 6}}},
		"an index in both lists counts once":   {[]func(*batchv1.Job){size(n(8), n(8)), indexed("2", "2")}, &Ended{1, []int32{2}}},
		"indices that were scaled away":        {[]func(*batchv1.Job){size(n(4), n(4)), indexed("2-9", "")}, &Ended{2, []int32{2, 3}}},
		"what nobody can read":                 {[]func(*batchv1.Job){size(n(8), n(8)), indexed("x,1,-,3-y,,7-5", "")}, &Ended{1, []int32{1}}},
		"pods that follow each other":          {[]func(*batchv1.Job){size(n(2), n(9)), indexed("0-6", "")}, &Ended{Count: 7}},
		"pods without numbers":                 {[]func(*batchv1.Job){unnumbered, size(n(4), n(4)), succeededActive(3, 1, 0)}, &Ended{Count: 3}},
		"more successes than were asked for":   {[]func(*batchv1.Job){unnumbered, size(n(4), n(4)), succeededActive(6, 0, 0)}, &Ended{Count: 4}},
		"a work queue that is still full":      {[]func(*batchv1.Job){unnumbered, size(n(4), nil), succeededActive(0, 3, 0)}, &Ended{}},
		"a work queue after its first success": {[]func(*batchv1.Job){unnumbered, size(n(4), nil), succeededActive(1, 1, 1)}, &Ended{Count: 2}},
		"a work queue that is done":            {[]func(*batchv1.Job){unnumbered, size(n(4), nil), succeededActive(3, 0, 0)}, &Ended{Count: 4}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBatchJob(func(b *batchv1.Job) {
				for _, change := range tc.changes {
					change(b)
				}
			})
			job, _, _, _ := kindNamed(t, "Job").Read(t.Context(), fakeClient(t), b)
			if diff := cmp.Diff(tc.want, job.PodSets[0].Ended); diff != "" {
				t.Errorf("ended (-want +got):\n%s", diff)
			}
		})
	}
}

func succeededActive(succeeded, active, terminating int32) func(*batchv1.Job) {
	return func(b *batchv1.Job) {
		b.Status.Succeeded, b.Status.Active, b.Status.Terminating = succeeded, active, &terminating
	}
}

func TestBatchJobThatCannotRun(t *testing.T) {
	scheduledBy := func(name string) func(*batchv1.Job) {
		return func(b *batchv1.Job) { b.Spec.Template.Spec.SchedulerName = name }
	}
	annotated := func(key, value string) func(*batchv1.Job) {
		return func(b *batchv1.Job) { b.Spec.Template.Annotations = map[string]string{key: value} }
	}
	for name, tc := range map[string]struct {
		change func(*batchv1.Job)
		class  reason.Class
		want   string
	}{
		"no pods": {size(new(int32(0)), new(int32(4))), reason.Misconfigured, "the Job asks for 0 pods"},
		"a pod template that names its node": {func(b *batchv1.Job) { b.Spec.Template.Spec.NodeName = "node-3" }, reason.Misconfigured,
			`pod template "main" names the node node-3 in spec.nodeName, so no scheduler places its pods; use a nodeSelector`},
		"another scheduler": {scheduledBy("volcano"), reason.ForeignScheduler,
			`pod template "main" names the scheduler volcano, not one of Muster's (muster)`},
		"the scheduler that the API server writes": {scheduledBy("default-scheduler"), reason.ForeignScheduler,
			`pod template "main" names no scheduler, so default-scheduler would take its pods: the webhook did not see Job train when it was created; create the Job anew`},
		"a topology annotation without a level": {annotated(kueue.PodSetRequiredTopologyAnnotation, ""), reason.Misconfigured,
			`the Job's pod template has the annotation kueue.x-k8s.io/podset-required-topology="", which is not a topology level of 1 to 63 characters`},
		"an injection note that cannot be read": {annotated(injectedAnnotation, "{"), reason.Misconfigured,
			`pod template of the Job: reading annotation muster.dev/injected: unexpected end of JSON input`},
	} {
		t.Run(name, func(t *testing.T) {
			job, managed, no, err := kindNamed(t, "Job").Read(t.Context(), fakeClient(t), newBatchJob(tc.change))
			if err != nil || !managed || job == nil || job.Queue != "main" || job.Owner.UID != "job-1" || !job.Suspended {
				t.Fatalf("Read: job %+v, managed %v, err %v", job, managed, err)
			}
			if diff := cmp.Diff(&reason.Reason{Class: tc.class, Message: tc.want}, no); diff != "" {
				t.Errorf("reason (-want +got):\n%s", diff)
			}
			over := newBatchJob(tc.change)
			over.DeletionTimestamp = new(metav1.Now())
			if _, _, no, _ := kindNamed(t, "Job").Read(t.Context(), fakeClient(t), over); no != nil {
				t.Errorf("a deleted Job has the reason %v", no)
			}
		})
	}
}

func TestBatchJobThatIsNotOurs(t *testing.T) {
	for name, change := range map[string]func(*batchv1.Job){
		"no queue label":                func(b *batchv1.Job) { b.Labels = nil },
		"an empty queue label":          func(b *batchv1.Job) { b.Labels[QueueLabel] = "" },
		"managed by another controller": func(b *batchv1.Job) { b.Spec.ManagedBy = new("kueue.x-k8s.io/multikueue") },
		"the child of a JobSet":         jobControlledBy("jobset.x-k8s.io/v1alpha2", "JobSet"),
		"the child of a later JobSet":   jobControlledBy("jobset.x-k8s.io/v1", "JobSet"),
	} {
		t.Run(name, func(t *testing.T) {
			job, managed, no, err := kindNamed(t, "Job").Read(t.Context(), fakeClient(t), newBatchJob(change))
			if job != nil || managed || no != nil || err != nil {
				t.Errorf("Read: job %v, managed %v, no %v, err %v", job, managed, no, err)
			}
		})
	}
	for name, change := range map[string]func(*batchv1.Job){
		"managed by its own controller":                    func(b *batchv1.Job) { b.Spec.ManagedBy = new(batchv1.JobControllerName) },
		"the child of a CronJob":                           jobControlledBy("batch/v1", "CronJob"),
		"the child of another API's kind of the same name": jobControlledBy("example.com/v1", "JobSet"),
	} {
		t.Run(name+" is ours", func(t *testing.T) {
			if _, managed, _, _ := kindNamed(t, "Job").Read(t.Context(), fakeClient(t), newBatchJob(change)); !managed {
				t.Error("not managed")
			}
		})
	}
}

func TestBatchJobThatIsOver(t *testing.T) {
	for name, tc := range map[string]struct {
		kind   batchv1.JobConditionType
		status corev1.ConditionStatus
		want   *Finish
	}{
		"complete":                               {batchv1.JobComplete, corev1.ConditionTrue, &Finish{Succeeded: true, Message: "said so"}},
		"failed":                                 {batchv1.JobFailed, corev1.ConditionTrue, &Finish{Message: "said so"}},
		"a condition that is False":              {batchv1.JobFailed, corev1.ConditionFalse, nil},
		"its pods are still to go after success": {batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue, nil},
		"its pods are still to go after failure": {batchv1.JobFailureTarget, corev1.ConditionTrue, nil},
		"suspended":                              {batchv1.JobSuspended, corev1.ConditionTrue, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBatchJob(func(b *batchv1.Job) {
				b.Status.Conditions = []batchv1.JobCondition{{Type: tc.kind, Status: tc.status, Message: "said so"}}
			})
			job, _, _, _ := kindNamed(t, "Job").Read(t.Context(), fakeClient(t), b)
			if diff := cmp.Diff(tc.want, job.Finish); diff != "" {
				t.Errorf("finish (-want +got):\n%s", diff)
			}
		})
	}
}

var h100Main = []PodSetInfo{{Name: "main", NodeSelector: h100[0].NodeSelector, Tolerations: h100[0].Tolerations}}

// templateRule answers as the API server does where a Job's template changes:
// only while it is suspended without active pods, and, before Kubernetes 1.36,
// without a start time. writes counts the requests that came through.
func templateRule(c client.WithWatch, startTimeMatters bool, writes *int) client.Client {
	return interceptor.NewClient(c, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, o ...client.PatchOption) error {
			before := &batchv1.Job{}
			if err := c.Get(ctx, client.ObjectKeyFromObject(obj), before); err != nil {
				return err
			}
			data, err := patch.Data(obj)
			if err != nil {
				return err
			}
			changed := bytes.Contains(data, []byte("/spec/template"))
			may := ptr.Deref(before.Spec.Suspend, false) && before.Status.Active == 0 && !(startTimeMatters && before.Status.StartTime != nil)
			if changed && !may {
				return apierrors.NewInvalid(batchv1.SchemeGroupVersion.WithKind("Job").GroupKind(), obj.GetName(), nil)
			}
			*writes++
			return c.Patch(ctx, obj, patch, o...)
		},
	})
}

func TestBatchJobResumeAndSuspend(t *testing.T) {
	kind := kindNamed(t, "Job")
	b := newBatchJob(func(b *batchv1.Job) {
		b.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "a"}
		b.Spec.Template.Spec.Tolerations = tolerations("spot", "spot")
		b.Spec.Template.Annotations = map[string]string{"mine": "1"}
	})
	original := b.DeepCopy()
	writes := 0
	c := templateRule(fakeClient(t, b.DeepCopy()).(client.WithWatch), false, &writes)
	before, _, _, _ := kind.Read(t.Context(), c, b)

	if err := kind.Resume(t.Context(), c, get(t, c, b), h100Main); err != nil {
		t.Fatal(err)
	}
	running := get(t, c, newBatchJob(nil))
	template := running.Spec.Template
	if *running.Spec.Suspend || writes != 1 {
		t.Errorf("suspended: %v, after %d requests", *running.Spec.Suspend, writes)
	}
	if diff := cmp.Diff(map[string]string{"zone": "a", "gpu": "h100"}, template.Spec.NodeSelector); diff != "" {
		t.Errorf("node selector (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(tolerations("spot", "spot", "gpu"), template.Spec.Tolerations); diff != "" {
		t.Errorf("tolerations (-want +got):\n%s", diff)
	}

	// A new process that reads the running Job sees the author's pod set.
	after, _, no, err := kind.Read(t.Context(), c, running)
	if no != nil || err != nil || after.Suspended || !SamePodSets(NewWorkload(before, 0, nil), after) {
		t.Errorf("no %v, err %v, pod sets (-before +after):\n%s", no, err, cmp.Diff(before.PodSets, after.PodSets))
	}

	if err := kind.Resume(t.Context(), c, running, h100Main); err != nil || writes != 1 {
		t.Errorf("resuming a running Job again: %v, after %d requests", err, writes)
	}
	b200 := []PodSetInfo{{Name: "main", NodeSelector: map[string]string{"gpu": "b200"}}}
	if err := kind.Resume(t.Context(), c, running, b200); !errors.Is(err, ErrNotSuspended) {
		t.Errorf("resuming a running Job with other infos: %v", err)
	}

	if err := kind.Suspend(t.Context(), c, running); err != nil {
		t.Fatal(err)
	}
	stopped := get(t, c, newBatchJob(nil))
	if !*stopped.Spec.Suspend || writes != 2 {
		t.Errorf("suspended: %v, after %d requests", *stopped.Spec.Suspend, writes)
	}
	if err := kind.Suspend(t.Context(), c, stopped); err != nil || writes != 2 {
		t.Errorf("suspending a suspended Job: %v, after %d requests", err, writes)
	}

	// The next flavor takes the place of the first.
	if err := kind.Resume(t.Context(), c, stopped, b200); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"zone": "a", "gpu": "b200"}, get(t, c, b).Spec.Template.Spec.NodeSelector); diff != "" {
		t.Errorf("node selector of the second run (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(original.Spec.Template.Spec.Tolerations, get(t, c, b).Spec.Template.Spec.Tolerations); diff != "" {
		t.Errorf("tolerations of the second run (-want +got):\n%s", diff)
	}
}

func TestBatchJobThatRanBeforeIsResumedWithAnotherFlavor(t *testing.T) {
	ranBefore := func(active int32) *batchv1.Job {
		return newBatchJob(func(b *batchv1.Job) {
			b.Status.StartTime, b.Status.Active = new(metav1.Unix(1_700_000_100, 0)), active
		})
	}
	for name, tc := range map[string]struct {
		job     *batchv1.Job
		old     bool
		resumed bool
		writes  int
	}{
		"in one request": {ranBefore(0), false, true, 1},
		"without its start time on an old API server": {ranBefore(0), true, true, 1},
		"not while pods of it are active":             {ranBefore(1), false, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			writes := 0
			c := templateRule(fakeClient(t, tc.job.DeepCopy()).(client.WithWatch), tc.old, &writes)
			err := kindNamed(t, "Job").Resume(t.Context(), c, get(t, c, newBatchJob(nil)), h100Main)
			if (err == nil) != tc.resumed || writes != tc.writes {
				t.Errorf("err %v, %d requests", err, writes)
			}
			got := get(t, c, newBatchJob(nil))
			if *got.Spec.Suspend == tc.resumed || (got.Spec.Template.Spec.NodeSelector["gpu"] == "h100") != tc.resumed {
				t.Errorf("suspended %v with node selector %v", *got.Spec.Suspend, got.Spec.Template.Spec.NodeSelector)
			}
			if cleared := got.Status.StartTime == nil; cleared != tc.old {
				t.Errorf("the start time was taken away: %v", cleared)
			}
		})
	}
}

func TestBatchJobResumeRefuses(t *testing.T) {
	kind := kindNamed(t, "Job")
	selecting := newBatchJob(func(b *batchv1.Job) { b.Spec.Template.Spec.NodeSelector = map[string]string{"gpu": "a100"} })
	c := fakeClient(t, selecting)
	var no *reason.Reason
	err := kind.Resume(t.Context(), c, get(t, c, newBatchJob(nil)), h100Main)
	if !errors.As(err, &no) || no.Message != `pod set "main" has the node selector gpu=a100, but its queue gives gpu=h100` {
		t.Errorf("infos that contradict the template: %v", err)
	}
	if err := kind.Resume(t.Context(), c, get(t, c, newBatchJob(nil)), h100); err == nil {
		t.Error("infos of another kind's pod set were taken")
	}

	c = fakeClient(t, newBatchJob(nil))
	stale := get(t, c, newBatchJob(nil))
	newer := stale.DeepCopy()
	newer.Labels["touched"] = "yes"
	if err := c.Update(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	if err := kind.Resume(t.Context(), c, stale, h100Main); !apierrors.IsConflict(err) {
		t.Errorf("an object that is out of date: %v", err)
	}
	if !*get(t, c, newBatchJob(nil)).Spec.Suspend {
		t.Error("it was resumed all the same")
	}
	before := stale.DeepCopy()
	if _, _, _, err := kind.Read(t.Context(), c, stale); err != nil || !equality.Semantic.DeepEqual(before, stale) {
		t.Errorf("reading changed the object (%v)", err)
	}
	if err := kind.Suspend(t.Context(), c, &corev1.Pod{}); err == nil {
		t.Error("a Pod was suspended as a Job")
	}
}
