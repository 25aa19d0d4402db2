package workload

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload/identity"
)

// The labels by which the pods of a LeaderWorkerSet know their place, and the
// names of the pod sets of each of its replicas.
const (
	lwsKeyLabel  = "leaderworkerset.sigs.k8s.io/group-key"
	lwsExclusive = "leaderworkerset.sigs.k8s.io/exclusive-topology"
)

// replicaKind is one replica of a LeaderWorkerSet: a leader and its workers, who
// start together. A LeaderWorkerSet cannot be suspended, so its pods exist
// before they are admitted, as far as it makes them; the gang is read from its
// templates. The place belongs to the replica: its pods may all be made anew.
type replicaKind struct{ Options }

var (
	_ Kind      = replicaKind{}
	_ Assembler = replicaKind{}
)

// Replica is one replica of a LeaderWorkerSet as it takes the place of an owner
// object: its name is the LeaderWorkerSet's with the number of the replica, its
// UID is made from that, its labels are the LeaderWorkerSet's.
type Replica struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	// Pods are the live ones and those that have ended, the oldest first.
	Pods []*corev1.Pod
	// Set is the LeaderWorkerSet, nil if it is gone.
	Set *unstructured.Unstructured
}

var _ client.Object = &Replica{}

// DeepCopyObject implements runtime.Object.
func (g *Replica) DeepCopyObject() runtime.Object {
	out := *g
	out.ObjectMeta = *g.ObjectMeta.DeepCopy()
	out.Pods = slices.Clone(g.Pods)
	return &out
}

func (replicaKind) GroupVersionKind() schema.GroupVersionKind { return ReplicaGVK }

func (replicaKind) New() client.Object { return &Replica{} }

// ReplicaOfSet says that a job's UID is that of a replica of the LeaderWorkerSet,
// and returns its owner.
func ReplicaOfSet(uid types.UID, set types.NamespacedName) (Owner, bool) {
	index, found := strings.CutPrefix(string(uid), string(identity.GroupUID(ReplicaGVK, set))+"-")
	if _, isIndex := identity.Ordinal(index); !found || !isIndex {
		return Owner{}, false
	}
	key := types.NamespacedName{Namespace: set.Namespace, Name: set.Name + "-" + index}
	return Owner{GroupVersionKind: ReplicaGVK, NamespacedName: key, UID: uid}, true
}

// Assemble implements Assembler: the replica as r has it now. It is there as
// long as it has pods, or its LeaderWorkerSet has so many replicas. r must know
// pods by MemberField, and LeaderWorkerSets as unstructured.
func (replicaKind) Assemble(ctx context.Context, r client.Reader, key types.NamespacedName) (client.Object, error) {
	gone := apierrors.NewNotFound(schema.GroupResource{Group: ReplicaGVK.Group, Resource: "leaderworkersets"}, key.Name)
	at := strings.LastIndex(key.Name, "-")
	if at < 0 {
		return nil, gone
	}
	name, number := key.Name[:at], key.Name[at+1:]
	index, ok := identity.Ordinal(number)
	if !ok {
		return nil, gone
	}
	g := &Replica{}
	g.Namespace, g.Name, g.UID = key.Namespace, key.Name, identity.GroupUID(ReplicaGVK, key)
	var list corev1.PodList
	labels := client.MatchingLabels{identity.LWSNameLabel: name, identity.LWSIndexLabel: number}
	if err := r.List(ctx, &list, client.InNamespace(key.Namespace), memberOf(ReplicaGVK, key), labels); err != nil {
		return nil, fmt.Errorf("listing the pods of replica %s: %w", key, err)
	}
	for i := range list.Items {
		if owner, _, ok := identity.ReplicaOf(&list.Items[i]); ok && owner.UID == g.UID {
			g.Pods = append(g.Pods, &list.Items[i])
		}
	}
	slices.SortFunc(g.Pods, olderFirst)
	set := &unstructured.Unstructured{}
	set.SetGroupVersionKind(ReplicaGVK)
	err := r.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: name}, set)
	switch {
	case apierrors.IsNotFound(err), apimeta.IsNoMatchError(err):
	case err != nil:
		return nil, fmt.Errorf("reading LeaderWorkerSet %s/%s: %w", key.Namespace, name, err)
	default:
		g.Set, g.Labels = set, set.GetLabels()
		g.CreationTimestamp, g.DeletionTimestamp = set.GetCreationTimestamp(), set.GetDeletionTimestamp()
	}
	if len(g.Pods) == 0 && (g.Set == nil || int64(index) >= replicasOf(g.Set)) {
		return nil, gone
	}
	if g.Set == nil {
		g.CreationTimestamp = g.Pods[0].CreationTimestamp
	}
	return g, nil
}

