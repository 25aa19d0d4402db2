package scheduling

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	corelisters "k8s.io/client-go/listers/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/muster-gpu/muster/workload"
)

// groupWorld is the pods of some groups as the API has them, as an informer of those
// that have not ended has them, and what its listener has not heard yet.
type groupWorld struct {
	api      map[types.UID]*corev1.Pod
	informed toolscache.Indexer
	unheard  []func()
	known    *groupPods
	created  int
	// lists counts the lists of the API, and during happens in the midst of the next.
	lists  int
	during func()
}

func newGroupWorld() *groupWorld {
	w := &groupWorld{api: map[types.UID]*corev1.Pod{}}
	w.informed = toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{
		toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc,
		groupIndex:                func(o any) ([]string, error) { return groupKeys(o.(*corev1.Pod)), nil },
	})
	w.known = &groupPods{informed: w.informed, synced: func() bool { return true }, groups: map[string]*groupKnown{}, ended: newEndedGroups()}
	return w
}

// create has a pod of a group come.
func (w *groupWorld) create(group string, label func(*corev1.Pod, string)) *corev1.Pod {
	w.created++
	name := fmt.Sprintf("pod-%d", w.created)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{workload.QueueLabel: "main"}}}
	label(pod, group)
	w.api[pod.UID] = pod
	_ = w.informed.Add(pod)
	w.unheard = append(w.unheard, func() { w.known.saw(nil, pod) })
	return pod
}

// relabel gives a pod that lives another group.
func (w *groupWorld) relabel(uid types.UID, group string, label func(*corev1.Pod, string)) {
	old := w.api[uid]
	pod := old.DeepCopy()
	label(pod, group)
	w.api[uid] = pod
	_ = w.informed.Update(pod)
	w.unheard = append(w.unheard, func() { w.known.saw(old, pod) })
}

// end has a pod end, or be deleted.
func (w *groupWorld) end(uid types.UID, phase corev1.PodPhase) {
	old := w.api[uid]
	delete(w.api, uid)
	if phase != "" {
		pod := old.DeepCopy()
		pod.Status.Phase = phase
		w.api[uid] = pod
	}
	if _, lived, _ := w.informed.Get(old); lived {
		_ = w.informed.Delete(old)
		w.unheard = append(w.unheard, func() { w.known.lost(old) })
	}
}

// hear has the listener hear of what has happened.
func (w *groupWorld) hear(n int) {
	n = min(n, len(w.unheard))
	for _, tell := range w.unheard[:n] {
		tell()
	}
	w.unheard = w.unheard[n:]
}

// List is that of the API, and knows the selections that are sent to it.
func (w *groupWorld) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	w.lists++
	pods := list.(*corev1.PodList)
	for _, pod := range w.api {
		if o.FieldSelector != nil && !o.FieldSelector.Matches(fields.Set{"status.phase": string(pod.Status.Phase)}) {
			continue
		}
		if o.LabelSelector == nil || o.LabelSelector.Matches(labels.Set(pod.Labels)) {
			pods.Items = append(pods.Items, *pod)
		}
	}
	if w.during != nil {
		w.during()
	}
	return nil
}

func (w *groupWorld) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return apierrors.NewNotFound(corev1.Resource("pods"), "")
}

// byLabel and byField have a pod name a group, or none.
func byLabel(pod *corev1.Pod, group string) {
	delete(pod.Labels, workload.PodGroupLabel)
	if group != "" {
		pod.Labels[workload.PodGroupLabel] = group
	}
}

func byField(pod *corev1.Pod, group string) {
	pod.Spec.SchedulingGroup = nil
	if group != "" {
		pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group}
	}
}

// groupQuestion is a way in which the pods of a group are asked for.
type groupQuestion struct {
	name string
	// label has a pod belong to a group that is asked for so.
	label func(pod *corev1.Pod, group string)
	ask   func(group types.NamespacedName) []client.ListOption
	// noFailed: pods that have failed are not asked for.
	noFailed bool
}

var groupQuestions = []groupQuestion{
	{"those with the label", byLabel, func(group types.NamespacedName) []client.ListOption {
		return []client.ListOption{client.MatchingLabels{workload.PodGroupLabel: group.Name}}
	}, false},
	{"members with the label", byLabel, func(group types.NamespacedName) []client.ListOption {
		member := client.MatchingFields{workload.MemberField: string(workload.GroupOwner(workload.PodGroupGVK, group).UID)}
		return []client.ListOption{member, client.MatchingLabels{workload.PodGroupLabel: group.Name}}
	}, false},
	{"members without a label", byField, func(group types.NamespacedName) []client.ListOption {
		member := client.MatchingFields{workload.MemberField: string(workload.GroupOwner(workload.NativePodGroupGVK, group).UID)}
		return []client.ListOption{member, client.MatchingLabels(nil)}
	}, true},
}

