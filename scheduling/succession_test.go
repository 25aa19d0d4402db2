package scheduling

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// servingPod is a pod of Deployment web by a template with that hash.
func servingPod(uid, hash string, gpus int64) *corev1.Pod {
	p := plainPod(uid, "", gpus)
	delete(p.Spec.Containers[0].Resources.Requests, corev1.ResourceCPU)
	p.UID = types.UID(uid)
	p.Labels = map[string]string{workload.QueueLabel: "main", appsv1.DefaultDeploymentUniqueLabelKey: hash}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-" + hash, UID: types.UID("rs-" + hash), Controller: new(true)}}
	return p
}

// serves is the job that such a pod is.
func serves(p *corev1.Pod) *workload.Job {
	owner, _ := workload.PodJob(p)
	ps := set(workload.MainPodSet, 0, 1, 0)
	ps.Template.Spec = p.Spec
	return &workload.Job{
		Owner: owner, Queue: "main", Gated: true, Suspended: p.Spec.NodeName == "", PodOwnerUID: p.UID, Created: epoch0,
		Pods: []*corev1.Pod{p}, Keeper: workload.KeeperOf(p), PodSets: []workload.PodSet{ps},
	}
}

// runServing admits a serving pod on a node and binds it.
func (s *scene) runServing(p *corev1.Pod, node string) (*workload.Job, *corev1.Pod) {
	s.t.Helper()
	j := serves(p)
	s.pending(j)
	s.plan(j, []string{node})
	s.written(j.Owner.UID, 0, s.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), s.admissionWritten(j)), wrote, nil)
	bound := s.bindAll(p)[0]
	s.read(serves(bound), nil, nil)
	return j, bound
}

// goes is the end of a serving pod, up to the deletion of its Workload.
func (s *scene) goes(j *workload.Job, bound *corev1.Pod) {
	s.t.Helper()
	s.gone(bound)
	s.settle(false)
	s.ownerGone(j.Owner.UID)
}

func TestPlaceOfAServingPodPassesToTheOneThatWaits(t *testing.T) {
	s := testScene(t, 4, 4)
	j, bound := s.runServing(servingPod("p1", "a", 4), "node-0")
	other := s.pending(job("other", set("node", 0, 1, 4)))
	next := servingPod("p2", "b", 4)
	s.Seen(next)
	s.pending(serves(next))
	s.goes(j, bound)
	if s.state(serves(next)) != Pending {
		t.Fatal("the place passes before the API knows of the end of the pod before")
	}
	s.left(j.Owner.UID)
	if s.state(serves(next)) != Admitting || s.state(other) != Pending || s.state(j) != Gone {
		t.Fatalf("the next pod is %s, another job %s, the pod before %s", s.state(serves(next)), s.state(other), s.state(j))
	}
	if s.used() != 4 || s.taken("node-0") != 4 || s.wishes.writes[next.UID] != 1 {
		t.Errorf("%d GPUs are charged, %d taken, %d writes", s.used(), s.taken("node-0"), s.wishes.writes[next.UID])
	}
	s.written(next.UID, 0, s.workloadOfJob(serves(next), isTrue(kueue.WorkloadAdmitted), s.admissionWritten(serves(next))), wrote, nil)
	s.take(next)
	if node, _ := s.NodeFor(next); node != "node-0" {
		t.Errorf("the next pod goes to %q", node)
	}
}

func TestPlaceOfAServingPodIsKeptForOneThatIsStillToCome(t *testing.T) {
	s := testScene(t, 4, 4)
	j, bound := s.runServing(servingPod("p1", "a", 4), "node-0")
	s.goes(j, bound)
	s.keepFor(j.Owner.UID, s.clock.Now().Add(heirGrace))
	s.left(j.Owner.UID)
	if s.used() != 4 || s.taken("node-0") != 4 {
		t.Fatalf("%d GPUs are charged and %d held while the place is kept", s.used(), s.taken("node-0"))
	}
	if n := s.placesOf(workload.KeeperOf(bound), ""); n != 1 {
		t.Errorf("the keeper has %d places", n)
	}
	next := servingPod("p2", "a", 4)
	s.Seen(next)
	s.pending(serves(next))
	if s.state(serves(next)) != Admitting || s.state(j) != Gone || s.used() != 4 || s.taken("node-0") != 4 {
		t.Errorf("the next pod is %s, the one before %s, %d GPUs are charged and %d taken", s.state(serves(next)), s.state(j), s.used(), s.taken("node-0"))
	}
}

