package workload

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload/identity"
)

// alonePod is a pod that nobody owns, with n GPUs.
func alonePod(name string, n string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{},
			CreationTimestamp: metav1.NewTime(time.Unix(1000, 0)),
		},
		Spec: corev1.PodSpec{SchedulerName: "muster", Containers: []corev1.Container{{Name: "c"}}},
	}
	if n != "0" {
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: resources("nvidia.com/gpu", n), Requests: resources("nvidia.com/gpu", n)}
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func labelled(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[key] = value }
}

func annotatedWith(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{key: value} }
}

func bound(p *corev1.Pod)     { p.Spec.NodeName = "node-0" }
func succeeded(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "node-0", corev1.PodSucceeded }
func failed(p *corev1.Pod)    { p.Spec.NodeName, p.Status.Phase = "node-0", corev1.PodFailed }

// member is a pod of Kueue's group g of total pods.
func member(name, gpus string, total int, change ...func(*corev1.Pod)) *corev1.Pod {
	return alonePod(name, gpus, append([]func(*corev1.Pod){
		labelled(QueueLabel, "q"), labelled(KueueGroupLabel, "g"), annotatedWith(KueueGroupCountAnnotation, fmt.Sprint(total)),
	}, change...)...)
}

// volcanoPod is a queued pod of Volcano's group g that says how many pods of it
// start together; empty: it does not.
func volcanoPod(name, annotation, minMember string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := alonePod(name, "1", append(change, labelled(QueueLabel, "q"), annotatedWith(annotation, "g"))...)
	if minMember != "" {
		pod.Annotations[VolcanoMinMemberAnnotation] = minMember
	}
	return pod
}

func options(mode Unqueued) Options {
	return Options{SchedulerNames: sets.New("muster"), Unqueued: mode, ClaimsGPU: func(p *corev1.Pod) bool { return p.Spec.ResourceClaims[0].Name == "gpus" }}
}

// claiming has a pod claim devices.
func claiming(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: name, ResourceClaimTemplateName: &name}}
	}
}

func TestPodJob(t *testing.T) {
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"a pod with a queue is a job of its own":                       {alonePod("p", "0", labelled(QueueLabel, "q")), "Pod team/p uid-p"},
		"a pod with GPUs is, too":                                      {alonePod("p", "1"), "Pod team/p uid-p"},
		"as may be one that claims devices":                            {alonePod("p", "0", claiming("nic")), "Pod team/p uid-p"},
		"a pod with neither is none of ours":                           {alonePod("p", "0"), ""},
		"a pod of Kueue's groups belongs to its group":                 {member("p", "1", 2), "PodGroup team/g kueue.x-k8s.io/team/g"},
		"a pod of a PodGroup belongs to it":                            {alonePod("p", "0", labelled(PodGroupLabel, "g")), "PodGroup team/g scheduling.x-k8s.io/team/g"},
		"a pod of Kubernetes' PodGroups belongs to it":                 {alonePod("p", "0", ofNative), "PodGroup team/g scheduling.k8s.io/team/g"},
		"unless its pods start alone":                                  {alonePod("p", "1", ofNative, annotatedWith(AloneAnnotation, "true")), "Pod team/p uid-p"},
		"a pod of Volcano's groups that says their size belongs to it": {volcanoPod("p", VolcanoGroupAnnotation, "2"), "PodGroup team/g scheduling.volcano.sh/team/g"},
		"also by the older annotation":                                 {volcanoPod("p", VolcanoOldGroupAnnotation, "2"), "PodGroup team/g scheduling.volcano.sh/team/g"},
		"one that says none is a job of its own":                       {volcanoPod("p", VolcanoGroupAnnotation, ""), "Pod team/p uid-p"},
		"as is one that says no number":                                {volcanoPod("p", VolcanoGroupAnnotation, "two"), "Pod team/p uid-p"},
		"and one without a queue":                                      {alonePod("p", "1", annotatedWith(VolcanoGroupAnnotation, "g")), "Pod team/p uid-p"},
		"Kueue's label counts before that":                             {member("p", "1", 2, ofNative), "PodGroup team/g kueue.x-k8s.io/team/g"},
		"a JobSet's pod belongs to the JobSet whatever it says":        {jobSetPod(func(l map[string]string) { l[PodGroupLabel], l[QueueLabel] = "g", "q" }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if owner, ok := PodJob(tc.pod); ok {
				got = fmt.Sprintf("%s %s %s", owner.Kind, owner.NamespacedName, owner.UID)
			}
			if got != tc.want {
				t.Errorf("it is %q, want %q", got, tc.want)
			}
		})
	}
}

