package queueing

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

func trainJob(uid types.UID, labels map[string]string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "trainer.kubeflow.org/v1alpha1", Kind: "TrainJob"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "nlp", Name: "llm", UID: uid, Labels: labels},
	}
}

func localQueue() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "kueue.x-k8s.io/v1beta2", Kind: "LocalQueue"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "nlp", Name: "team-nlp"},
	}
}

func defaultQueue() *metav1.PartialObjectMetadata {
	queue := localQueue()
	queue.Name = "default"
	return queue
}

// namespace is that of the objects, with the default queue that it names, if any.
func namespace(queue string) *metav1.PartialObjectMetadata {
	in := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "nlp"}}
	if queue != "" {
		in.Annotations = map[string]string{"muster.dev/default-queue": queue}
	}
	return in
}

// cluster is a metadata client over objects; a non-nil err is what every read gets.
func cluster(err error, objects ...runtime.Object) *metadatafake.FakeMetadataClient {
	scheme := metadatafake.NewTestScheme()
	_ = metav1.AddMetaToScheme(scheme)
	c := metadatafake.NewSimpleMetadataClient(scheme, objects...)
	if err != nil {
		c.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
	}
	return c
}

func create(kind schema.GroupKind, object string) admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "r", Namespace: "nlp", Name: "llm", Operation: admissionv1.Create,
		Kind:   metav1.GroupVersionKind{Group: kind.Group, Version: "v1", Kind: kind.Kind},
		Object: runtime.RawExtension{Raw: []byte(object)},
	}}
}