func TestPlaceOfAServingPodThatNobodyTakesIsGivenUp(t *testing.T) {
	s := testScene(t, 4, 4)
	j, bound := s.runServing(servingPod("p1", "a", 4), "node-0")
	s.goes(j, bound)
	s.keepFor(j.Owner.UID, s.clock.Now().Add(heirGrace))
	s.left(j.Owner.UID)
	if len(s.lapsed()) > 0 {
		t.Fatal("the place is given up at once")
	}
	s.clock.Step(heirGrace + time.Second)
	for _, uid := range s.lapsed() {
		s.left(uid)
	}
	if s.state(j) != Gone || s.used() != 0 || s.taken("node-0") != 0 || len(s.kept) != 0 {
		t.Errorf("it is %s, %d GPUs are charged and %d taken, kept are %v", s.state(j), s.used(), s.taken("node-0"), s.kept)
	}
}

func TestPlaceDoesNotPass(t *testing.T) {
	for name, tc := range map[string]struct {
		next func(*corev1.Pod) *workload.Job
		stop bool
	}{
		"to a pod that asks for something else": {next: func(p *corev1.Pod) *workload.Job { return serves(servingPod("p2", "b", 2)) }},
		"to a pod of another keeper": {next: func(p *corev1.Pod) *workload.Job {
			p.OwnerReferences[0].Kind, p.OwnerReferences[0].Name = "StatefulSet", "db"
			return serves(p)
		}},
		"to a pod in another queue": {next: func(p *corev1.Pod) *workload.Job {
			return with(serves(p), func(j *workload.Job) { j.Queue = "other" })
		}},
		"from a pod that was evicted": {next: serves, stop: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 4, 4)
			j, bound := s.runServing(servingPod("p1", "a", 4), "node-0")
			next := s.pending(tc.next(servingPod("p2", "b", 4)))
			if tc.stop {
				s.stop(j, eviction{reason: kueue.WorkloadPreempted, message: "test"})
			}
			s.goes(j, bound)
			s.keepFor(j.Owner.UID, s.clock.Now().Add(heirGrace))
			s.left(j.Owner.UID)
			if tc.stop && s.used() != 0 {
				t.Errorf("%d GPUs are charged", s.used())
			}
			if s.state(next) != Pending {
				t.Errorf("the next pod is %s", s.state(next))
			}
		})
	}
}

func TestPendingPodOfAnUpdateSaysHowItGetsAPlace(t *testing.T) {
	s := testScene(t, 4, 4)
	s.runServing(servingPod("p1", "a", 4), "node-0")
	same, next := servingPod("p2", "a", 4), servingPod("p3", "b", 4)
	for _, p := range []*corev1.Pod{same, next} {
		s.pending(serves(p))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if hint := s.surgeHint(s.jobs[same.UID]); hint != "" {
		t.Errorf("a pod of the same template is told %q", hint)
	}
	if hint := s.surgeHint(s.jobs[next.UID]); !strings.Contains(hint, "maxSurge: 0") {
		t.Errorf("the pod of an update is told %q", hint)
	}
}

func TestAPlaceDoesNotPassWhereNobodyMayBeAdmitted(t *testing.T) {
	localQueue := func(spec kueue.LocalQueueSpec) func(*scene) {
		return func(s *scene) {
			s.UpdateQuota(func(t *quota.Tree) {
				t.SetLocalQueue(&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "main"}, Spec: spec})
			})
		}
	}
	for name, stop := range map[string]func(*scene){
		"the LocalQueue is stopped":               localQueue(kueue.LocalQueueSpec{ClusterQueue: "cq", StopPolicy: new(kueue.Hold)}),
		"the LocalQueue is one of another":        localQueue(kueue.LocalQueueSpec{ClusterQueue: "other"}),
		"a Kueue manager lives, and admits pods":  func(s *scene) { s.SetRival(reason.New(reason.AnotherScheduler, "Kueue lives")) },
		"the ClusterQueue exists no more by then": func(s *scene) { s.UpdateQuota(func(t *quota.Tree) { t.DeleteClusterQueue("cq") }) },
	} {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 4, 4)
			j, bound := s.runServing(servingPod("p1", "a", 4), "node-0")
			next := servingPod("p2", "a", 4)
			s.Seen(next)
			s.pending(serves(next))
			s.goes(j, bound)
			stop(s)
			s.left(j.Owner.UID)
			if s.state(serves(next)) != Pending || s.used() != 0 {
				t.Errorf("the next pod is %s, %d GPUs are charged", s.state(serves(next)), s.used())
			}
		})
	}
}
