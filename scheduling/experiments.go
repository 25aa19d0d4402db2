package scheduling

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// mostTrials bounds for how many trials at a time it is asked whether a queue
// can have them.
const mostTrials = 512

// noteExceedsQueue is the reason of the event about an Experiment that has more
// trials at a time than its queue can ever run.
const noteExceedsQueue = "ExceedsQueue"

// experiments remembers what was said of Experiments, so that it is said once.
type experiments struct {
	mu   sync.Mutex
	said map[types.UID]string
}

// news says that something else is to be said of an Experiment than before.
func (x *experiments) news(uid types.UID, message string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.said[uid] == message {
		return false
	}
	if x.said == nil {
		x.said = map[types.UID]string{}
	}
	if x.said[uid] = message; message == "" {
		delete(x.said, uid)
	}
	return message != ""
}

// experimentSeen warns of an Experiment that asks its queue for more than it can
// ever have, with everything that it may borrow. Its trials are jobs as others
// are; those that do not fit wait.
func (j *Jobs) experimentSeen(ctx context.Context, obj *unstructured.Unstructured) {
	if !j.effects.leads.Load() {
		return
	}
	e, err := workload.ReadExperiment(ctx, j.reader, j.kinds, obj)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("An Experiment cannot be read", "experiment", klog.KObj(obj), "err", err.Error())
		return
	}
	message := ""
	if e != nil {
		message = j.ledger.beyondReach(e)
	}
	if j.experiments.news(obj.GetUID(), message) {
		j.recorder.Event(&corev1.ObjectReference{
			APIVersion: workload.ExperimentGVK.GroupVersion().String(), Kind: workload.ExperimentGVK.Kind,
			Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(),
		}, corev1.EventTypeWarning, noteExceedsQueue, message)
	}
}

// beyondReach says what is wrong with the number of trials of an Experiment;
// empty if nothing is, or nothing can be said.
func (l *Ledger) beyondReach(e *workload.Experiment) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(e.Parallel, mostTrials)
	why := l.neverFits(e, n)
	if why == nil {
		return ""
	}
	// The most that fit, by halves: more trials never fit where fewer do not.
	most, least := int32(0), n
	for least-most > 1 {
		if middle := most + (least-most)/2; l.neverFits(e, middle) == nil {
			most = middle
		} else {
			least = middle
		}
	}
	var gpus, pods int64
	for i := range e.Trial.PodSets {
		ps := &e.Trial.PodSets[i]
		gpus += ps.GPUs()
		pods += int64(ps.Count)
	}
	remedy := fmt.Sprintf("at most %d run at a time, the others wait: set parallelTrialCount to %d", most, most)
	if most == 0 {
		remedy = "not even one can run"
	}
	return fmt.Sprintf("%d trials at a time of %s each are more than queue %s can ever have: %s (%s)",
		e.Parallel, amount(gpus, pods), e.Trial.Queue, remedy, why.Message)
}

// neverFits is why so many trials do not fit the queue together, even with no
// other job in it; nil if they do, or if it is for another reason.
func (l *Ledger) neverFits(e *workload.Experiment, trials int32) *reason.Reason {
	r := quota.Request{Queue: types.NamespacedName{Namespace: e.Namespace, Name: e.Trial.Queue}, NamespaceLabels: l.namespaces[e.Namespace]}
	for range trials {
		for i := range e.Trial.PodSets {
			ps := &e.Trial.PodSets[i]
			r.PodSets = append(r.PodSets, quota.PodSet{
				Name: ps.Name, Count: ps.Count, PerPod: quota.RequestsOf(ps.PerPod()), Shared: quota.RequestsOf(ps.Claimed.Shared), Template: ps.ChargedSpec(),
			})
		}
	}
	if _, no := l.quota.Assign(r); no != nil && no.Class == reason.ExceedsMaxQuota {
		return no
	}
	return nil
}