// replicasOf is how many replicas a LeaderWorkerSet has now: while it is
// updated, it may have more than its specification says.
func replicasOf(set *unstructured.Unstructured) int64 {
	replicas, found, _ := unstructured.NestedInt64(set.Object, "spec", "replicas")
	if !found {
		replicas = 1
	}
	has, _, _ := unstructured.NestedInt64(set.Object, "status", "replicas")
	updated, _, _ := unstructured.NestedInt64(set.Object, "status", "updatedReplicas")
	if updated < replicas {
		return max(replicas, has)
	}
	return replicas
}

// Read implements Kind. r must know LocalQueues.
func (k replicaKind) Read(ctx context.Context, r client.Reader, obj client.Object) (*Job, bool, *reason.Reason, error) {
	g, ok := obj.(*Replica)
	if !ok {
		return nil, false, nil, fmt.Errorf("a %T was given where a replica of a LeaderWorkerSet is read", obj)
	}
	sets, wrong := g.podSets()
	queue, no, err := k.queueOfReplica(ctx, r, g, sets)
	if err != nil || (queue == "" && no == nil) {
		return nil, false, nil, err
	}
	job := newJob(ReplicaGVK, g)
	job.Queue, job.Gated, job.Templated, job.PodOwnerUID = queue, true, true, g.UID
	job.Deleting = job.Deleting || g.Set == nil
	job.Suspended = true
	for _, pod := range g.Pods {
		over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if !over && (pod.DeletionTimestamp == nil || pod.Spec.NodeName != "") {
			job.Pods = append(job.Pods, pod)
			job.Suspended = job.Suspended && pod.Spec.NodeName == ""
		}
	}
	if g.Set != nil {
		job.WorkloadOwner = &metav1.OwnerReference{
			APIVersion: ReplicaGVK.GroupVersion().String(), Kind: ReplicaGVK.Kind, Name: g.Set.GetName(), UID: g.Set.GetUID(),
		}
	}
	job.PodSets = sets
	job.PodPriorityClass = podPriorityClass(sets)
	if no == nil {
		no = wrong
	}
	if no == nil {
		no = placedAlready(sets)
	}
	if no == nil {
		no = foreignScheduler(sets, k.SchedulerNames, "", "LeaderWorkerSet "+g.Name, "set schedulerName in its templates")
	}
	if job.over() {
		no = nil
	}
	return job, true, no, nil
}

// queueOfReplica is the queue that the pods name, else the LeaderWorkerSet, else
// the one for pods that name none.
func (k replicaKind) queueOfReplica(ctx context.Context, r client.Reader, g *Replica, sets []PodSet) (string, *reason.Reason, error) {
	pods := slices.Clone(g.Pods)
	for i := range sets {
		pods = append(pods, &corev1.Pod{ObjectMeta: sets[i].Template.ObjectMeta, Spec: *withLimits(&sets[i].Template.Spec)})
	}
	for _, pod := range pods {
		if queue := pod.Labels[QueueLabel]; queue != "" {
			return queue, nil, nil
		}
	}
	if queue := g.Labels[QueueLabel]; queue != "" {
		return queue, nil, nil
	}
	return k.queueOfPods(ctx, r, g.Namespace, pods...)
}

// withLimits is the spec of a template in which every limit is requested, as it
// is in pods.
func withLimits(spec *corev1.PodSpec) *corev1.PodSpec {
	out := *spec
	out.Containers, out.InitContainers = withRequests(spec.Containers, everyResource), withRequests(spec.InitContainers, everyResource)
	return &out
}

