package scheduling

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-gpu/muster/workload"
)

// A group waits to be read for groupSoon, and for groupLate where its pods only
// go where they are expected.
const (
	groupSoon = 50 * time.Millisecond
	groupLate = time.Second
)

// PluginName is the name under which the gang plugin waits and allows.
const PluginName = "Coscheduling"

// settle is a question: how did the pod that filled a slot of owner end?
type settle struct {
	owner types.UID
	pod   types.NamespacedName
	uid   types.UID
}

// note is an event to be recorded on a job's owner.
type note struct {
	job          *workload.Job
	why, message string
}

// asyncEffects carries out the Ledger's wishes on goroutines of its own, so
// that the Ledger never calls into the scheduling queue.
type asyncEffects struct {
	mu    sync.Mutex
	ready chan struct{}
	wake  map[types.UID]*corev1.Pod
	back  map[types.UID]string
	gone  map[types.UID]*corev1.Pod
	notes []note
	// leads: this process may tell the API something.
	leads atomic.Bool

	// admit, write and tell are set before the Ledger is used.
	write   func(types.UID)
	tell    func(job *workload.Job, why, message string)
	admit   func()
	reports chan struct{}
	// jobs are to be read; what is to be done for holders comes first.
	jobs    workqueue.TypedRateLimitingInterface[JobKey]
	holders holders
	settles workqueue.TypedRateLimitingInterface[settle]
	// first are the owners that are to be read before anything is admitted.
	first *firstReads
}

func newEffects() *asyncEffects {
	a := &asyncEffects{
		ready: make(chan struct{}, 1), reports: make(chan struct{}, 1),
		wake: map[types.UID]*corev1.Pod{}, back: map[types.UID]string{}, gone: map[types.UID]*corev1.Pod{},
		admit:   func() {},
		write:   func(types.UID) {},
		tell:    func(*workload.Job, string, string) {},
		settles: newQueue[settle](),
		holders: holders{jobs: map[types.UID]struct{}{}},
		first:   newFirstReads(),
	}
	a.jobs = newQueueOver(newByUrgency(a.holders.has))
	return a
}

func (a *asyncEffects) Activate(pods []*corev1.Pod) {
	a.mu.Lock()
	for _, p := range pods {
		a.wake[p.UID] = p
	}
	a.mu.Unlock()
	signal(a.ready)
}

func (a *asyncEffects) Return(pods []types.UID, message string) {
	a.mu.Lock()
	for _, uid := range pods {
		a.back[uid] = message
	}
	a.mu.Unlock()
	signal(a.ready)
}

func (a *asyncEffects) Admit()                { a.admit() }
func (a *asyncEffects) Report()               { signal(a.reports) }
func (a *asyncEffects) Write(owner types.UID) { a.write(owner) }

func (a *asyncEffects) Holds(owner types.UID, holds bool) { a.holders.set(owner, holds) }

func (a *asyncEffects) Note(job *workload.Job, why, message string) {
	a.mu.Lock()
	a.notes = append(a.notes, note{job, why, message})
	a.mu.Unlock()
	signal(a.ready)
}

// Sync has a job read. The pods of a group are listed from the API, so what
// happens to them at about the same time is read at once.
func (a *asyncEffects) Sync(key JobKey) { a.syncIn(key, groupSoon) }

func (a *asyncEffects) SyncLate(key JobKey) { a.syncIn(key, groupLate) }

func (a *asyncEffects) syncIn(key JobKey, group time.Duration) {
	a.first.told(key)
	if key.Kind == workload.PodGroupGVK.Kind || key.Kind == workload.ReplicaGVK.Kind {
		a.jobs.AddAfter(key, group)
		return
	}
	a.jobs.Add(key)
}

func (a *asyncEffects) Settle(owner types.UID, pod *corev1.Pod) {
	a.mu.Lock()
	a.gone[pod.UID] = pod
	a.mu.Unlock()
	a.settles.Add(settle{owner: owner, pod: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, uid: pod.UID})
}

// run hands pods to the scheduler until ctx is done.
func (a *asyncEffects) run(ctx context.Context, handle fwk.Handle) {
	logger := klog.FromContext(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.ready:
		}
		a.mu.Lock()
		wake, back, notes := a.wake, a.back, a.notes
		a.wake, a.back, a.notes = map[types.UID]*corev1.Pod{}, map[types.UID]string{}, nil
		a.mu.Unlock()
		for uid, message := range back {
			if w := handle.GetWaitingPod(uid); w != nil {
				w.Reject(PluginName, message)
			}
		}
		if len(wake) > 0 {
			pods := make(map[string]*corev1.Pod, len(wake))
			for _, p := range wake {
				pods[p.Namespace+"/"+p.Name] = p
			}
			handle.Activate(logger, pods)
		}
		if a.leads.Load() {
			for _, n := range notes {
				a.tell(n.job, n.why, n.message)
			}
		}
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
