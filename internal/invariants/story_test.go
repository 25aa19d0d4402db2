package invariants

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const gpu corev1.ResourceName = "nvidia.com/gpu"

// story writes a history of events, one resource version after the other, and
// shows each to a Checker at once. Time moves by a second from one to the next.
type story struct {
	checker *Checker
	version int
	now     time.Time
	objects map[string]client.Object
}

func newStory(o Options) *story {
	return &story{checker: NewChecker(o), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), objects: map[string]client.Object{}}
}

func key(o client.Object) string { return fmt.Sprintf("%T %s", o, o.GetName()) }

func (s *story) show(kind watch.EventType, o client.Object) {
	s.version++
	s.now = s.now.Add(time.Second)
	o.SetResourceVersion(strconv.Itoa(s.version))
	s.checker.Observe(Event{Type: kind, Object: o.DeepCopyObject().(client.Object), Seen: s.now})
}

func (s *story) add(o client.Object) {
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("uid-%s-%d", o.GetName(), s.version+1)))
	}
	s.objects[key(o)] = o
	s.show(watch.Added, o)
}

// change shows an object again, changed.
func change[T client.Object](s *story, name string, edit func(T)) {
	var zero T
	o := s.objects[fmt.Sprintf("%T %s", zero, name)].(T)
	edit(o)
	s.show(watch.Modified, o)
}

func remove[T client.Object](s *story, name string) {
	var zero T
	k := fmt.Sprintf("%T %s", zero, name)
	s.show(watch.Deleted, s.objects[k])
	delete(s.objects, k)
}

// wait lets time pass.
func (s *story) wait(d time.Duration) {
	s.now = s.now.Add(d)
	s.checker.Advance(s.now)
}

func gpus(n int64) corev1.ResourceList {
	return corev1.ResourceList{gpu: *resource.NewQuantity(n, resource.DecimalSI)}
}

func (s *story) node(name string, n int64) {
	list := gpus(n)
	list[corev1.ResourcePods] = resource.MustParse("110")
	s.add(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name + ".example"}},
		Status:     corev1.NodeStatus{Allocatable: list},
	})
}

// devices gives a node so many GPUs as devices.
func (s *story) devices(node string, n int) {
	s.add(&resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-gpus"}, Spec: resourceapi.ResourceSliceSpec{
		Driver: "gpu.nvidia.com", NodeName: &node, Devices: make([]resourceapi.Device, n),
	}})
}

func (s *story) queue(name string, n int64) {
	o := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}}
	setQuota(o, n)
	s.add(o)
}

// inCohort puts a queue into a cohort.
func (s *story) inCohort(name, cohort string, limits ...func(*kueue.ResourceQuota)) {
	change(s, name, func(q *kueue.ClusterQueue) {
		q.Spec.CohortName = kueue.CohortReference(cohort)
		for _, l := range limits {
			l(&q.Spec.ResourceGroups[0].Flavors[0].Resources[0])
		}
	})
}

func borrows(n int64) func(*kueue.ResourceQuota) {
	return func(q *kueue.ResourceQuota) { q.BorrowingLimit = resource.NewQuantity(n, resource.DecimalSI) }
}

func lends(n int64) func(*kueue.ResourceQuota) {
	return func(q *kueue.ResourceQuota) { q.LendingLimit = resource.NewQuantity(n, resource.DecimalSI) }
}

// quota changes the quota of a queue.
func (s *story) quota(name string, n int64) {
	change(s, name, func(q *kueue.ClusterQueue) { setQuota(q, n) })
}

// capacity changes what a node has.
func (s *story) capacity(name string, n int64) {
	change(s, name, func(o *corev1.Node) { o.Status.Allocatable[gpu] = gpus(n)[gpu] })
}

// touch writes a Workload without changing what it claims.
func (s *story) touch(name string) {
	change(s, name, func(wl *kueue.Workload) { wl.Labels = map[string]string{"touched": "yes"} })
}

func setQuota(o *kueue.ClusterQueue, n int64) {
	o.Spec.ResourceGroups = []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{gpu},
		Flavors:          []kueue.FlavorQuotas{{Name: "h100", Resources: []kueue.ResourceQuota{{Name: gpu, NominalQuota: *resource.NewQuantity(n, resource.DecimalSI)}}}},
	}}
}

// set is one pod set of a job: pods pods of gpus GPUs each, after another set.
type set struct {
	name  string
	pods  int32
	gpus  int64
	after string
}

// job creates a queued JobSet and its pending Workload, both of that name.
func (s *story) job(name string, sets ...set) { s.jobOf(name, nil, sets...) }

// trainJob creates a queued TrainJob, its JobSet and its Workload.
func (s *story) trainJob(name string, sets ...set) {
	u := &unstructured.Unstructured{Object: map[string]any{"kind": "TrainJob", "apiVersion": "trainer.kubeflow.org/v1alpha1", "spec": map[string]any{"suspend": true}}}
	u.SetName(name)
	u.SetNamespace("team")
	u.SetLabels(map[string]string{queueLabel: "q"})
	s.add(u)
	s.jobOf(name, u, sets...)
}

