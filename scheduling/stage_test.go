package scheduling

import (
	"context"
	"fmt"
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
	names map[types.UID]string
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
	client := fake.NewClientset()
	return newStageIn(ctx, t, c, client, informers.NewSharedInformerFactory(client, 0), pop)
}

// newStageIn has a client, and its informers, which do not run yet.
func newStageIn(ctx context.Context, t fataler, c clock.PassiveClock, client *fake.Clientset, factory informers.SharedInformerFactory, pop func(klog.Logger) (framework.QueuedEntityInfo, error)) *stage {
	t.Helper()
	ctx = klog.NewContext(ctx, klog.Logger{})
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	sched, err := scheduler.New(ctx, client, factory, nil, profile.NewRecorderFactory(broadcaster))
	if err != nil {
		t.Fatalf("building the scheduler: %v", err)
	}
	s := &stage{
		scene: &scene{t: t, wishes: newWishes(), plain: sched.Cache, logger: klog.Logger{}},
		ctx:   ctx, names: map[types.UID]string{},
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
			return s.admitted()
		}
	}
	s.t.Fatalf("the passes never end")
	return nil
}

// admitted is who was admitted since the passes began, in order.
func (s *stage) admitted() []string {
	var order []string
	for _, uid := range s.wishes.order {
		order = append(order, s.names[uid])
	}
	return order
}

// start admits a job if quota and nodes allow.
func (s *stage) start(e *entry) bool {
	a, _, classes, plan := s.tryOut(e)
	if plan == nil {
		return false
	}
	if err := s.charge(e, e.version, a, bySets(len(e.job.PodSets), classes, plan), classes); err != nil {
		s.t.Fatalf("charging: %v", err)
	}
	return true
}

// tryOut is where a job could start now, in whatever flavors: nil if it could not for
// want of quota or nodes. a is what quota it would get, also where it lacks some now,
// levels from how many it would borrow, at most, in all that are tried for that.
func (s *stage) tryOut(e *entry) (a *quota.Assignment, levels int, classes []class, plan placement.Assignment) {
	first, no := s.assign(e)
	queue, _ := s.quota.ClusterQueueOf(e.queue())
	others := s.detours(e, e.job, queue)
	for a = first; a != nil; a, no = others.next(a) {
		if a == first || no == nil {
			levels = max(levels, a.Borrows)
		}
		if no == nil {
			if classes, plan = s.tryOutIn(e, a); plan != nil {
				return a, levels, classes, plan
			}
		}
		if !s.quota.HasChoice(queue) {
			break
		}
	}
	return first, levels, nil, nil
}

func (s *stage) tryOutIn(e *entry, a *quota.Assignment) ([]class, placement.Assignment) {
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
		return classes, nil
	}
	return classes, plan
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

// leaves has a job off its nodes that is being stopped, and its Workload pending.
func (s *stage) leaves(j *workload.Job) {
	uid := j.Owner.UID
	wl := s.entry(j).workload.DeepCopy()
	s.version++
	wl.ResourceVersion = fmt.Sprint(s.version)
	wl.Status.Admission, wl.Status.Conditions = nil, nil
	s.observe(uid, wl)
	s.left(uid)
	if s.state(j) == Pending {
		s.read(suspended(j), wl, nil)
	}
}
