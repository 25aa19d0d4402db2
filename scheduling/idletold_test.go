package scheduling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/workload"
)

// controlledBy is a change that gives a pod a controller.
func controlledBy(apiVersion, kind, name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.OwnerReferences = controllers(apiVersion, kind, name) }
}

func controllers(apiVersion, kind, name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(name), Controller: new(true)}}
}

// informed has the informers of a Jobs know these objects, of which the pods are of no job.
func (s *scene) informed(t *testing.T, j *Jobs, objects ...client.Object) {
	t.Helper()
	pods, replicaSets, statefulSets := indexer(), indexer(), indexer()
	for _, o := range objects {
		to := pods
		switch o := o.(type) {
		case *corev1.Pod:
			if owner, _, ok := workload.SlotOf(o); ok {
				s.Unmanaged(owner)
			}
		case *appsv1.ReplicaSet:
			to = replicaSets
		case *appsv1.StatefulSet:
			to = statefulSets
		}
		if err := to.Add(o); err != nil {
			t.Fatal(err)
		}
	}
	j.gpuNodes, j.pods = s.gpuNodes, corelisters.NewPodLister(pods)
	j.apps = appOwners{appslisters.NewReplicaSetLister(replicaSets), appslisters.NewStatefulSetLister(statefulSets)}
}

func indexer() cache.Indexer {
	return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
}

// toldOf are the events that there are, as "GPUsIdle on Pod a".
func toldOf(t *testing.T, j *Jobs) []string {
	t.Helper()
	var events corev1.EventList
	if err := j.client.List(t.Context(), &events); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range events.Items {
		out = append(out, fmt.Sprintf("%s on %s %s", e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Name))
	}
	slices.Sort(out)
	return out
}

func TestPodsOfNoQueueAreToldOnWhatTheyWereMadeFor(t *testing.T) {
	named := func(name string, owners []metav1.OwnerReference) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), OwnerReferences: owners}
	}
	tests := map[string]struct {
		owner   func(*corev1.Pod)
		objects []client.Object
		want    string
	}{
		"a bare pod": {owner: func(*corev1.Pod) {}, want: "GPUsIdle on Pod p"},
		"of a Deployment": {
			owner:   controlledBy("apps/v1", "ReplicaSet", "rs"),
			objects: []client.Object{&appsv1.ReplicaSet{ObjectMeta: named("rs", controllers("apps/v1", "Deployment", "web"))}},
			want:    "GPUsIdle on Deployment web",
		},
		"of a ReplicaSet that is another one now": {
			owner:   controlledBy("apps/v1", "ReplicaSet", "rs"),
			objects: []client.Object{&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "rs", UID: "new", OwnerReferences: controllers("apps/v1", "Deployment", "web")}}},
			want:    "GPUsIdle on ReplicaSet rs",
		},
		"of a notebook": {
			owner:   controlledBy("apps/v1", "StatefulSet", "ss"),
			objects: []client.Object{&appsv1.StatefulSet{ObjectMeta: named("ss", controllers("kubeflow.org/v1", "Notebook", "book"))}},
			want:    "GPUsIdle on Notebook book",
		},
		"of a CronJob": {
			owner:   controlledBy("batch/v1", "Job", "job"),
			objects: []client.Object{&batchv1.Job{ObjectMeta: named("job", controllers("batch/v1", "CronJob", "nightly"))}},
			want:    "GPUsIdle on CronJob nightly",
		},
		"of a JobSet's owner": {
			owner: controlledBy("batch/v1", "Job", "job"),
			objects: []client.Object{
				&batchv1.Job{ObjectMeta: named("job", controllers("jobset.x-k8s.io/v1alpha2", "JobSet", "js"))},
				&jobset.JobSet{ObjectMeta: named("js", controllers("trainer.kubeflow.org/v1alpha1", "TrainJob", "llm"))},
			},
			want: "GPUsIdle on TrainJob llm",
		},
		"of a kind that is not known": {owner: controlledBy("ray.io/v1", "RayCluster", "ray"), want: "GPUsIdle on RayCluster ray"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 8, 8)
			pod := plainPod("p", "node-0", 1, test.owner)
			var stored, known []client.Object
			for _, o := range test.objects {
				switch o.(type) {
				case *batchv1.Job, *jobset.JobSet:
					stored = append(stored, o)
				default:
					known = append(known, o)
				}
			}
			j := s.jobsOn(t, interceptor.Funcs{}, stored...)
			s.informed(t, j, append(known, pod)...)
			s.hear(idleSince(epoch0), pod)
			j.wantTold(t, test.want)
		})
	}
}