func TestHandle(t *testing.T) {
	const queuedTrainJob = `{"metadata":{` + queued + `},"spec":{}}`
	const ownedJobSet = `{"metadata":{` + ownedByTrainJob + `},"spec":{` + mpiJobs + `}}`
	const queuedJobSet = `{"metadata":{` + queued + `},"spec":{` + mpiJobs + `}}`
	const freeTrainJob = `{"metadata":{},"spec":{}}`
	labels := map[string]string{QueueLabel: "team-nlp"}
	yes := true
	// What client-go makes of a 404 from a server that has no such API.
	noSuchAPI := apierrors.NewGenericServerResponse(http.StatusNotFound, "GET", schema.GroupResource{}, "", "404 page not found", 0, true)

	tests := map[string]struct {
		request  admission.Request
		change   func(*admission.Request)
		reader   *metadatafake.FakeMetadataClient
		changes  int
		warnings []string
		reads    int
		// noDefault: the configuration sends no job to a default queue.
		noDefault bool
	}{
		"a queued TrainJob is suspended": {
			request: create(TrainJob, queuedTrainJob), reader: cluster(nil, localQueue()), changes: 1, reads: 1,
		},
		"a dry run gets the same answer": {
			request: create(TrainJob, queuedTrainJob), change: func(r *admission.Request) { r.DryRun = &yes },
			reader: cluster(nil, localQueue()), changes: 1, reads: 1,
		},
		"a name that is still to be generated makes no difference": {
			request: create(TrainJob, queuedTrainJob), change: func(r *admission.Request) { r.Name = "" },
			reader: cluster(nil, localQueue()), changes: 1, reads: 1,
		},
		"a queue that does not exist warns": {
			request: create(TrainJob, queuedTrainJob), reader: cluster(nil), changes: 1, reads: 1,
			warnings: []string{`queue "team-nlp" does not exist in namespace "nlp"; the job stays suspended until it does`},
		},
		"a queue that cannot be looked up does not warn": {
			request: create(TrainJob, queuedTrainJob), reader: cluster(context.DeadlineExceeded), changes: 1, reads: 1,
		},
		"a cluster without the queue API does not warn": {
			request: create(TrainJob, queuedTrainJob), reader: cluster(noSuchAPI), changes: 1, reads: 1,
		},
		"a queued JobSet is suspended and stamped": {
			request: create(JobSet, queuedJobSet), reader: cluster(nil, localQueue()), changes: 3, reads: 1,
		},
		"a queued Job is suspended and stamped": {
			request: create(Job, `{"metadata":{`+queued+`},"spec":{`+podOf(`"default-scheduler"`)+`}}`), reader: cluster(nil, localQueue()), changes: 2, reads: 1,
		},
		"a Job of a JobSet is left without a look": {
			request: create(Job, `{"metadata":{`+queued+`,`+ownedByJobSet+`},"spec":{`+podOf(`"default-scheduler"`)+`}}`), reader: cluster(nil),
		},
		"a queued TrainJob's JobSet is stamped": {
			request: create(JobSet, ownedJobSet), reader: cluster(nil, trainJob("u1", labels)), changes: 2, reads: 1,
		},
		"a JobSet of a TrainJob without a queue is left": {
			request: create(JobSet, ownedJobSet), reader: cluster(nil, trainJob("u1", nil)), reads: 1,
		},
		"a TrainJob of the same name but another UID is not the owner": {
			request: create(JobSet, ownedJobSet), reader: cluster(nil, trainJob("u2", labels)), reads: 1,
		},
		"an owner that is gone queues nothing": {
			request: create(JobSet, ownedJobSet), reader: cluster(nil), reads: 1,
		},
		"an owner that cannot be read leaves the JobSet as it is and warns": {
			request: create(JobSet, ownedJobSet), reader: cluster(errors.New("etcd is slow")), reads: 1,
			warnings: []string{"TrainJob nlp/llm could not be read, so the scheduler's name was not set; if it is queued, delete this JobSet to have it made again"},
		},
		"an owner whose API is not served counts as unreadable": {
			request: create(JobSet, ownedJobSet), reader: cluster(noSuchAPI), reads: 1,
			warnings: []string{"TrainJob nlp/llm could not be read, so the scheduler's name was not set; if it is queued, delete this JobSet to have it made again"},
		},
		"a TrainJob of no queue goes to the default one": {
			request: create(TrainJob, freeTrainJob), reader: cluster(nil, namespace(""), defaultQueue()), changes: 2, reads: 2,
		},
		"a TrainJob of no queue goes to the one that its namespace names": {
			request: create(TrainJob, freeTrainJob), reader: cluster(nil, namespace("team-nlp"), localQueue()), changes: 2, reads: 2,
		},
		"a TrainJob of no queue is left where the one that its namespace names does not exist": {
			request: create(TrainJob, freeTrainJob), reader: cluster(nil, namespace("team-vision"), localQueue(), defaultQueue()), reads: 2,
		},
		"a Job with GPUs and no queue goes to the default one": {
			request: create(Job, jobOf(gpus("nvidia.com/gpu", `8`))), reader: cluster(nil, namespace(""), defaultQueue()), changes: 3, reads: 2,
		},
		"a Job without GPUs is left without a look": {
			request: create(Job, jobOf(`"containers":[{"name":"c"}]`)), reader: cluster(nil, defaultQueue()),
		},
		"a TrainJob of no queue is left where there is no default one": {
			request: create(TrainJob, freeTrainJob), reader: cluster(nil, namespace(""), localQueue()), reads: 2,
		},
		"a TrainJob of no queue is left if nobody can say whether there is a default one": {
			request: create(TrainJob, freeTrainJob), reader: cluster(errors.New("etcd is slow")), reads: 1,
		},
		"a TrainJob of no queue is left where there are no queues": {
			request: create(TrainJob, freeTrainJob), reader: cluster(noSuchAPI), reads: 1,
		},
		"a TrainJob of no queue is left without a look by configuration": {
			request: create(TrainJob, freeTrainJob), reader: cluster(nil, defaultQueue()), noDefault: true,
		},
		"a TrainJob of no queue in an exempt namespace is left without a look": {
			request: create(TrainJob, freeTrainJob), change: func(r *admission.Request) { r.Namespace = "kube-system" }, reader: cluster(nil, defaultQueue()),
		},
		"a queued pod is stamped without a look": {
			request: create(Pod, `{"metadata":{`+queued+`},"spec":{"schedulerName":"default-scheduler"}}`), reader: cluster(nil), changes: 1,
		},
		"an exempt namespace is left without a look": {
			request: create(TrainJob, queuedTrainJob), change: func(r *admission.Request) { r.Namespace = "kube-system" }, reader: cluster(nil),
		},
		"an update is left": {
			request: create(TrainJob, queuedTrainJob), change: func(r *admission.Request) { r.Operation = admissionv1.Update }, reader: cluster(nil),
		},
		"a subresource is left": {
			request: create(TrainJob, queuedTrainJob), change: func(r *admission.Request) { r.SubResource = "status" }, reader: cluster(nil),
		},
		"an object that cannot be read is passed on": {
			request: create(TrainJob, `{"metadata":{"labels":7}}`), reader: cluster(nil),
		},
		"no object at all is passed on": {
			request: create(JobSet, ``), reader: cluster(nil),
		},
		"another kind is passed on": {
			request: create(schema.GroupKind{Group: "batch", Kind: "CronJob"}, queuedTrainJob), reader: cluster(nil),
		},
		"a foreign manager's job is left without a look": {
			request: create(TrainJob, `{"metadata":{`+queued+`},"spec":{"managedBy":"kueue.x-k8s.io/multikueue"}}`), reader: cluster(nil),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.change != nil {
				tc.change(&tc.request)
			}
			got := NewHandler(tc.reader, clock.RealClock{}, Options{SchedulerName: scheduler, DefaultQueue: !tc.noDefault, Exempt: []string{"kube-system"}}).Handle(t.Context(), tc.request)
			if !got.Allowed {
				t.Error("refused")
			}
			if len(got.Patches) != tc.changes {
				t.Errorf("%d changes, want %d: %v", len(got.Patches), tc.changes, got.Patches)
			}
			if diff := cmp.Diff(tc.warnings, got.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if n := len(tc.reader.Actions()); n != tc.reads {
				t.Errorf("%d reads, want %d", n, tc.reads)
			}
		})
	}
}

