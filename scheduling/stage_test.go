package scheduling

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/profile"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/placement"
	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// stage is a scene with a real scheduler of the default profile, which never
// runs by itself, and the Cycle in it.
type stage struct {
	*scene
	ctx   context.Context
	cycle *Cycle
	// order is the jobs that naivePass admitted, first to last.
	order []string
	names map[types.UID]string
	// kept are the jobs for which naivePass withholds, by ClusterQueue.
	kept map[string]types.UID
}

func newStage(ctx context.Context, t fataler) *stage {
	t.Helper()
	fake := testclock.NewFakeClock(epoch0)
	s := newStageOn(ctx, t, fake, nil)
	s.clock = fake
	return s
}

// newStageOn has another clock, and pods that pop gives to the scheduler, where
// it is not nil.
func newStageOn(ctx context.Context, t fataler, c clock.PassiveClock, pop func(klog.Logger) (framework.QueuedEntityInfo, error)) *stage {
	t.Helper()
	ctx = klog.NewContext(ctx, klog.Logger{})
	client := fake.NewClientset()
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	sched, err := scheduler.New(ctx, client, informers.NewSharedInformerFactory(client, 0), nil, profile.NewRecorderFactory(broadcaster))
	if err != nil {
		t.Fatalf("building the scheduler: %v", err)
	}
	s := &stage{
		scene: &scene{t: t, wishes: newWishes(), plain: sched.Cache, logger: klog.Logger{}},
		ctx:   ctx, names: map[types.UID]string{}, kept: map[string]types.UID{},
	}
	if pop != nil {
		sched.NextEntity = pop
	}
	s.Ledger = NewLedger(s.logger, c, s.wishes)
	s.cycle = NewCycle(s.Ledger, placement.NewPlanner(gpu.Is), 20*time.Millisecond)
	s.cycle.Install(ctx, sched, func(context.Context) {})
	s.watched = sched.Cache
	return s
}

// queue makes a ClusterQueue of the flavors given and a LocalQueue of its name;
// the nodes of a flavor are labelled with its name.
func (s *stage) queue(name string, stopped bool, flavors []string, gpus ...int64) {
	s.set(clusterQueue(name, flavors, gpus...), stopped)
}

// clusterQueue has a quota of GPUs in each of the flavors given.
func clusterQueue(name string, flavors []string, gpus ...int64) *kueue.ClusterQueue {
	cq := &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: kueue.ClusterQueueSpec{
			NamespaceSelector: &metav1.LabelSelector{},
			ResourceGroups:    []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{gpuResource, corev1.ResourceCPU}}},
		},
	}
	for i, flavor := range flavors {
		cq.Spec.ResourceGroups[0].Flavors = append(cq.Spec.ResourceGroups[0].Flavors, kueue.FlavorQuotas{
			Name: kueue.ResourceFlavorReference(flavor), Resources: []kueue.ResourceQuota{
				{Name: gpuResource, NominalQuota: *resource.NewQuantity(gpus[i], resource.DecimalSI)},
				{Name: corev1.ResourceCPU, NominalQuota: resource.MustParse("10000")},
			},
		})
	}
	return cq
}

// set makes a ClusterQueue, its flavors and a LocalQueue of its name.
func (s *stage) set(cq *kueue.ClusterQueue, stopped bool) {
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cq.Name}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(cq.Name)}}
	if stopped {
		lq.Spec.StopPolicy = new(kueue.Hold)
	}
	s.UpdateQuota(func(t *quota.Tree) {
		for _, f := range cq.Spec.ResourceGroups[0].Flavors {
			flavor := string(f.Name)
			t.SetFlavor(&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: flavor}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"flavor": flavor}}})
		}
		t.SetClusterQueue(cq)
		t.SetLocalQueue(lq)
	})
}

// flavored is a node of a flavor.
func flavored(name, flavor string, gpus int64) *corev1.Node {
	n := node(name, gpus)
	n.Labels["flavor"] = flavor
	return n
}

// pass lets the Cycle work until nothing is left to do, and returns who was
// admitted, in order.
func (s *stage) pass() []string {
	s.wishes.order = nil
	for range 10000 {
		if !s.cycle.Pass(s.ctx) {
			var order []string
			for _, uid := range s.wishes.order {
				order = append(order, s.names[uid])
			}
			return order
		}
	}
	s.t.Fatalf("the passes never end")
	return nil
}