// reading is what a test says about a job that was read.
type reading struct {
	Managed, Suspended bool
	Queue              string
	Sets               string
	Finish             string
	Why                reason.Class
}

func readingOf(job *Job, managed bool, no *reason.Reason) reading {
	r := reading{Managed: managed}
	if job != nil {
		r.Queue, r.Suspended = job.Queue, job.Suspended
		for _, s := range job.PodSets {
			r.Sets += fmt.Sprintf("%dx%d ", s.Count, GPUs(Requests(&s.Template)))
		}
		if job.Finish != nil {
			r.Finish = fmt.Sprint(job.Finish.Succeeded)
		}
	}
	if no != nil {
		r.Why = no.Class
	}
	return r
}

func TestPodRead(t *testing.T) {
	defaultQueue := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: DefaultQueue}}
	otherQueue := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "q"}}
	namesQ := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Annotations: map[string]string{DefaultQueueAnnotation: "q"}}}
	for name, tc := range map[string]struct {
		pod     *corev1.Pod
		mode    Unqueued
		objects []client.Object
		want    reading
	}{
		"a queued pod waits in its queue": {
			alonePod("p", "4", labelled(QueueLabel, "q")), UnqueuedRun, nil, reading{true, true, "q", "1x4 ", "", ""}},
		"one on its node is not suspended": {
			alonePod("p", "4", labelled(QueueLabel, "q"), bound), UnqueuedRun, nil, reading{true, false, "q", "1x4 ", "", ""}},
		"one that succeeded is finished": {
			alonePod("p", "4", labelled(QueueLabel, "q"), succeeded), UnqueuedRun, nil, reading{true, false, "q", "", "true", ""}},
		"so is one that failed": {
			alonePod("p", "4", labelled(QueueLabel, "q"), failed), UnqueuedRun, nil, reading{true, false, "q", "", "false", ""}},
		"one for another scheduler cannot be placed": {
			alonePod("p", "4", labelled(QueueLabel, "q"), func(p *corev1.Pod) { p.Spec.SchedulerName = "other" }), UnqueuedRun, nil,
			reading{true, true, "q", "1x4 ", "", reason.ForeignScheduler}},
		"a GPU pod without a queue goes to the namespace's default queue": {
			alonePod("p", "4"), UnqueuedDefault, []client.Object{defaultQueue}, reading{true, true, "default", "1x4 ", "", ""}},
		"so does one that claims GPUs": {
			alonePod("p", "0", claiming("gpus")), UnqueuedDefault, []client.Object{defaultQueue}, reading{true, true, "default", "1x0 ", "", ""}},
		"one that claims other devices runs": {alonePod("p", "0", claiming("nic")), UnqueuedDefault, []client.Object{defaultQueue}, reading{}},
		"or to the one that the namespace names": {
			alonePod("p", "4"), UnqueuedDefault, []client.Object{namesQ, otherQueue, defaultQueue}, reading{true, true, "q", "1x4 ", "", ""}},
		"and runs where that does not exist":                {alonePod("p", "4"), UnqueuedDefault, []client.Object{namesQ, defaultQueue}, reading{}},
		"and runs where there is none":                      {alonePod("p", "4"), UnqueuedDefault, nil, reading{}},
		"and runs by configuration":                         {alonePod("p", "4"), UnqueuedRun, []client.Object{defaultQueue}, reading{}},
		"and is held by configuration":                      {alonePod("p", "4"), UnqueuedHold, nil, reading{true, true, "", "1x4 ", "", reason.NoQueue}},
		"another scheduler's GPU pod is none of ours":       {alonePod("p", "4", func(p *corev1.Pod) { p.Spec.SchedulerName = "other" }), UnqueuedHold, nil, reading{}},
		"a pod of a group is not read alone":                {member("p", "4", 1), UnqueuedRun, nil, reading{}},
		"a bad topology annotation is said and not guessed": {alonePod("p", "4", labelled(QueueLabel, "q"), annotatedWith(kueue.PodSetRequiredTopologyAnnotation, "")), UnqueuedRun, nil, reading{true, true, "q", "1x4 ", "", reason.Misconfigured}},
	} {
		t.Run(name, func(t *testing.T) {
			job, managed, no, err := podKind{options(tc.mode)}.Read(t.Context(), fakeClient(t, tc.objects...), tc.pod)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, readingOf(job, managed, no)); diff != "" {
				t.Errorf("(-want +got):\n%s\nreason: %v", diff, no)
			}
		})
	}
}

