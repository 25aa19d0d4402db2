package scheduling

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	schedulermetrics "k8s.io/kubernetes/pkg/scheduler/metrics"
	testclock "k8s.io/utils/clock/testing"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

const (
	namespace   = "team-a"
	gpuResource = corev1.ResourceName("nvidia.com/gpu")
)

// epoch0 is when every test begins.
var epoch0 = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// wishes records what the Ledger asked for.
type wishes struct {
	woken    map[types.UID]int
	returned map[types.UID]int
	admits   int
	synced   map[JobKey]int
	// late is how many of the readings that were asked for may be late.
	late int
	// settles are the pods whose end was asked for and not yet told.
	settles []settled
	reports int
	// notes are the events, "reason: message", by the name of the job.
	notes map[string][]string
	// writes are the jobs whose nodes are to be written, order the same one after
	// the other.
	writes map[types.UID]int
	order  []types.UID
	// holders are the jobs that hold capacity.
	holders map[types.UID]bool
}

type settled struct {
	owner types.UID
	pod   *corev1.Pod
}

func newWishes() *wishes {
	return &wishes{woken: map[types.UID]int{}, returned: map[types.UID]int{}, synced: map[JobKey]int{}, notes: map[string][]string{}, writes: map[types.UID]int{}, holders: map[types.UID]bool{}}
}

func (w *wishes) Activate(pods []*corev1.Pod) {
	for _, p := range pods {
		w.woken[p.UID]++
	}
}

func (w *wishes) Return(pods []types.UID, _ string) {
	for _, uid := range pods {
		w.returned[uid]++
	}
}

func (w *wishes) Admit()          { w.admits++ }
func (w *wishes) Sync(key JobKey) { w.synced[key]++ }
func (w *wishes) Report()         { w.reports++ }

func (w *wishes) SyncLate(key JobKey) {
	w.synced[key]++
	w.late++
}

func (w *wishes) Holds(owner types.UID, holds bool) {
	if holds {
		w.holders[owner] = true
	} else {
		delete(w.holders, owner)
	}
}

func (w *wishes) Write(owner types.UID) {
	w.writes[owner]++
	w.order = append(w.order, owner)
}

func (w *wishes) Note(job *workload.Job, why, message string) {
	w.notes[job.Owner.Name] = append(w.notes[job.Owner.Name], why+": "+message)
}

func (w *wishes) Settle(owner types.UID, pod *corev1.Pod) {
	w.settles = append(w.settles, settled{owner, pod})
}

// fataler is what both testing and rapid offer.
type fataler interface {
	Helper()
	Fatalf(string, ...any)
}

// scene is a Ledger over a real scheduler cache, with one queue "main" of
// quotaGPUs GPUs, and nobody else who acts.
type scene struct {
	*Ledger
	t      fataler
	wishes *wishes
	clock  *testclock.FakeClock
	// plain is the scheduler's cache itself, watched is what the scheduler uses.
	plain, watched internalcache.Cache
	logger         klog.Logger
	version        int
}

// newScene has nodes node-0, node-1, ... with the GPUs given.
func newScene(ctx context.Context, t fataler, quotaGPUs int64, nodeGPUs ...int64) *scene {
	t.Helper()
	// The cache reports its size in metrics that a scheduler registers.
	schedulermetrics.Register()
	s := &scene{
		t: t, wishes: newWishes(), clock: testclock.NewFakeClock(epoch0),
		plain: internalcache.New(ctx, nil, false, false), logger: klog.Logger{},
	}
	for i, gpus := range nodeGPUs {
		s.plain.AddNode(s.logger, node(fmt.Sprintf("node-%d", i), gpus))
	}
	s.fresh(quotaGPUs)
	return s
}

// fresh puts an empty Ledger in, as a restart does; the cache loses what the
// old one held.
func (s *scene) fresh(quotaGPUs int64) {
	s.wishes = newWishes()
	s.Ledger = NewLedger(s.logger, s.clock, s.wishes)
	s.watched = s.Attach(s.plain)
	s.UpdateQuota(func(t *quota.Tree) {
		t.SetFlavor(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
		t.SetClusterQueue(&kueue.ClusterQueue{
			ObjectMeta: metav1.ObjectMeta{Name: "cq"},
			Spec: kueue.ClusterQueueSpec{
				NamespaceSelector: &metav1.LabelSelector{},
				ResourceGroups: []kueue.ResourceGroup{{
					CoveredResources: []corev1.ResourceName{gpuResource},
					Flavors: []kueue.FlavorQuotas{{Name: "gpu", Resources: []kueue.ResourceQuota{
						{Name: gpuResource, NominalQuota: *resource.NewQuantity(quotaGPUs, resource.DecimalSI)},
					}}},
				}},
			},
		})
		t.SetLocalQueue(&kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "main"},
			Spec:       kueue.LocalQueueSpec{ClusterQueue: "cq"},
		})
	})
	s.Restored()
}

// workloadOfJob is the Workload of a job, newer than all before it.
func (s *scene) workloadOfJob(j *workload.Job, change ...func(*kueue.Workload)) *kueue.Workload {
	wl := workload.NewWorkload(j, 0, nil)
	wl.UID = types.UID(j.Owner.UID + "-workload")
	s.version++
	wl.ResourceVersion = fmt.Sprint(s.version)
	for _, c := range change {
		c(wl)
	}
	return wl
}

func (s *scene) entry(j *workload.Job) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jobs[j.Owner.UID]
}

