package scheduling

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/workload"
)

// groupIndex indexes the scheduler's pods by groupKeys.
const groupIndex = "muster-group"

// groupKeys are by what the pods of a group are looked for: the UID of the group
// that the pod is a member of, and the name of the PodGroup of scheduling.x-k8s.io
// on its label, which the pod of another job may have too.
func groupKeys(pod *corev1.Pod) []string {
	var keys []string
	if owner, ok := workload.PodJob(pod); ok && owner.UID != pod.UID {
		keys = append(keys, string(owner.UID))
	}
	if name := pod.Labels[workload.PodGroupLabel]; name != "" {
		keys = append(keys, labelledKey(pod.Namespace, name))
	}
	return keys
}

// labelledKey is the key of the pods of a namespace whose label names a PodGroup.
func labelledKey(namespace, name string) string {
	return workload.PodGroupLabel + "=" + namespace + "/" + name
}

// groupPods are the pods of groups that the scheduler's informer has. It has none
// that have ended, and does not tell an end from a deletion. So the API is asked once
// for all pods that have ended, and the informer's are all of a group which has none
// of these, until one of its own goes. From then on the API is asked for the pods of
// the group, until it has answered that none has ended.
type groupPods struct {
	// informed has the pods as new as any listener has heard of, synced says that the
	// listener below has heard of all that there were at first.
	informed toolscache.Indexer
	synced   func() bool

	mu sync.Mutex
	// groups have at least one pod of which the listener has heard.
	groups map[string]*groupKnown
	// ended are the groups of which a pod has gone that the listener knew; complete says
	// that those are among them too of which pods had ended before.
	ended    endedGroups
	complete bool
}

// groupKnown is what is known of one group.
type groupKnown struct {
	// heard are the pods that have come and not gone, as the listener has heard.
	heard map[types.UID]struct{}
	// gone counts those that have gone.
	gone int
	// whole: no pod of the group has ended.
	whole bool
}

// watchGroupPods begins to listen to the informer.
func watchGroupPods(informer toolscache.SharedIndexInformer) (*groupPods, error) {
	err := informer.AddIndexers(toolscache.Indexers{groupIndex: func(o any) ([]string, error) {
		if pod, ok := o.(*corev1.Pod); ok {
			return groupKeys(pod), nil
		}
		return nil, nil
	}})
	if err != nil {
		return nil, fmt.Errorf("indexing pods by their groups: %w", err)
	}
	g := &groupPods{informed: informer.GetIndexer(), groups: map[string]*groupKnown{}, ended: newEndedGroups()}
	told, err := informer.AddEventHandler(handler(g.saw, g.lost))
	if err != nil {
		return nil, fmt.Errorf("watching the pods of groups: %w", err)
	}
	g.synced = told.HasSynced
	return g, nil
}