func (s *story) jobOf(name string, owner *unstructured.Unstructured, sets ...set) {
	js := &jobset.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
	if owner != nil {
		js.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())}
	} else {
		js.Labels = map[string]string{queueLabel: "q"}
	}
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
	for _, x := range sets {
		template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Limits: gpus(x.gpus)}}}}}
		rj := jobset.ReplicatedJob{Name: x.name}
		rj.Template.Spec.Template = template
		if x.after != "" {
			rj.DependsOn = []jobset.DependsOn{{Name: x.after, Status: jobset.DependencyComplete}}
		}
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, rj)
		wl.Spec.PodSets = append(wl.Spec.PodSets, kueue.PodSet{Name: kueue.NewPodSetReference(x.name), Count: x.pods, Template: template})
	}
	s.add(js)
	var o client.Object = js
	gvk := jobset.SchemeGroupVersion.WithKind("JobSet")
	if owner != nil {
		o, gvk = owner, owner.GroupVersionKind()
	}
	wl.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(o, gvk)}
	s.add(wl)
}

// admit writes a Workload as admitted: for each pod set, in order, the nodes
// of its pods.
func (s *story) admit(name string, nodes ...[]string) {
	change(s, name, func(wl *kueue.Workload) {
		a := &kueue.Admission{ClusterQueue: "q"}
		for i, ps := range wl.Spec.PodSets {
			each := ps.Template.Spec.Containers[0].Resources.Limits[gpu]
			a.PodSetAssignments = append(a.PodSetAssignments, kueue.PodSetAssignment{
				Name: ps.Name, Count: new(ps.Count), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{gpu: "h100"},
				ResourceUsage: gpus(each.Value() * int64(ps.Count)), TopologyAssignment: topology(nodes[i]),
			})
		}
		wl.Status.Admission = a
		condition(wl, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "")
	})
}

// topology lists one domain per pod, its name split into prefix, root, suffix.
func topology(nodes []string) *kueue.TopologyAssignment {
	individual := &kueue.TopologyAssignmentSliceLevelIndividualValues{Suffix: new(".example"), Roots: nodes}
	return &kueue.TopologyAssignment{
		Levels: []string{"rack", corev1.LabelHostname},
		Slices: []kueue.TopologyAssignmentSlice{{
			DomainCount:    int32(len(nodes)),
			ValuesPerLevel: []kueue.TopologyAssignmentSliceLevelValues{{Universal: new("r1")}, {Individual: individual}},
			PodCounts:      kueue.TopologyAssignmentSlicePodCounts{Universal: new(int32(1))},
		}},
	}
}

func condition(wl *kueue.Workload, kind string, status metav1.ConditionStatus, reason, message string) {
	apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
}

func (s *story) evict(name, reason, message string) {
	change(s, name, func(wl *kueue.Workload) { condition(wl, kueue.WorkloadEvicted, metav1.ConditionTrue, reason, message) })
}

// requeue makes a Workload pending again.
func (s *story) requeue(name string) {
	change(s, name, func(wl *kueue.Workload) {
		wl.Status.Admission = nil
		condition(wl, kueue.WorkloadAdmitted, metav1.ConditionFalse, "NoReservation", "")
	})
}

func (s *story) finish(name string) {
	change(s, name, func(wl *kueue.Workload) {
		condition(wl, kueue.WorkloadFinished, metav1.ConditionTrue, "Succeeded", "")
	})
}

// pod creates a pod of a job's pod set.
func (s *story) pod(name, job, set string, n int64) {
	p := plain(name, n)
	owner := s.objects["*v1alpha2.JobSet "+job]
	p.Labels = map[string]string{jobset.JobSetUIDKey: string(owner.GetUID()), jobset.ReplicatedJobNameKey: set, jobset.JobIndexKey: "0"}
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, jobset.SchemeGroupVersion.WithKind("JobSet"))}
	s.add(p)
}

func plain(name string, n int64) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name},
		Spec: corev1.PodSpec{SchedulerName: "muster", Containers: []corev1.Container{{
			Name: "c", Resources: corev1.ResourceRequirements{Limits: gpus(n), Requests: gpus(n)},
		}}},
	}
}

func (s *story) bind(name, node string) {
	change(s, name, func(p *corev1.Pod) { p.Spec.NodeName = node })
}

func (s *story) end(name string, phase corev1.PodPhase) {
	change(s, name, func(p *corev1.Pod) { p.Status.Phase = phase })
}

// foreign is a pod that another scheduler binds.
func (s *story) foreign(name, node string, n int64) {
	p := plain(name, n)
	p.Spec.SchedulerName = "other"
	s.add(p)
	s.bind(name, node)
}

// stop marks a pod as being deleted.
func (s *story) stop(name string) {
	change(s, name, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: s.now} })
}