// read lists the pods of a group as it is read.
func (w *groupWorld) read(q groupQuestion, group string) []types.UID {
	r := memberReader{w, corelisters.NewPodLister(w.informed), w.known}
	var list corev1.PodList
	opts := append(q.ask(types.NamespacedName{Namespace: "team", Name: group}), client.InNamespace("team"))
	if err := r.List(context.Background(), &list, opts...); err != nil {
		panic(err)
	}
	var out []types.UID
	for i := range list.Items {
		out = append(out, list.Items[i].UID)
	}
	slices.Sort(out)
	return out
}

// TestAGroupNoneOfWhosePodsHasEndedIsReadWithoutTheAPI once the API has said so, until
// one of them goes.
func TestAGroupNoneOfWhosePodsHasEndedIsReadWithoutTheAPI(t *testing.T) {
	for _, q := range groupQuestions {
		t.Run(q.name, func(t *testing.T) {
			w := newGroupWorld()
			read := func(what string, wantLists int, want ...*corev1.Pod) {
				t.Helper()
				before := w.lists
				got := w.read(q, "a")
				var uids []types.UID
				for _, pod := range want {
					uids = append(uids, pod.UID)
				}
				if diff := cmp.Diff(uids, got); diff != "" {
					t.Errorf("%s: its pods (-want +got):\n%s", what, diff)
				}
				if n := w.lists - before; n != wantLists {
					t.Errorf("%s: %d lists, want %d", what, n, wantLists)
				}
			}
			read("a group that nobody knows", 1)
			a, b := w.create("a", q.label), w.create("a", q.label)
			w.create("b", q.label)
			w.hear(3)
			read("at first", 1, a, b)
			read("again", 0, a, b)
			c := w.create("a", q.label)
			read("one comes, and nobody has heard", 0, a, b, c)
			w.hear(1)
			w.relabel(c.UID, "b", q.label)
			w.hear(1)
			read("one leaves for another group", 0, a, b)
			w.end(a.UID, corev1.PodSucceeded)
			read("one ends, and nobody has heard", 1, a, b)
			w.hear(1)
			read("that was heard", 1, a, b)
			read("as long as it is there", 1, a, b)
			w.end(a.UID, "")
			read("it is deleted", 1, b)
			read("then none has ended", 0, b)
			w.during = func() { w.end(b.UID, corev1.PodSucceeded); w.hear(1); w.during = nil }
			w.known.groups[w.key(q)].whole = false
			w.create("a", q.label)
			w.hear(1)
			w.read(q, "a")
			before := w.lists
			if w.read(q, "a"); w.lists == before {
				t.Error("one that ended while the API was asked is not asked for")
			}
		})
	}
}

// endedBefore has a pod of a group be there that had ended before anybody listened.
func (w *groupWorld) endedBefore(group string, label func(*corev1.Pod, string)) *corev1.Pod {
	pod := w.create(group, label)
	_ = w.informed.Delete(pod)
	w.unheard = w.unheard[:len(w.unheard)-1]
	pod.Status.Phase = corev1.PodSucceeded
	return pod
}

// TestNoGroupIsAskedForWhenItIsKnownWhichPodsHaveEnded but those that these are of.
func TestNoGroupIsAskedForWhenItIsKnownWhichPodsHaveEnded(t *testing.T) {
	for _, q := range groupQuestions {
		t.Run(q.name, func(t *testing.T) {
			w := newGroupWorld()
			over, live := w.endedBefore("a", q.label), w.create("a", q.label)
			b := w.create("b", q.label)
			w.hear(2)
			if err := w.known.readEnded(t.Context(), w); err != nil {
				t.Fatal(err)
			}
			c := w.create("c", q.label)
			w.hear(1)
			read := func(what, group string, wantLists int, want ...*corev1.Pod) {
				t.Helper()
				before := w.lists
				got := w.read(q, group)
				var uids []types.UID
				for _, pod := range want {
					uids = append(uids, pod.UID)
				}
				if diff := cmp.Diff(uids, got); diff != "" {
					t.Errorf("%s: its pods (-want +got):\n%s", what, diff)
				}
				if n := w.lists - before; n != wantLists {
					t.Errorf("%s: %d lists, want %d", what, n, wantLists)
				}
			}
			read("one of which a pod had ended", "a", 1, over, live)
			read("one that was there before", "b", 0, b)
			read("one that has come since", "c", 0, c)
			w.end(c.UID, corev1.PodSucceeded)
			w.hear(1)
			d := w.create("c", q.label)
			w.hear(1)
			read("one that has lost its only pod, and has another", "c", 1, c, d)
		})
	}
}