// wantTold looks, and wants that told since the beginning.
func (j *Jobs) wantTold(t *testing.T, want ...string) {
	t.Helper()
	j.tellIdles(t.Context())
	if diff := cmp.Diff(want, toldOf(t, j)); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// TestIdlePodsAreToldOnceForEachTime goes through what two replicas do.
func TestIdlePodsAreToldOnceForEachTime(t *testing.T) {
	s := testScene(t, 8, 8)
	ownedBy := controlledBy("apps/v1", "ReplicaSet", "rs")
	a, b := plainPod("a", "node-0", 1, ownedBy), plainPod("b", "node-0", 1, ownedBy)
	leaving := plainPod("c", "node-0", 1, ownedBy, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: epoch0} })
	creates, fails := 0, false
	j := s.jobsOn(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
		if creates++; fails {
			return errors.New("no answer")
		}
		return c.Create(ctx, obj, opts...)
	}})
	s.informed(t, j, a, b, leaving)
	says := func(v v1alpha1.GPUVerdict, since int) v1alpha1.GPUHolder {
		return v1alpha1.GPUHolder{Verdict: v, Since: metav1.Unix(epoch0.Unix()+int64(since), 0)}
	}
	const idle, active, stalled = v1alpha1.GPUIdle, v1alpha1.GPUActive, v1alpha1.GPUStalled
	for _, step := range []struct {
		name            string
		a, b            v1alpha1.GPUHolder
		fails, restarts bool
		creates         int
	}{
		{name: "one works", a: says(idle, 0), b: says(active, 0)},
		{name: "both idle, and it cannot be told", a: says(idle, 0), b: says(idle, 1), fails: true, creates: 1},
		{name: "now it can", a: says(idle, 0), b: says(idle, 1), creates: 1},
		{name: "they idle still, one for less long", a: says(idle, 0), b: says(idle, 2)},
		{name: "of one nothing is known", a: says(idle, 0), b: says(v1alpha1.GPUUnknown, 2)},
		{name: "they idle still, it turns out", a: says(idle, 0), b: says(idle, 1)},
		{name: "says another scheduler", a: says(idle, 0), b: says(idle, 1), restarts: true, creates: 1},
		{name: "one stalls", a: says(idle, 0), b: says(stalled, 3), creates: 1},
		{name: "both work", a: says(active, 4), b: says(active, 4)},
		{name: "both idle again", a: says(idle, 5), b: says(idle, 5), creates: 1},
	} {
		s.clock.Step(usesEvery)
		devices := append(gpusOfPod(a, step.a), gpusOfPod(b, step.b)...)
		s.gpuNodes.set(gpuNodeOf("node-0", s.clock.Now(), append(devices, gpusOfPod(leaving, says(active, 0))...)...))
		if step.restarts {
			j.idles = idlesTold{}
		}
		creates, fails = 0, step.fails
		j.tellIdles(t.Context())
		j.tellIdles(t.Context())
		if creates != step.creates {
			t.Errorf("%s: %d events are written, want %d", step.name, creates, step.creates)
		}
	}
	j.wantTold(t, "GPUsIdle on ReplicaSet rs", "GPUsIdle on ReplicaSet rs", "GPUsStalled on ReplicaSet rs")
	if len(j.idles.said) != 1 {
		t.Fatalf("remembered is %v", j.idles.said)
	}
	s.informed(t, j)
	s.clock.Step(usesEvery)
	j.tellIdles(t.Context())
	if len(j.idles.said) != 0 {
		t.Errorf("of who has gone is remembered: %v", j.idles.said)
	}
}

func TestOfManyIdlePodsAFewAreToldInEachLook(t *testing.T) {
	s := testScene(t, 8, 8)
	j := s.jobsOn(t, interceptor.Funcs{})
	var pods []*corev1.Pod
	var objects []client.Object
	for i := range 2*tellsAtOnce + 1 {
		pods = append(pods, plainPod(fmt.Sprint("p-", i), "node-0", 1))
		objects = append(objects, pods[i])
	}
	s.informed(t, j, objects...)
	for _, want := range []int{tellsAtOnce, 2 * tellsAtOnce, len(pods), len(pods)} {
		s.clock.Step(usesEvery)
		s.hear(idleSince(epoch0), pods...)
		j.tellIdles(t.Context())
		if got := len(toldOf(t, j)); got != want {
			t.Errorf("%d are told, want %d", got, want)
		}
	}
}

func TestOfAnOwnerItIsToldWithItsPodsThatAreCharged(t *testing.T) {
	s := testScene(t, 8, 8)
	pod := plainPod("extra", "node-0", 1, controlledBy("apps/v1", "ReplicaSet", "rs"))
	j := s.jobsOn(t, interceptor.Funcs{})
	s.informed(t, j, pod)
	s.hear(idleSince(epoch0), pod)
	works := &spender{use: gpuUse{state: gpusInUse}}
	all := map[types.UID]*spender{"rs": works}
	j.addUncharged(t.Context(), all, s.clock.Now())
	if len(all) != 1 || all["rs"] != works {
		t.Errorf("it is told that it is %q", all["rs"].use.state)
	}
}