func TestPodGroupRead(t *testing.T) {
	launcher := func(p *corev1.Pod) { p.Spec.Containers[0].Resources = corev1.ResourceRequirements{} }
	for name, tc := range map[string]struct {
		pods []client.Object
		want reading
	}{
		"a complete group is a pod set of each role": {
			[]client.Object{member("a", "4", 3), member("b", "4", 3), member("l", "0", 3, launcher)},
			reading{true, true, "q", "2x4 1x0 ", "", ""}},
		"pods that are to come are waited for": {
			[]client.Object{member("a", "4", 3), member("b", "4", 3)}, reading{true, true, "q", "", "", reason.WaitingForPods}},
		"a pod that failed is replaced by another": {
			[]client.Object{member("a", "4", 2, failed), member("b", "4", 2), member("c", "4", 2)}, reading{true, true, "q", "2x4 ", "", ""}},
		"a pod that succeeded is still one of them": {
			[]client.Object{member("a", "4", 2, succeeded), member("b", "4", 2, bound)}, reading{true, false, "q", "2x4 ", "", ""}},
		"a group whose pods all succeeded is finished": {
			[]client.Object{member("a", "4", 2, succeeded), member("b", "4", 2, succeeded)}, reading{true, true, "q", "", "true", ""}},
		"a group whose pods failed waits for others": {
			[]client.Object{member("a", "4", 2, failed), member("b", "4", 2, failed)}, reading{true, true, "q", "", "", reason.WaitingForPods}},
		"of too many pods the first are in": {
			[]client.Object{member("a", "4", 1), member("b", "4", 1)}, reading{true, true, "q", "1x4 ", "", ""}},
		"numbers that differ are said": {
			[]client.Object{member("a", "4", 1), member("b", "4", 2)}, reading{true, true, "q", "2x4 ", "", reason.Misconfigured}},
		"a number that is none is said": {
			[]client.Object{member("a", "4", 1, annotatedWith(KueueGroupCountAnnotation, "four"))}, reading{true, true, "q", "1x4 ", "", reason.Misconfigured}},
		"queues that differ are said": {
			[]client.Object{member("a", "4", 2), member("b", "4", 2, labelled(QueueLabel, "other"))}, reading{true, true, "", "2x4 ", "", reason.Misconfigured}},
	} {
		t.Run(name, func(t *testing.T) {
			k := podGroupKind{options(UnqueuedRun), identity.KueueGroupGVK, KueueGroupLabel}
			c := fakeClient(t, tc.pods...)
			g, err := k.Assemble(t.Context(), c, types.NamespacedName{Namespace: "team", Name: "g"})
			if err != nil {
				t.Fatal(err)
			}
			job, managed, no, err := k.Read(t.Context(), c, g)
			if err != nil {
				t.Fatal(err)
			}
			got := readingOf(job, managed, no)
			if no != nil && no.Class == reason.Misconfigured {
				// What could be read of a group that cannot run does not matter.
				got.Sets, tc.want.Sets = "", ""
			}
			if got.Sets == "1x0 2x4 " {
				got.Sets = "2x4 1x0 " // Roles are hashes, in no order that means anything.
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s\nreason: %v", diff, no)
			}
		})
	}
}

func TestPodGroupObject(t *testing.T) {
	queue := map[string]string{QueueLabel: "q"}
	for name, tc := range map[string]struct {
		objects []client.Object
		want    reading
	}{
		"the queue may be named by the PodGroup":    {append(groupPods("p", 2), podGroupObject(2, queue)), reading{true, true, "q", "2x1 ", "", ""}},
		"or by the pods":                            {append(groupPods("p", 2, labelled(QueueLabel, "q")), podGroupObject(2, nil)), reading{true, true, "q", "2x1 ", "", ""}},
		"more pods than minMember are all in":       {append(groupPods("p", 3), podGroupObject(2, queue)), reading{true, true, "q", "3x1 ", "", ""}},
		"fewer wait for the others":                 {append(groupPods("p", 1), podGroupObject(2, queue)), reading{true, true, "q", "", "", reason.WaitingForPods}},
		"pods without their PodGroup wait for it":   {groupPods("p", 2, labelled(QueueLabel, "q")), reading{true, true, "q", "", "", reason.PodGroupNotFound}},
		"it may name the queue of pods of none":     {groupPods("p", 2), reading{true, true, "", "", "", reason.PodGroupNotFound}},
		"pods of another scheduler do not wait":     {groupPods("p", 2, func(p *corev1.Pod) { p.Spec.SchedulerName = "other" }), reading{}},
		"a group of no queue is none of ours":       {append(groupPods("p", 2), podGroupObject(2, nil)), reading{}},
		"one whose pods have all succeeded is done": {append(groupPods("p", 2, succeeded), podGroupObject(2, queue)), reading{true, true, "q", "", "true", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			job, managed, no := readGroup(t, fakeClient(t, tc.objects...))
			if diff := cmp.Diff(tc.want, readingOf(job, managed, no)); diff != "" {
				t.Errorf("(-want +got):\n%s\nreason: %v", diff, no)
			}
		})
	}
}