// saw takes in that a pod has come, or was changed from old.
func (g *groupPods) saw(old, pod *corev1.Pod) {
	keys := groupKeys(pod)
	switch {
	case old == nil:
	case old.UID != pod.UID:
		// One of its name was there, and nobody told of its end.
		g.lost(old)
	default:
		before := groupKeys(old)
		if slices.Equal(before, keys) {
			return
		}
		// It has left those groups, and has not ended.
		g.leave(pod.UID, before, false)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, key := range keys {
		k := g.groups[key]
		if k == nil {
			k = &groupKnown{heard: map[types.UID]struct{}{}, whole: g.complete && !g.ended.has(key)}
			g.groups[key] = k
		}
		k.heard[pod.UID] = struct{}{}
	}
}

// lost takes in that a pod has ended or was deleted.
func (g *groupPods) lost(pod *corev1.Pod) { g.leave(pod.UID, groupKeys(pod), true) }

func (g *groupPods) leave(pod types.UID, keys []string, perhapsEnded bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, key := range keys {
		if perhapsEnded {
			g.ended.add(key)
		}
		k := g.groups[key]
		if k == nil {
			continue
		}
		delete(k.heard, pod)
		if perhapsEnded {
			k.gone++
			k.whole = false
		}
		if len(k.heard) == 0 {
			delete(g.groups, key)
		}
	}
}

// all are the pods of a group, where it is known that none has ended: as new as
// anybody has heard.
func (g *groupPods) all(key string) ([]*corev1.Pod, bool) {
	if g == nil {
		return nil, false
	}
	objects, err := g.informed.ByIndex(groupIndex, key)
	if err != nil {
		return nil, false
	}
	pods := make([]*corev1.Pod, 0, len(objects))
	there := make(map[types.UID]struct{}, len(objects))
	for _, o := range objects {
		if pod, ok := o.(*corev1.Pod); ok {
			pods, there[pod.UID] = append(pods, pod), struct{}{}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	k := g.groups[key]
	if k == nil || !k.whole {
		return nil, false
	}
	for uid := range k.heard {
		if _, still := there[uid]; !still {
			// It has gone, and that is about to be heard.
			return nil, false
		}
	}
	return pods, true
}

// ask is called before the API is asked for pods, as new as the informer has them,
// among which are all those of the groups. It returns what to do with the answer.
func (g *groupPods) ask(keys []string) (answer func(ended bool)) {
	if g == nil || !g.synced() {
		return func(bool) {}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	asked := map[*groupKnown]int{}
	for _, key := range keys {
		if k := g.groups[key]; k != nil {
			asked[k] = k.gone
		}
	}
	return func(ended bool) {
		g.mu.Lock()
		defer g.mu.Unlock()
		for k, gone := range asked {
			if k.gone == gone {
				k.whole = !ended
			}
		}
	}
}

// keysAsked are the keys of the groups whose pods are asked for, the one that is
// wanted first; none for any other question.
func keysAsked(o *client.ListOptions) []string {
	var keys []string
	member, isMember := "", false
	if o.FieldSelector != nil {
		if member, isMember = o.FieldSelector.RequiresExactMatch(workload.MemberField); !isMember {
			return nil
		}
		keys = append(keys, member)
	}
	if o.LabelSelector == nil {
		return keys
	}
	name, named := o.LabelSelector.RequiresExactMatch(workload.PodGroupLabel)
	if all, _ := o.LabelSelector.Requirements(); !named || len(all) != 1 {
		return keys
	}
	keys = append(keys, labelledKey(o.Namespace, name))
	if !isMember {
		// Its members have the label too.
		group := workload.GroupOwner(workload.PodGroupGVK, types.NamespacedName{Namespace: o.Namespace, Name: name})
		keys = append(keys, string(group.UID))
	}
	return keys
}

// asSeen reads what groups are made of as new as it was heard of: pods from the API
// server's memory, at least as new as the informer has seen them, and PodGroups from
// the cache, which has the group read again when it hears more. For a list of the
// very newest etcd is asked, which takes long under load.
type asSeen struct {
	client.Reader
	// seen is the resource version up to which the informer has seen pods.
	seen func() string
	// cache has the kinds that api knows.
	cache client.Reader
	api   *apiKinds
}

// List implements client.Reader.
func (r asSeen) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, pods := list.(*corev1.PodList); pods {
		if version := r.seen(); version != "" {
			opts = append(opts, &client.ListOptions{Raw: &metav1.ListOptions{
				ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
			}})
		}
	}
	return r.Reader.List(ctx, list, opts...)
}

// Get implements client.Reader.
func (r asSeen) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	var gvk schema.GroupVersionKind
	switch o := obj.(type) {
	case *schedulingv1beta1.PodGroup:
		gvk = workload.NativePodGroupGVK
	case *unstructured.Unstructured:
		gvk = o.GroupVersionKind()
	}
	if gvk != workload.NativePodGroupGVK && gvk != workload.PodGroupGVK {
		return r.Reader.Get(ctx, key, obj, opts...)
	}
	if r.api != nil && r.api.lacks(gvk) {
		// The cache would say that the object is not there.
		return &apimeta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
	}
	return r.cache.Get(ctx, key, obj, opts...)
}
