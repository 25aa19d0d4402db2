package scheduling

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// jobSetJob is a JobSet of an initializer and of nodes that wait until it is
// complete, as it is read from the API.
func jobSetJob(t *testing.T, js *jobset.JobSet) *workload.Job {
	t.Helper()
	for _, k := range workload.Kinds(workload.Options{SchedulerNames: sets.New(corev1.DefaultSchedulerName)}) {
		if k.GroupVersionKind().Kind != "JobSet" {
			continue
		}
		j, managed, no, err := k.Read(t.Context(), nil, js)
		if err != nil || no != nil || !managed {
			t.Fatalf("reading the JobSet: managed %v, %v %v", managed, no, err)
		}
		return j
	}
	t.Fatal("JobSets are no kind of job")
	return nil
}

func initialized() *jobset.JobSet {
	replicated := func(name string, pods int32, gpus int64) jobset.ReplicatedJob {
		template := set(name, 0, pods, gpus).Template
		return jobset.ReplicatedJob{Name: name, Replicas: 1, Template: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
			Parallelism: &pods, Completions: &pods, Template: template,
		}}}
	}
	node := replicated("node", 2, 4)
	node.DependsOn = []jobset.DependsOn{{Name: "init", Status: jobset.DependencyComplete}}
	return &jobset.JobSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", UID: "a-uid", Labels: map[string]string{workload.QueueLabel: "main"}},
		Spec:       jobset.JobSetSpec{Suspend: new(true), ReplicatedJobs: []jobset.ReplicatedJob{replicated("init", 1, 1), node}},
	}
}

func TestJobSetThatRunsAgainAfterItsInitializerHasStartedWithItsNodes(t *testing.T) {
	s := testScene(t, 9, 8, 1)
	js := initialized()
	j := s.admitted(jobSetJob(t, js), []string{"node-1"}, []string{"node-0", "node-0"})
	init := s.bindAll(pod(j, "init", 0, "init"))
	s.gone(init[0])
	s.settle(true)
	first := s.bindAll(pod(j, "node", 0, "first-0"), pod(j, "node", 1, "first-1"))

	// It is stopped. JobSet keeps what is complete, and counts it.
	js.Status.ReplicatedJobsStatus = []jobset.ReplicatedJobStatus{{Name: "init", Succeeded: 1}, {Name: "node"}}
	s.stop(j, eviction{reason: kueue.WorkloadEvictedByPreemption})
	s.stopped(j.Owner.UID)
	for _, p := range first {
		s.gone(p)
	}
	s.settle(false)
	stopped := jobSetJob(t, js)
	s.read(stopped, s.workloadOfJob(stopped), nil)
	s.left(j.Owner.UID)

	again := s.admitted(stopped, []string{"node-1"}, []string{"node-0", "node-0"})
	if got := s.taken("node-1"); got != 0 {
		t.Errorf("%d GPUs are held for the initializer, which does not run again", got)
	}
	s.bindAll(pod(again, "node", 0, "second-0"), pod(again, "node", 1, "second-1"))
	s.expire(time.Minute)
	s.clock.Step(time.Hour)
	s.expire(time.Minute)
	if got := s.state(again); got != Admitted {
		t.Errorf("it is %s, an hour after all its pods have come", got)
	}
}
