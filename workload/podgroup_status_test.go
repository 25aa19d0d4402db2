package workload

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func running(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "node-0", corev1.PodRunning }

func leaves(p *corev1.Pod) {
	p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: time.Unix(2000, 0)}, []string{"example.com/stays"}
}

func TestPodGroupStatusIsThatOfItsPods(t *testing.T) {
	at := time.Unix(3000, 0)
	began := at.UTC().Format(time.RFC3339)
	rs := madeBy("apps/v1", "ReplicaSet", "rs")
	elsewhere := func(p *corev1.Pod) { p.Spec.SchedulerName = "another" }
	of := func(lists ...[]client.Object) []client.Object {
		var out []client.Object
		for _, l := range lists {
			out = append(out, l...)
		}
		return out
	}
	for name, tc := range map[string]struct {
		objects []client.Object
		queue   string
		said    map[string]any
		// want is nil where nothing is to be written.
		want map[string]any
	}{
		"a group without pods waits": {
			queue: "q", want: map[string]any{"phase": "Pending"}},
		"one that names no queue may be another's": {},
		"pods of another scheduler are, too": {
			objects: groupPods("p", 3, elsewhere, running)},
		"pods without nodes wait": {
			objects: groupPods("p", 3), want: map[string]any{"phase": "Pending"}},
		"some on nodes are being scheduled": {
			objects: of(groupPods("p", 2, bound), groupPods("q", 1)), said: map[string]any{"phase": "Pending"},
			want: map[string]any{"phase": "Scheduling", "scheduleStartTime": began}},
		"that began when the first was": {
			objects: groupPods("p", 3, bound), said: map[string]any{"phase": "Scheduling", "scheduleStartTime": "2000-01-01T00:00:00Z"}},
		"too few that run are not enough": {
			objects: of(groupPods("p", 2, running), groupPods("q", 1, bound)), said: map[string]any{"phase": "Scheduling", "running": int64(1)},
			want: map[string]any{"phase": "Scheduling", "running": int64(2)}},
		"all run": {
			objects: groupPods("p", 3, running), said: map[string]any{"phase": "Scheduling"},
			want: map[string]any{"phase": "Running", "running": int64(3)}},
		"what is true already is not written": {
			objects: groupPods("p", 3, running), said: map[string]any{"phase": "Running", "running": int64(3)}},
		"those that have succeeded count with those that run": {
			objects: of(groupPods("p", 2, running), groupPods("q", 1, succeeded)), said: map[string]any{"phase": "Running", "running": int64(3)},
			want: map[string]any{"phase": "Running", "running": int64(2), "succeeded": int64(1)}},
		"all have succeeded": {
			objects: groupPods("p", 3, succeeded), said: map[string]any{"phase": "Running", "running": int64(1), "succeeded": int64(2)},
			want: map[string]any{"phase": "Finished", "running": int64(0), "succeeded": int64(3)}},
		"one that failed is missed": {
			objects: of(groupPods("p", 2, running), groupPods("q", 1, failed)), said: map[string]any{"phase": "Running", "running": int64(3)},
			want: map[string]any{"phase": "Failed", "running": int64(2), "failed": int64(1)}},
		"unless another has come": {
			objects: of(groupPods("p", 2, running), groupPods("q", 1, failed), groupPods("r", 1)), said: map[string]any{"phase": "Failed", "running": int64(2), "failed": int64(1)},
			want: map[string]any{"phase": "Scheduling", "running": int64(2), "failed": int64(1), "scheduleStartTime": began}},
		"one that is being deleted does not run any more": {
			objects: of(groupPods("p", 2, running), groupPods("q", 1, running, leaves)), said: map[string]any{"phase": "Running", "running": int64(3)},
			want: map[string]any{"phase": "Scheduling", "running": int64(2), "scheduleStartTime": began}},
		"as many must run as their controller makes": {
			objects: of(groupPods("p", 3, running, rs), []client.Object{replicaSet("rs", new(int32(4)))}),
			want:    map[string]any{"phase": "Scheduling", "running": int64(3), "occupiedBy": "team/rs", "scheduleStartTime": began}},
		"or fewer than minMember": {
			objects: of(groupPods("p", 2, running, rs), []client.Object{replicaSet("rs", new(int32(2)))}),
			want:    map[string]any{"phase": "Running", "running": int64(2), "occupiedBy": "team/rs"}},
		"what has ended stays when its pods are deleted": {
			queue: "q", said: map[string]any{"phase": "Finished", "succeeded": int64(3)}},
		"also one after the other": {
			objects: groupPods("p", 1, succeeded), said: map[string]any{"phase": "Finished", "succeeded": int64(3)},
			want: map[string]any{"phase": "Finished", "succeeded": int64(1)}},
		"other pods begin it anew": {
			objects: groupPods("p", 3), said: map[string]any{"phase": "Finished", "succeeded": int64(3)},
			want: map[string]any{"phase": "Pending", "succeeded": int64(0)}},
	} {
		t.Run(name, func(t *testing.T) {
			group := podGroupObject(3, nil)
			if tc.queue != "" {
				group.SetLabels(map[string]string{QueueLabel: tc.queue})
			}
			if tc.said != nil {
				group.Object["status"] = tc.said
			}
			key := types.NamespacedName{Namespace: "team", Name: "g"}
			have, want, err := PodGroupStatus(t.Context(), fakeClient(t, append(tc.objects, group)...), options(UnqueuedRun), key, at)
			if err != nil {
				t.Fatal(err)
			}
			var got map[string]any
			if want != nil {
				got, _ = want.Object["status"].(map[string]any)
				if before, _ := have.Object["status"].(map[string]any); !cmp.Equal(tc.said, before) {
					t.Errorf("the object that was read was changed: %v", before)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPodGroupThatIsGoneHasNoStatus(t *testing.T) {
	objects := groupPods("p", 3, running)
	_, want, err := PodGroupStatus(t.Context(), fakeClient(t, objects...), options(UnqueuedRun), types.NamespacedName{Namespace: "team", Name: "g"}, time.Unix(0, 0))
	if want != nil || err != nil {
		t.Errorf("it is %v (%v), want nothing to be written", want, err)
	}
}