// key is that of the group a as it is asked for.
func (w *groupWorld) key(q groupQuestion) string {
	o := client.ListOptions{Namespace: "team"}
	o.ApplyOptions(q.ask(types.NamespacedName{Namespace: "team", Name: "a"}))
	return keysAsked(&o)[0]
}

// TestNoPodOfAGroupIsMissed that the informer has seen and that is still there,
// whether it lives or has ended, and however late it is heard of.
func TestNoPodOfAGroupIsMissed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newGroupWorld()
		q := rapid.SampledFrom(groupQuestions).Draw(t, "question")
		group := rapid.SampledFrom([]string{"a", "b"})
		groupOf := map[types.UID]string{}
		pod := func() (types.UID, bool) {
			if len(w.api) == 0 {
				return "", false
			}
			return rapid.SampledFrom(slices.Sorted(maps.Keys(w.api))).Draw(t, "pod"), true
		}
		lives := func(uid types.UID) bool { return w.api[uid].Status.Phase == "" }
		ends := func() {
			phases := []corev1.PodPhase{corev1.PodSucceeded, ""}
			if !q.noFailed {
				phases = append(phases, corev1.PodFailed)
			}
			if uid, ok := pod(); ok {
				phase := rapid.SampledFrom(phases).Draw(t, "end")
				if lives(uid) || phase == "" {
					w.end(uid, phase)
				}
			}
		}
		for range rapid.IntRange(0, 2).Draw(t, "ended before") {
			of := group.Draw(t, "of")
			groupOf[w.endedBefore(of, q.label).UID] = of
		}
		t.Repeat(map[string]func(*rapid.T){
			"learn which pods have ended": func(*rapid.T) { _ = w.known.readEnded(context.Background(), w) },
			"create": func(*rapid.T) {
				of := group.Draw(t, "of")
				groupOf[w.create(of, q.label).UID] = of
				// A pod ends long after it was heard that it has come.
				w.hear(len(w.unheard))
			},
			"end": func(*rapid.T) { ends() },
			"relabel": func(*rapid.T) {
				if uid, ok := pod(); ok && lives(uid) {
					to := group.Draw(t, "to")
					w.relabel(uid, to, q.label)
					groupOf[uid] = to
					w.hear(len(w.unheard))
				}
			},
			"hear": func(*rapid.T) { w.hear(1) },
			"end while the API is asked": func(*rapid.T) {
				heard := rapid.Bool().Draw(t, "heard")
				w.during = func() {
					w.during = nil
					ends()
					if heard {
						w.hear(len(w.unheard))
					}
				}
			},
			"read": func(*rapid.T) {
				of := group.Draw(t, "group")
				there := map[types.UID]bool{}
				for uid := range w.api {
					there[uid] = groupOf[uid] == of
				}
				got := w.read(q, of)
				for uid, want := range there {
					if _, still := w.api[uid]; still && want && !slices.Contains(got, uid) {
						t.Errorf("pod %s of group %s is not among %v", uid, of, got)
					}
				}
			},
		})
	})
}

// TestPodGroupsAreReadFromTheCache as long as the API has the kind: of one that is not
// served it is not said that the object does not exist.
func TestPodGroupsAreReadFromTheCache(t *testing.T) {
	cached := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(
		&schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "g"}},
	).Build()
	key := types.NamespacedName{Namespace: "team", Name: "g"}
	api := newAPIKinds(nil, clock.RealClock{})
	r := asSeen{Reader: newGroupWorld(), cache: cached, api: api}
	if err := r.Get(t.Context(), key, &schedulingv1beta1.PodGroup{}); err != nil {
		t.Errorf("one that is served and there: %v", err)
	}
	api.lost(workload.NativePodGroupGVK)
	if err := r.Get(t.Context(), key, &schedulingv1beta1.PodGroup{}); !apimeta.IsNoMatchError(err) {
		t.Errorf("one that is not served: %v", err)
	}
	api.lost(workload.PodGroupGVK)
	group := &unstructured.Unstructured{}
	group.SetGroupVersionKind(workload.PodGroupGVK)
	if err := r.Get(t.Context(), key, group); !apimeta.IsNoMatchError(err) {
		t.Errorf("one of scheduling.x-k8s.io that is not served: %v", err)
	}
	if err := r.Get(t.Context(), key, &corev1.Pod{}); !apierrors.IsNotFound(err) {
		t.Errorf("what is no PodGroup is asked of the API: %v", err)
	}
}