// naivePass does the same without a memory of what was refused: after each
// admission it begins anew with all jobs, and takes of the first ones of the
// ClusterQueues who borrows from the fewest levels, then by queue order. What
// StrictFIFO queues withhold it knows from the pass before, as they do.
func (s *stage) naivePass() []string {
	s.order = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	for range 10000 {
		if !s.naiveRound() {
			return s.order
		}
	}
	s.t.Fatalf("the rounds never end")
	return nil
}

// naiveRound reports whether something has changed: a job was admitted, or less
// is withheld.
func (s *stage) naiveRound() bool {
	lines := map[string][]*entry{}
	for _, e := range s.jobs {
		if e.state == Pending && e.startable() && !s.clock.Now().Before(e.requeueAt) {
			cq, _ := s.quota.ClusterQueueOf(e.queue())
			lines[cq] = append(lines[cq], e)
		}
	}
	for cq, line := range lines {
		slices.SortFunc(line, (*entry).before)
		if s.quota.Strict(cq) {
			inLine := slices.DeleteFunc(slices.Clone(line), func(e *entry) bool {
				_, no := s.quota.Assign(e.request(nil))
				return no != nil && stepsOut(no.Class)
			})
			if lines[cq] = inLine; len(inLine) > 1 {
				lines[cq] = inLine[:1]
			}
		}
	}
	changed := false
	for cq, kept := range s.kept {
		if len(lines[cq]) == 0 || lines[cq][0].job.Owner.UID != kept || !s.quota.Strict(cq) {
			s.quota.Unwithhold(kept)
			delete(s.kept, cq)
			changed = true
		}
	}
	for {
		var best *entry
		var queue string
		levels := 0
		for cq, line := range lines {
			if len(line) == 0 {
				continue
			}
			l := 0
			if a, _ := s.quota.Assign(line[0].request(nil)); a != nil {
				l = a.Borrows
			}
			if best == nil || l < levels || (l == levels && line[0].before(best) < 0) {
				best, queue, levels = line[0], cq, l
			}
		}
		if best == nil {
			return changed
		}
		if s.start(best) {
			return true
		}
		lines[queue] = lines[queue][1:]
		if s.quota.Strict(queue) {
			changed = s.naiveWithhold(queue, best) || changed
		}
	}
}

// naiveWithhold keeps what the blocked head of a StrictFIFO queue may keep, and
// reports whether that is less than before.
func (s *stage) naiveWithhold(queue string, e *entry) bool {
	uid := e.job.Owner.UID
	r := e.request(nil)
	a, _ := s.quota.Assign(r)
	var keep quota.Usage
	if a != nil {
		keep = s.quota.Withheld(r, a)
	}
	had := s.kept[queue] != ""
	if len(keep) == 0 {
		s.quota.Unwithhold(uid)
		delete(s.kept, queue)
		return had
	}
	s.quota.Withhold(uid, queue, keep)
	s.kept[queue] = uid
	return false
}

// start admits a job if quota and nodes allow.
func (s *stage) start(e *entry) bool {
	a, no := s.quota.Assign(e.request(nil))
	if no != nil {
		return false
	}
	classes := prototypes(e, a, s.quota)
	if err := s.cycle.refresh(s.ctx); err != nil {
		s.t.Fatalf("refreshing: %v", err)
	}
	fw, snap, no, err := s.cycle.framework(classes)
	if err != nil || no != nil {
		s.t.Fatalf("the profile: %v %v", no, err)
	}
	plan, no, err := s.cycle.planner.Plan(s.ctx, fw, snap, gangOf(e.job.Owner.Name, e.job.Owner.UID, classes, sizes(classes)))
	if err != nil {
		s.t.Fatalf("planning: %v", err)
	}
	if no != nil {
		return false
	}
	if err := s.charge(e, e.version, a, bySets(len(e.job.PodSets), classes, plan), classes); err != nil {
		s.t.Fatalf("charging: %v", err)
	}
	s.order = append(s.order, e.job.Owner.Name)
	return true
}

// submit reads a job in.
func (s *stage) submit(j *workload.Job, priority int32) {
	s.names[j.Owner.UID] = j.Owner.Name
	s.read(j, s.workloadOfJob(j, func(wl *kueue.Workload) { wl.Spec.Priority = &priority }), nil)
}

// plainPod is a pod of no job on a node.
func plainPod(name, node string, gpus int64, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)},
		Spec:       set("x", 0, 1, gpus).Template.Spec,
	}
	p.Spec.NodeName = node
	requests := p.Spec.Containers[0].Resources.Requests
	requests[corev1.ResourceCPU] = resource.MustParse("10")
	if gpus == 0 {
		delete(requests, gpuResource)
		p.Spec.Containers[0].Resources.Limits = nil
	}
	for _, c := range change {
		c(p)
	}
	return p
}