func TestWhereNoPodGroupsAreServedPodsOfNoQueueDoNotWait(t *testing.T) {
	unserved := apierrors.NewNotFound(schema.GroupResource{Group: PodGroupGVK.Group, Resource: "podgroups"}, "g")
	unserved.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeUnexpectedServerResponse, Message: "404 page not found"}}
	for name, answer := range map[string]error{
		"the client knows it":     &apimeta.NoKindMatchError{GroupKind: PodGroupGVK.GroupKind()},
		"the API server knows it": unserved,
	} {
		t.Run(name, func(t *testing.T) {
			served := func(pods []client.Object) client.Client {
				return interceptor.NewClient(fakeClient(t, pods...).(client.WithWatch), interceptor.Funcs{
					Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
						if obj.GetObjectKind().GroupVersionKind() == PodGroupGVK {
							return answer
						}
						return c.Get(ctx, key, obj, opts...)
					},
				})
			}
			if job, managed, no := readGroup(t, served(groupPods("p", 2))); managed {
				t.Errorf("pods of no queue are read as %+v (%v)", readingOf(job, managed, no), no)
			}
			job, managed, no := readGroup(t, served(groupPods("p", 2, labelled(QueueLabel, "q"))))
			if diff := cmp.Diff(reading{true, true, "q", "", "", reason.PodGroupNotFound}, readingOf(job, managed, no)); diff != "" {
				t.Errorf("queued pods (-want +got):\n%s\nreason: %v", diff, no)
			}
		})
	}
}

func TestGroupOfNoPodsIsNotFound(t *testing.T) {
	k := podGroupKind{options(UnqueuedRun), identity.KueueGroupGVK, KueueGroupLabel}
	_, err := k.Assemble(t.Context(), fakeClient(t), types.NamespacedName{Namespace: "team", Name: "g"})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the error is %v, want not found", err)
	}
}

func TestRoleIsWhatDecidesWhereAPodMayRun(t *testing.T) {
	same := RoleOf(alonePod("a", "4"))
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		same bool
	}{
		"another name and command": {alonePod("b", "4", func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"x"} }), true},
		"a node":                   {alonePod("b", "4", bound), true},
		"another number of GPUs":   {alonePod("b", "8"), false},
		"a node selector":          {alonePod("b", "4", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"a": "b"} }), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := RoleOf(tc.pod) == same; got != tc.same {
				t.Errorf("the same role: %v, want %v", got, tc.same)
			}
		})
	}
}