func TestABurstOfJobsCostsOneLookAtTheirQueue(t *testing.T) {
	clock := testclock.NewFakeClock(time.Now())
	reader := cluster(nil, namespace(""), localQueue(), defaultQueue())
	h := NewHandler(reader, clock, Options{SchedulerName: scheduler, DefaultQueue: true})
	looksAfter := func(what string, want int, objects ...string) {
		t.Helper()
		for range 3 {
			for _, o := range objects {
				if got := h.Handle(t.Context(), create(TrainJob, o)); len(got.Patches) == 0 {
					t.Fatalf("%s: a job was left as it is", what)
				}
			}
		}
		if n := len(reader.Actions()); n != want {
			t.Errorf("%s: %d looks so far, want %d", what, n, want)
		}
	}
	const queuedJob, freeJob = `{"metadata":{` + queued + `},"spec":{}}`, `{"metadata":{},"spec":{}}`
	looksAfter("each of two queues is looked for once, and the namespace", 3, queuedJob, freeJob)
	clock.Step(queueFreshness + time.Second)
	looksAfter("and again later", 6, queuedJob, freeJob)

	if err := reader.Tracker().Delete(localQueues, "nlp", "team-nlp"); err != nil {
		t.Fatal(err)
	}
	clock.Step(queueFreshness + time.Second)
	for i := range 2 {
		if got := h.Handle(t.Context(), create(TrainJob, queuedJob)); len(got.Warnings) != 1 {
			t.Errorf("of a queue that is gone job %d hears %q", i, got.Warnings)
		}
		if n := len(reader.Actions()); n != 7+i {
			t.Errorf("%d looks, want %d: that there is no queue is not believed", n, 7+i)
		}
	}
}
