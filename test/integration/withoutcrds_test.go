package integration

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	configv1alpha1 "github.com/muster-gpu/muster/api/config/v1alpha1"
	"github.com/muster-gpu/muster/internal/testcluster"
)

// TestWithoutCRDs runs one scheduler on a cluster in which the APIs that Muster
// works with are installed one after the other. Pods that need none of them are
// never blocked.
func TestWithoutCRDs(t *testing.T) {
	e := &env{Cluster: testcluster.StartBare(t), namespace: "team"}
	e.config = configv1alpha1.DefaultScheduler()
	e.config.ClientConnection.Kubeconfig = e.Kubeconfig
	e.config.LeaderElection.LeaderElect = false
	e.config.SecureServing.Port = 0
	e.Namespace(t, e.namespace)
	e.RunBatchJobs(t)
	e.Node(t, "node-0", 8)
	e.start(t)
	t.Cleanup(func() { e.stop() })

	unqueued := func(t *testing.T, name string) {
		t.Helper()
		job := testcluster.BatchJob(e.namespace, name, "", 1, 1)
		job.Spec.Suspend = new(false)
		e.Create(t, job)
		e.onNodes(t, job, 1)
	}
	t.Run("with none of them, pods of a Job run", func(t *testing.T) { unqueued(t, "plain") })
	t.Run("without JobSets, a pod that has their labels is let go", func(t *testing.T) {
		pod := jobSetPod(e.namespace, "copied", "js-1")
		e.Create(t, pod)
		e.onNode(t, pod)
	})
	t.Run("without Kueue, pods of a JobSet of no queue run", func(t *testing.T) {
		e.AddJobSet(t)
		js := e.job("unqueued", "", 1, 1)
		js.Labels, js.Spec.Suspend = nil, new(false)
		e.Create(t, js)
		pod := jobSetPod(e.namespace, "of-jobset", string(js.UID))
		e.Create(t, pod)
		e.onNode(t, pod)
	})
	t.Run("a queued Job runs when Kueue's API comes, and Jobs of no queue still do", func(t *testing.T) {
		queued := testcluster.BatchJob(e.namespace, "queued", "team", 2, 2)
		e.Create(t, queued)
		unqueued(t, "before")
		e.AddKueue(t)
		e.Queue(t, e.namespace, "team", 8)
		e.jobRuns(t, queued, 2)
		unqueued(t, "after")
	})
}

// TestBatchJobsWithoutJobSets runs a scheduler on a cluster that has Kueue's
// API and no JobSets.
func TestBatchJobsWithoutJobSets(t *testing.T) {
	e := &env{Cluster: testcluster.StartBare(t), namespace: "team"}
	e.AddKueue(t)
	e.config = configv1alpha1.DefaultScheduler()
	e.config.ClientConnection.Kubeconfig = e.Kubeconfig
	e.config.LeaderElection.LeaderElect = false
	e.config.SecureServing.Port = 0
	e.Namespace(t, e.namespace)
	e.RunBatchJobs(t)
	e.Node(t, "node-0", 8)
	e.start(t)
	t.Cleanup(func() { e.stop() })
	e.Queue(t, e.namespace, "team", 8)
	queued := testcluster.BatchJob(e.namespace, "queued", "team", 2, 4)
	e.Create(t, queued)
	e.jobRuns(t, queued, 2)
	e.restart(t)
	e.usage(t, "team", 8, 1, 0)
}

// jobSetPod is a pod that says it is of the JobSet with that UID.
func jobSetPod(namespace, name, uid string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels: map[string]string{
				jobset.JobSetNameKey: "unqueued", jobset.JobSetUIDKey: uid,
				jobset.ReplicatedJobNameKey: "node", jobset.JobIndexKey: "0", batchv1.JobCompletionIndexAnnotation: "0",
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "x", UID: "x-1", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{SchedulerName: "muster", Containers: []corev1.Container{{Name: "c", Image: "example.com/x"}}},
	}
}