func TestWaitingPodIsGivenTolerationsOnceAndKeepsItsRole(t *testing.T) {
	pod := member("a", "4", 1)
	pod.Spec.Tolerations = tolerations("own")
	c := fakeClient(t, pod)
	k := podGroupKind{options(UnqueuedRun), identity.KueueGroupGVK, KueueGroupLabel}
	key := types.NamespacedName{Namespace: "team", Name: "g"}
	role := RoleOf(pod)
	infos := []PodSetInfo{{Name: role, Tolerations: tolerations("own", "gpu")}}
	for range 2 {
		g, err := k.Assemble(t.Context(), c, key)
		if err == nil {
			err = k.Resume(t.Context(), c, g, infos)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	got := get(t, c, pod)
	if diff := cmp.Diff(tolerations("own", "gpu"), got.Spec.Tolerations); diff != "" {
		t.Errorf("tolerations (-want +got):\n%s", diff)
	}
	if RoleOf(got) != role {
		t.Error("its role has changed")
	}
	g, err := k.Assemble(t.Context(), c, key)
	if err != nil {
		t.Fatal(err)
	}
	job, _, no, err := k.Read(t.Context(), c, g)
	if err != nil || no != nil {
		t.Fatal(err, no)
	}
	if diff := cmp.Diff(tolerations("own"), job.PodSets[0].Template.Spec.Tolerations); diff != "" {
		t.Errorf("the author's tolerations (-want +got):\n%s", diff)
	}
}

func TestStoppingAGroupEvictsThePodsOnNodesAndNoOther(t *testing.T) {
	var evicted []string
	pods := []client.Object{member("waits", "4", 4), member("runs", "4", 4, bound), member("ended", "4", 4, succeeded), member("also", "4", 4, bound)}
	var answer error
	c := interceptor.NewClient(fakeClient(t, pods...).(client.WithWatch), interceptor.Funcs{
		SubResourceCreate: func(_ context.Context, _ client.Client, sub string, obj client.Object, body client.Object, _ ...client.SubResourceCreateOption) error {
			if e, ok := body.(*policyv1.Eviction); !ok || sub != "eviction" || *e.DeleteOptions.Preconditions.UID != obj.GetUID() {
				t.Errorf("%s of %s with %+v", sub, obj.GetName(), body)
			}
			evicted = append(evicted, obj.GetName())
			return answer
		},
	})
	k := podGroupKind{options(UnqueuedRun), identity.KueueGroupGVK, KueueGroupLabel}
	g, err := k.Assemble(t.Context(), c, types.NamespacedName{Namespace: "team", Name: "g"})
	if err == nil {
		err = k.Suspend(t.Context(), c, g)
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"also", "runs"}, evicted); diff != "" {
		t.Errorf("evicted (-want +got):\n%s", diff)
	}
	// What refuses one pod is no reason to spare the others.
	budget := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	budget.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget two needs 2 healthy pods and has 2 currently"}}
	answer, evicted = budget, nil
	err = k.Suspend(t.Context(), c, g)
	if !errors.Is(err, budget) || !strings.Contains(err.Error(), "evicting pod team/runs: ") || !strings.Contains(err.Error(), "The disruption budget two needs 2") {
		t.Errorf("the error is %v, want the pod and the budget in it", err)
	}
	if diff := cmp.Diff([]string{"also", "runs"}, evicted); diff != "" {
		t.Errorf("asked to evict (-want +got):\n%s", diff)
	}
}

func TestWorkloadOfAGroupIsOwnedByItsPodsAndFindsItsWayBack(t *testing.T) {
	for _, k := range []podGroupKind{{options(UnqueuedRun), identity.KueueGroupGVK, KueueGroupLabel}, {options(UnqueuedRun), PodGroupGVK, PodGroupLabel}} {
		a, b := member("a", "4", 2), member("b", "4", 2)
		owner := Owner{GroupVersionKind: k.gvk, NamespacedName: types.NamespacedName{Namespace: "team", Name: "g"}}
		owner.UID = identity.GroupUID(k.gvk, owner.NamespacedName)
		job := &Job{Owner: owner, Gated: true, Pods: []*corev1.Pod{a}, PodSets: []PodSet{{Name: "main", Count: 1, PodsPerReplica: 1}}}
		wl := NewWorkload(job, 0, nil)
		got, ok := OwnerOf(wl)
		if diff := cmp.Diff(owner, got); diff != "" || !ok {
			t.Errorf("owner, found %v (-want +got):\n%s", ok, diff)
		}
		if AddOwners(wl, job) {
			t.Error("an owner is added twice")
		}
		job.Pods = append(job.Pods, b)
		if !AddOwners(wl, job) || len(wl.OwnerReferences) != 2 {
			t.Errorf("the owners are %+v", wl.OwnerReferences)
		}
	}
}

func TestTheRoleThatKueueHasNotedOnAPodCounts(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	own := RoleOf(pod)
	pod.Annotations = map[string]string{roleAnnotation: "d2d9ea53"}
	if got := RoleOf(pod); got != "d2d9ea53" {
		t.Errorf("the role is %q", got)
	}
	pod.Spec.NodeSelector = map[string]string{"a": "b"}
	if got := RoleOf(pod); got != "d2d9ea53" || own == "" {
		t.Errorf("when Kueue has let it go the role is %q", got)
	}
}

func TestPodsOfOneNotedRoleMustAskForTheSame(t *testing.T) {
	of := func(name, gpus string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, Annotations: map[string]string{roleAnnotation: "same"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
				Requests: resources("nvidia.com/gpu", gpus),
			}}}},
		}
	}
	job := &Job{}
	if no := (podGroupKind{}).readSets(job, []*corev1.Pod{of("a", "1"), of("b", "8")}); no == nil || no.Class != reason.Misconfigured {
		t.Errorf("the reason is %v", no)
	}
	if no := (podGroupKind{}).readSets(job, []*corev1.Pod{of("a", "8"), of("b", "8")}); no != nil || len(job.PodSets) != 1 {
		t.Errorf("the reason is %v, and there are %d pod sets", no, len(job.PodSets))
	}
}
