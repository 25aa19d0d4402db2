package scheduling

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	appslisters "k8s.io/client-go/listers/apps/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-gpu/muster/workload"
)

const (
	// eventSource is as whom the scheduler records events.
	eventSource = "muster-scheduler"
	// tellsAtOnce is of how many owners it is told at most in one look, and tellsBound for
	// how long a look writes: what else is done every second waits for it. The others
	// are told in the next.
	tellsAtOnce = 50
	tellsBound  = 5 * time.Second
)

// idlesTold tells those who have no Workload of Muster's what they do with their GPUs:
// pods that are charged to nobody, and jobs where Kueue decides. What was told is not
// written anywhere but in the events themselves: each has a name that follows from what
// it says, so another leader, or this one after a restart, does not make it again while
// it is there.
type idlesTold struct {
	// at is when it was looked last.
	at time.Time
	// said is what was told last, by the UIDs of owners.
	said map[types.UID]gpuState
}

// appOwners know for whom ReplicaSets and StatefulSets were made.
type appOwners struct {
	replicaSets  appslisters.ReplicaSetLister
	statefulSets appslisters.StatefulSetLister
}

// spender is somebody who holds GPUs, and of whom it is told when they idle.
type spender struct {
	use     gpuUse
	message string
	// on are the objects that carry the event.
	on []corev1.ObjectReference
}

// tellIdles tells whose GPUs have begun to idle or to stall, once for each time.
func (j *Jobs) tellIdles(ctx context.Context) {
	now := j.clock.Now()
	if now.Sub(j.idles.at) < usesEvery || j.gpuNodes.none() {
		return
	}
	j.idles.at = now
	ctx, cancel := context.WithTimeout(ctx, tellsBound)
	defer cancel()
	spenders := j.ledger.followedUses(now)
	j.addUncharged(ctx, spenders, now)
	said, tells := map[types.UID]gpuState{}, 0
	for uid, s := range spenders {
		before := j.idles.said[uid]
		said[uid] = s.use.state
		switch s.use.state {
		case gpusUnknown:
			// No news: what it was told still stands.
			said[uid] = before
		case before, gpusInUse:
		default:
			why := noteIdle
			if s.use.state == gpusStalled {
				why = noteStalled
			}
			if tells++; tells > tellsAtOnce || ctx.Err() != nil {
				said[uid] = before
				continue
			}
			if err := j.noteEach(ctx, why, s); err != nil {
				klog.FromContext(ctx).Error(err, "Telling that GPUs idle failed, it is tried again")
				said[uid] = before
			}
		}
	}
	j.idles.said = said
}

// eventObjects are what the events of a job are told on: its owner, or the first pods of
// a group, which has no other object that people look at.
func eventObjects(job *workload.Job) []corev1.ObjectReference {
	if len(job.Pods) == 0 {
		o := job.Owner
		return []corev1.ObjectReference{{APIVersion: o.GroupVersion().String(), Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID}}
	}
	var out []corev1.ObjectReference
	for _, pod := range job.Pods[:min(groupEvents, len(job.Pods))] {
		out = append(out, podReference(pod))
	}
	return out
}

func podReference(pod *corev1.Pod) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}

// addUncharged adds the topmost owners of pods that are charged to nobody. Of an owner
// whose other pods are charged it is told with these.
func (j *Jobs) addUncharged(ctx context.Context, to map[types.UID]*spender, now time.Time) {
	pods, err := j.pods.List(labels.Everything())
	if err != nil {
		// The lister reads memory.
		klog.FromContext(ctx).Error(err, "Listing pods")
		return
	}
	var holding []*corev1.Pod
	for _, pod := range pods {
		if pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil && workload.AsksGPU(pod) && !podutil.IsPodTerminal(pod) {
			holding = append(holding, pod)
		}
	}
	surveys := map[types.UID]*survey{}
	for pod := range j.ledger.uncharged(holding) {
		top := j.topmost(ctx, pod)
		s := surveys[top.UID]
		if s == nil {
			if to[top.UID] != nil {
				continue
			}
			s = &survey{nodes: j.gpuNodes, now: now}
			surveys[top.UID] = s
			to[top.UID] = &spender{on: []corev1.ObjectReference{top}}
		}
		s.ask(pod, int(workload.GPUs(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))))
	}
	for uid, s := range surveys {
		u := s.sum(int64(s.asked))
		to[uid].use, to[uid].message = u, u.inWords()
	}
}

// topmost is the object that a pod was made for, as far as the informers know: the
// Deployment of its ReplicaSet, the notebook of its StatefulSet, or the pod itself.
func (j *Jobs) topmost(ctx context.Context, pod *corev1.Pod) corev1.ObjectReference {
	top := podReference(pod)
	for controller := metav1.GetControllerOfNoCopy(pod); controller != nil; {
		top = corev1.ObjectReference{APIVersion: controller.APIVersion, Kind: controller.Kind, Namespace: pod.Namespace, Name: controller.Name, UID: controller.UID}
		owner := j.owned(ctx, top)
		if owner == nil || owner.GetUID() != top.UID {
			break
		}
		controller = metav1.GetControllerOfNoCopy(owner)
	}
	return top
}

// owned is an object that may itself have been made for another one; nil if its kind is
// not watched, or it is not known.
func (j *Jobs) owned(ctx context.Context, ref corev1.ObjectReference) metav1.Object {
	key := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	switch ref.GroupVersionKind().GroupKind().String() {
	case "ReplicaSet.apps":
		if o, err := j.apps.replicaSets.ReplicaSets(key.Namespace).Get(key.Name); err == nil {
			return o
		}
	case "StatefulSet.apps":
		if o, err := j.apps.statefulSets.StatefulSets(key.Namespace).Get(key.Name); err == nil {
			return o
		}
	case "Job.batch":
		return j.read(ctx, key, &batchv1.Job{})
	case "JobSet.jobset.x-k8s.io":
		return j.read(ctx, key, &jobset.JobSet{})
	}
	return nil
}

// read is an object of a kind that is watched; nil if it is not known.
func (j *Jobs) read(ctx context.Context, key types.NamespacedName, into client.Object) metav1.Object {
	if err := j.reader.Get(ctx, key, into); err != nil {
		return nil
	}
	return into
}

// noteEach records on the objects of a spender why it is told of.
func (j *Jobs) noteEach(ctx context.Context, why string, s *spender) error {
	for _, on := range s.on {
		if err := j.noteOnce(ctx, on, why, s.message, s.use.since); err != nil {
			return err
		}
	}
	return nil
}

// noteOnce records a warning on an object about what is so since a time, unless that was
// recorded before.
func (j *Jobs) noteOnce(ctx context.Context, on corev1.ObjectReference, why, message string, since time.Time) error {
	hash := fnv.New64a()
	// A hash does not fail.
	_, _ = fmt.Fprintf(hash, "%s %s %d", on.UID, why, since.Unix())
	now := metav1.NewTime(j.clock.Now())
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: on.Namespace, Name: fmt.Sprintf("%.200s.%016x", on.Name, hash.Sum64())},
		InvolvedObject: on, Reason: why, Message: clip(message), Type: corev1.EventTypeWarning,
		Source:         corev1.EventSource{Component: eventSource},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	err := j.client.Create(ctx, event)
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		return nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err):
		// Nobody will read it.
		return nil
	default:
		return fmt.Errorf("recording %s on %s %s/%s: %w", why, on.Kind, on.Namespace, on.Name, err)
	}
}
