package simulator

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

// begin is the instant from which the tests count seconds.
var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds float64) time.Time {
	return begin.Add(time.Duration(seconds * float64(time.Second)))
}

func TestProgress(t *testing.T) {
	cases := []struct {
		name      string
		ranks     []rank
		expected  int
		now       float64
		want      time.Duration
		advancing bool
	}{
		{name: "counts from the start of the last rank", now: 30, expected: 2,
			ranks: []rank{{started: at(0)}, {started: at(10)}}, want: 20 * time.Second, advancing: true},
		{name: "a rank is missing", now: 30, expected: 3,
			ranks: []rank{{started: at(0)}, {started: at(10)}}},
		{name: "a rank does not run yet", now: 30, expected: 2,
			ranks: []rank{{started: at(0)}, {}}},
		{name: "stands still from the moment a rank is lost", now: 30, expected: 2,
			ranks: []rank{{started: at(0)}, {started: at(10), lost: at(14)}}, want: 4 * time.Second},
		{name: "the first loss counts, not the last", now: 30, expected: 2,
			ranks: []rank{{started: at(0), lost: at(12)}, {started: at(10), lost: at(14)}}, want: 2 * time.Second},
		{name: "a rank that was lost before the last one started never ran with it", now: 30, expected: 2,
			ranks: []rank{{started: at(0), lost: at(5)}, {started: at(10)}}},
		{name: "a replaced rank takes the gang back to zero", now: 30, expected: 2,
			ranks: []rank{{started: at(0)}, {started: at(30)}}, want: 0, advancing: true},
		{name: "a rank that stopped at an unknown time leaves nothing to count", now: 30, expected: 2,
			ranks: []rank{{started: at(0)}, {started: at(10), gone: true}}},
		{name: "no ranks at all", now: 30, expected: 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, advancing := progress(c.ranks, c.expected, at(c.now))
			if got != c.want || advancing != c.advancing {
				t.Errorf("progress = %v, %v, want %v, %v", got, advancing, c.want, c.advancing)
			}
		})
	}
}

// TestProgressIsNeverMoreThanAnyRanksTime: whatever the ranks did, a gang has
// not run longer together than any one of them has run.
func TestProgressIsNeverMoreThanAnyRanksTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := rapid.IntRange(0, 100).Draw(t, "now")
		expected := rapid.IntRange(1, 6).Draw(t, "expected")
		ranks := make([]rank, rapid.IntRange(0, 6).Draw(t, "ranks"))
		for i := range ranks {
			if rapid.Bool().Draw(t, "started") {
				ranks[i].started = at(float64(rapid.IntRange(0, now).Draw(t, "start")))
			}
			if rapid.Bool().Draw(t, "lost") {
				ranks[i].lost = at(float64(rapid.IntRange(0, now).Draw(t, "loss")))
			}
		}
		done, advancing := progress(ranks, expected, at(float64(now)))
		if len(ranks) < expected && (done != 0 || advancing) {
			t.Fatalf("a gang of %d with %d ranks made progress %v", expected, len(ranks), done)
		}
		for _, r := range ranks {
			until := at(float64(now))
			if !r.lost.IsZero() {
				until = r.lost
				if advancing {
					t.Fatal("a gang advances without a rank that is lost")
				}
			}
			if own := until.Sub(r.started); done > max(0, own) || done > 0 && r.started.IsZero() {
				t.Fatalf("the gang ran %v, this rank %v (started %v)", done, own, r.started)
			}
		}
	})
}

func newJob(name string, parallelism, completions int32, labels map[string]string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: labels, CreationTimestamp: metav1.Time{Time: begin}},
		Spec:       batchv1.JobSpec{Parallelism: ptr.To(parallelism), Completions: ptr.To(completions)},
	}
}

func ofJobSet(index, replicas string) map[string]string {
	return map[string]string{jobSetUIDLabel: "u", replicatedJobLabel: "node", jobIndexLabel: index, replicasLabel: replicas}
}