func (s *scene) state(j *workload.Job) State {
	if e := s.entry(j); e != nil {
		return e.state
	}
	return Gone
}

func (s *scene) slot(j *workload.Job, podSet string, index int) *slot {
	return s.entry(j).set(podSet).slots[index]
}

// isHead says whether the next pass would try the job, or those before it that
// are like it.
func (s *scene) isHead(j *workload.Job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.jobs[j.Owner.UID].spot.bucket
	return b != nil && b.cure.wait == nothing
}

// pending reads a job in.
func (s *scene) pending(j *workload.Job) *workload.Job {
	s.t.Helper()
	s.read(j, s.workloadOfJob(j), nil)
	return j
}

// plan charges a pending job with the nodes given, set by set, as a pass does.
func (s *scene) plan(j *workload.Job, nodes ...[]string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.jobs[j.Owner.UID]
	a, no := s.quota.Assign(e.request(nil))
	if no != nil {
		s.t.Fatalf("no quota for %s: %s", e, no)
	}
	if err := s.charge(e, e.version, a, nodes, prototypes(e, a, s.quota)); err != nil {
		s.t.Fatalf("charging: %v", err)
	}
}

// admitted reads a job in, plans it and has it written; it runs then.
func (s *scene) admitted(j *workload.Job, nodes ...[]string) *workload.Job {
	s.t.Helper()
	s.pending(j)
	s.plan(j, nodes...)
	wl := s.workloadOfJob(j, isTrue(kueue.WorkloadAdmitted), s.admissionWritten(j))
	if !s.written(j.Owner.UID, 0, wl, wrote, nil) {
		s.t.Fatalf("%s is not admitted", j.Owner.Name)
	}
	s.read(running(j), wl, nil)
	return running(j)
}

// admissionWritten puts the admission into a Workload that is on its way.
func (s *scene) admissionWritten(j *workload.Job) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		a, ok := s.admissionOf(j.Owner.UID)
		if !ok {
			s.t.Fatalf("no admission to write for %s", j.Owner.Name)
		}
		wl.Status.Admission = admissionStatus(a)
	}
}

// take and bind are what the scheduler does with a pod that may enter.
func (s *scene) take(p *corev1.Pod) {
	s.t.Helper()
	if ok, why := s.MayEnter(p); !ok {
		s.t.Fatalf("pod %s may not enter: %s", p.Name, why)
	}
	s.Take(p)
}

// assume puts a taken pod on its planned node, as the scheduler's Reserve.
func (s *scene) assume(p *corev1.Pod) *corev1.Pod {
	s.t.Helper()
	name, managed := s.NodeFor(p)
	if !managed || name == "" {
		s.t.Fatalf("pod %s has no node", p.Name)
	}
	bound := onNode(p, name)
	if err := s.watched.AssumePod(s.logger, bound); err != nil {
		s.t.Fatalf("assuming: %v", err)
	}
	return bound
}

// bindAll takes all pods of a start group to their nodes.
func (s *scene) bindAll(pods ...*corev1.Pod) []*corev1.Pod {
	s.t.Helper()
	for _, p := range pods {
		s.Seen(p)
	}
	out := make([]*corev1.Pod, len(pods))
	for i, p := range pods {
		s.take(p)
		out[i] = s.assume(p)
		s.Reserve(p)
	}
	for _, p := range out {
		s.confirm(p)
	}
	return out
}

// confirm is the news that a pod is bound, to the cache and to the Ledger.
func (s *scene) confirm(bound *corev1.Pod) {
	s.t.Helper()
	if err := s.watched.AddPod(s.logger, bound); err != nil {
		s.t.Fatalf("adding pod %s: %v", bound.Name, err)
	}
	s.Seen(bound)
}

// gone is the news that a bound pod has left its node.
func (s *scene) gone(bound *corev1.Pod) {
	s.t.Helper()
	if err := s.watched.RemovePod(s.logger, bound); err != nil {
		s.t.Fatalf("removing pod %s: %v", bound.Name, err)
	}
	s.Deleted(bound)
}

// settle answers what the Ledger asked about pods that left.
func (s *scene) settle(succeeded bool) {
	for len(s.wishes.settles) > 0 {
		q := s.wishes.settles[0]
		s.wishes.settles = s.wishes.settles[1:]
		s.Settled(q.owner, q.pod, succeeded)
	}
}

// stop evicts an admitted job.
func (s *scene) stop(j *workload.Job, why eviction) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evict(s.jobs[j.Owner.UID], why)
}

// expire gives up, as the ticker does, the jobs that have not started in time.
func (s *scene) expire(start time.Duration) { s.giveUpLate(Timing{StartTimeout: start}) }

func (s *scene) giveUpLate(t Timing) {
	for _, late := range s.tick(t) {
		s.giveUp(late.job.Owner.UID, t, "")
	}
}

// used are the GPUs charged to the queue.
func (s *scene) used() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.quota.Used("cq")[quota.FlavorResource{Flavor: "gpu", Resource: gpuResource}]
}

// taken are the GPUs that the cache counts on a node.
func (s *scene) taken(name string) int64 {
	info := s.plain.Dump().Nodes[name]
	if info == nil {
		return 0
	}
	return info.Requested.ScalarResources[gpuResource]
}

func testScene(t *testing.T, quotaGPUs int64, nodeGPUs ...int64) *scene {
	t.Helper()
	return newScene(t.Context(), t, quotaGPUs, nodeGPUs...)
}