// podSets are the leader and the workers of the replica, by the templates of the
// LeaderWorkerSet. There are none once that is gone.
func (g *Replica) podSets() ([]PodSet, *reason.Reason) {
	if g.Set == nil {
		return nil, nil
	}
	o := object{g.Set}
	spec := o.within("spec", "leaderWorkerTemplate")
	worker, err := decodeTemplate(spec["workerTemplate"])
	leader := worker.DeepCopy()
	if err == nil && spec["leaderTemplate"] != nil {
		leader, err = decodeTemplate(spec["leaderTemplate"])
	}
	if err != nil {
		return nil, reason.New(reason.Misconfigured, "pod templates of the LeaderWorkerSet: %v", err)
	}
	size, found, _ := unstructured.NestedInt64(spec, "size")
	if !found {
		size = 1
	}
	const most = 1 << 20
	if size < 1 || size > most {
		return nil, reason.New(reason.Misconfigured, "the LeaderWorkerSet has replicas of %d pods", size)
	}
	exclusive := o.GetAnnotations()[lwsExclusive]
	var out []PodSet
	for i, t := range []*corev1.PodTemplateSpec{leader, worker} {
		set := PodSet{Name: []string{LeaderPodSet, WorkerPodSet}[i], Count: []int32{1, int32(size - 1)}[i], Template: *t}
		if set.Count == 0 {
			continue
		}
		set.Completions, set.PodsPerReplica = set.Count, set.Count
		if i == 1 && (o.str("spec", "startupPolicy") == "LeaderReady" || exclusive != "") {
			// They are made when the leader is ready, or is on its node.
			set.Phase = 1
		}
		if _, err := restore(&set.Template); err != nil {
			return nil, reason.New(reason.Misconfigured, "pod templates of the LeaderWorkerSet: %v", err)
		}
		var no *reason.Reason
		set.Topology, no = topologyOf("the LeaderWorkerSet's "+set.Name, t.Annotations, kueue.PodSetTopologyRequest{PodIndexLabel: new(identity.LWSWorkerLabel)})
		if no != nil {
			return nil, no
		}
		key := sha1.Sum([]byte(g.Namespace + "/" + g.Name))
		set.Stamp.Labels = map[string]string{
			identity.LWSNameLabel: g.Set.GetName(), identity.LWSIndexLabel: g.Name[strings.LastIndex(g.Name, "-")+1:], lwsKeyLabel: hex.EncodeToString(key[:]),
		}
		if exclusive != "" {
			set.Template.Spec.Affinity = aloneInDomain(t.Spec.Affinity, exclusive, set.Stamp.Labels[lwsKeyLabel])
		}
		out = append(out, set)
	}
	return out, nil
}

// aloneInDomain adds to a pod's affinity what keeps a replica together, and away
// from others, in a topology domain: what a leader has, whom the workers follow.
func aloneInDomain(own *corev1.Affinity, topologyKey, key string) *corev1.Affinity {
	term := func(requirements ...metav1.LabelSelectorRequirement) corev1.PodAffinityTerm {
		return corev1.PodAffinityTerm{LabelSelector: &metav1.LabelSelector{MatchExpressions: requirements}, TopologyKey: topologyKey}
	}
	return besideAndApart(own,
		term(metav1.LabelSelectorRequirement{Key: lwsKeyLabel, Operator: metav1.LabelSelectorOpIn, Values: []string{key}}),
		term(
			metav1.LabelSelectorRequirement{Key: lwsKeyLabel, Operator: metav1.LabelSelectorOpExists},
			metav1.LabelSelectorRequirement{Key: lwsKeyLabel, Operator: metav1.LabelSelectorOpNotIn, Values: []string{key}}))
}

// Suspend implements Kind: the pods on nodes are evicted, all together. The
// LeaderWorkerSet makes them anew, and they wait.
func (replicaKind) Suspend(ctx context.Context, c client.Client, obj client.Object) error {
	g, ok := obj.(*Replica)
	if !ok {
		return fmt.Errorf("a %T was given where a replica of a LeaderWorkerSet is evicted", obj)
	}
	return evictPods(ctx, c, g.Pods)
}

// Resume implements Kind.
func (replicaKind) Resume(ctx context.Context, c client.Client, obj client.Object, infos []PodSetInfo) error {
	g, ok := obj.(*Replica)
	if !ok {
		return fmt.Errorf("a %T was given where a replica of a LeaderWorkerSet is resumed", obj)
	}
	return tolerateAll(ctx, c, g.Pods, infos, func(pod *corev1.Pod) string {
		_, slot, _ := identity.ReplicaOf(pod)
		return slot.PodSet
	})
}