func TestExpectedRanks(t *testing.T) {
	leaving := newJob("old", 8, 8, ofJobSet("0", "1"))
	leaving.DeletionTimestamp = &metav1.Time{Time: begin}
	cases := []struct {
		name string
		key  string
		jobs []*batchv1.Job
		want int
		ok   bool
	}{
		{name: "a plain pod is one rank", key: "pod/x", want: 1, ok: true},
		{name: "a Job that is not seen yet has an unknown size", key: "job/x"},
		{name: "a Job has as many as run at once", key: "job/x", jobs: []*batchv1.Job{newJob("a", 4, 4, nil)}, want: 4, ok: true},
		{name: "fewer completions than parallelism bound it", key: "job/x", jobs: []*batchv1.Job{newJob("a", 4, 2, nil)}, want: 2, ok: true},
		{name: "the Jobs of a replicated job add up", key: "jobset/u/node",
			jobs: []*batchv1.Job{newJob("a", 4, 4, ofJobSet("0", "2")), newJob("b", 3, 3, ofJobSet("1", "2"))}, want: 7, ok: true},
		{name: "a replicated job is incomplete until all its Jobs exist", key: "jobset/u/node",
			jobs: []*batchv1.Job{newJob("a", 4, 4, ofJobSet("0", "2"))}, want: 4},
		{name: "a Job that is being deleted does not count", key: "jobset/u/node",
			jobs: []*batchv1.Job{leaving, newJob("new", 2, 2, ofJobSet("0", "1"))}, want: 2, ok: true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, ok := expectedRanks(c.key, c.jobs)
			if got != c.want || ok != c.ok {
				t.Errorf("expectedRanks = %d, %v, want %d, %v", got, ok, c.want, c.ok)
			}
		})
	}
}

func TestGangKey(t *testing.T) {
	owned := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "p", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "batch/v1", Kind: "Job", UID: "j", Controller: ptr.To(true)}}}}
	inJobSet := owned.DeepCopy()
	inJobSet.Labels = map[string]string{jobSetUIDLabel: "s", replicatedJobLabel: "node"}
	foreign := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "p", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "ReplicaSet", UID: "r", Controller: ptr.To(true)}}}}
	got := []string{gangKey(inJobSet), gangKey(owned), gangKey(foreign)}
	if diff := cmp.Diff([]string{"jobset/s/node", "job/j", "pod/p"}, got); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

func TestGangRanksPicksOnePodForEachPlace(t *testing.T) {
	pod := func(name, index string, created float64, phase corev1.PodPhase, started float64) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: name, CreationTimestamp: metav1.Time{Time: at(created)},
			Annotations: map[string]string{StartedAtAnnotation: stamp(at(started)), FinishedAtAnnotation: stamp(at(started + 1))},
		}, Status: corev1.PodStatus{Phase: phase}}
		if index != "" {
			p.Labels = map[string]string{batchv1.JobCompletionIndexAnnotation: index}
		}
		return p
	}
	cases := []struct {
		name     string
		pods     []*corev1.Pod
		expected int
		want     []rank
	}{
		{name: "the newest pod of an index wins", expected: 1,
			pods: []*corev1.Pod{pod("old", "0", 0, corev1.PodFailed, 1), pod("new", "0", 5, corev1.PodRunning, 6)},
			want: []rank{{started: at(6)}}},
		{name: "a failed rank that nobody replaced is lost", expected: 2,
			pods: []*corev1.Pod{pod("a", "0", 1, corev1.PodFailed, 1), pod("b", "1", 0, corev1.PodRunning, 1)},
			want: []rank{{started: at(1), lost: at(2)}, {started: at(1)}}},
		{name: "without an index those that run come first", expected: 2,
			pods: []*corev1.Pod{pod("a", "", 9, corev1.PodFailed, 1), pod("b", "", 1, corev1.PodRunning, 2), pod("c", "", 0, corev1.PodSucceeded, 3)},
			want: []rank{{started: at(2)}, {started: at(3)}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := gangRanks(c.pods, c.expected)
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(rank{})); diff != "" {
				t.Errorf("ranks (-want +got):\n%s", diff)
			}
		})
	}
}
