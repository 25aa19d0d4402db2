package scheduling

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// noVersion is of an informer that has listed nothing yet.
func noVersion() string { return "" }

// TestPodsOfAGroupAreListedAsNewAsTheyWereSeen: a list of the newest would wait for
// etcd.
func TestPodsOfAGroupAreListedAsNewAsTheyWereSeen(t *testing.T) {
	for _, test := range []struct {
		name, seen string
		read       func(j *Jobs, ctx context.Context, kind workload.Kind, key types.NamespacedName) (client.Object, error)
		want       *metav1.ListOptions
	}{
		{
			name: "to be looked at", seen: "123",
			read: (*Jobs).cached,
			want: &metav1.ListOptions{ResourceVersion: "123", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan},
		},
		{name: "to be acted on", seen: "123", read: (*Jobs).current},
		{name: "before pods were seen", read: (*Jobs).cached},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := testScene(t, 16, 8, 8)
			pod := ofGroup("gang", "a")
			var lists []*metav1.ListOptions
			j := s.jobsOn(t, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					lists = append(lists, (&client.ListOptions{}).ApplyOptions(opts).Raw)
					return c.List(ctx, list, opts...)
				},
			}, pod)
			j.podsSeen = func() string { return test.seen }
			owner, _ := workload.PodJob(pod)
			got, err := test.read(j, t.Context(), j.kinds[owner.GroupKind()], owner.NamespacedName)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(got.(*workload.PodGroup).Pods); n != 1 {
				t.Errorf("the group has %d pods, want 1", n)
			}
			if diff := cmp.Diff([]*metav1.ListOptions{test.want}, lists); diff != "" {
				t.Errorf("lists (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPodsOfAGroupWithoutALabelAreFound by the scheduler's informer, since the API
// server cannot select them.
func TestPodsOfAGroupWithoutALabelAreFound(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	pod := relabel(ofGroup("", "a"), "")
	pod.Annotations = map[string]string{workload.VolcanoGroupAnnotation: "gang", workload.VolcanoMinMemberAnnotation: "2"}
	informed := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	if err := informed.Add(pod); err != nil {
		t.Fatal(err)
	}
	j := s.jobsOn(t, interceptor.Funcs{}, pod)
	j.pods, j.podsSeen = corelisters.NewPodLister(informed), func() string { return "123" }
	owner, _ := workload.PodJob(pod)
	got, err := j.cached(t.Context(), j.kinds[owner.GroupKind()], owner.NamespacedName)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(got.(*workload.PodGroup).Pods); n != 1 {
		t.Errorf("the group has %d pods, want 1", n)
	}
}

// TestAGroupIsReadOnceForWhatItsReadingShows: each reading lists its pods.
func TestAGroupIsReadOnceForWhatItsReadingShows(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	a, b := ofGroup("gang", "a"), ofGroup("gang", "b")
	s.Seen(a)
	s.Seen(b)
	job := groupOf(a, b)
	job.Pods = []*corev1.Pod{a, b}
	key := keyOf(job.Owner)
	wl := s.workloadOfJob(job)
	reads := func(what string, want int) {
		t.Helper()
		if got := s.wishes.synced[key]; (got > 0) != (want > 0) {
			t.Errorf("%s: %d readings are asked for, want %d", what, got, want)
		}
		delete(s.wishes.synced, key)
	}
	reads("pods have come", 1)
	s.read(job, wl, nil)
	reads("they were read", 0)
	if s.observe(job.Owner.UID, wl) {
		t.Error("the Workload that it was read with is news")
	}
	later := wl.DeepCopy()
	later.ResourceVersion = "999999"
	if !s.observe(job.Owner.UID, later) {
		t.Error("another Workload is none")
	}
	s.Seen(ofGroup("gang", "c"))
	reads("one more pod has come", 1)

	s.plan(job, []string{"node-0", "node-1"})
	s.written(job.Owner.UID, 0, s.workloadOfJob(job, s.admissionWritten(job)), wrote, nil)
	delete(s.wishes.synced, key)
	s.bindAll(a, b)
	if all := s.wishes.synced[key]; all == 0 || s.wishes.late != all {
		t.Errorf("%d of %d readings for pods that were bound may be late, want all", s.wishes.late, all)
	}
}

// TestWorkloadsThatNobodyHasReadAreNews whatever else is known of their job.
func TestWorkloadsThatNobodyHasReadAreNews(t *testing.T) {
	s := testScene(t, 16, 8, 8)
	if !s.observe("nobody", &kueue.Workload{}) {
		t.Error("the Workload of an unknown job is no news")
	}
}
