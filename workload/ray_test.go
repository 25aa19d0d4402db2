package workload

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/workload/identity"
)

// rayPods is a pod template that asks for so many GPUs.
func rayPods(gpus string) map[string]any {
	container := map[string]any{"name": "ray", "image": "example.com/ray:2.50"}
	if gpus != "" {
		container["resources"] = map[string]any{"limits": map[string]any{"nvidia.com/gpu": gpus}}
	}
	return map[string]any{"spec": map[string]any{"schedulerName": "muster", "containers": []any{container}}}
}

// rayClusterSpec is a cluster of a head without GPUs and two groups of workers.
func rayClusterSpec() map[string]any {
	return map[string]any{
		"unheardOf":     "kept",
		"headGroupSpec": map[string]any{"rayStartParams": map[string]any{}, "template": rayPods("")},
		"workerGroupSpecs": []any{
			map[string]any{"groupName": "Big", "replicas": int64(2), "minReplicas": int64(0), "maxReplicas": int64(8), "numOfHosts": int64(1), "template": rayPods("8")},
			map[string]any{"groupName": "small", "replicas": int64(1), "minReplicas": int64(0), "maxReplicas": int64(4), "numOfHosts": int64(2), "template": rayPods("1")},
		},
	}
}

func rayObject(kind, name string, spec map[string]any, change ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "ray.io/v1", "kind": kind,
		"metadata": map[string]any{
			"namespace": namespace, "name": name, "uid": strings.ToLower(kind) + "-1", "labels": map[string]any{QueueLabel: "main"},
		},
		"spec": spec,
	}}
	for _, f := range change {
		f(u)
	}
	return u
}

func newRayCluster(change ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	spec := rayClusterSpec()
	spec["suspend"] = true
	return rayObject("RayCluster", "ray", spec, change...)
}

func newRayJob(change ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	return rayObject("RayJob", "tune", map[string]any{"suspend": true, "entrypoint": "python tune.py", "rayClusterSpec": rayClusterSpec()}, change...)
}

func with(value any, path ...string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		if err := unstructured.SetNestedField(u.Object, value, path...); err != nil {
			panic(err)
		}
	}
}

// inGroup changes a field of a group of workers.
func inGroup(i int, field string, value any, path ...string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		groups, _, _ := unstructured.NestedSlice(u.Object, append(path, "workerGroupSpecs")...)
		groups[i].(map[string]any)[field] = value
		_ = unstructured.SetNestedSlice(u.Object, groups, append(path, "workerGroupSpecs")...)
	}
}

func controlled(kind, name string, uid types.UID) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "ray.io/v1", Kind: kind, Name: name, UID: uid, Controller: new(true)}})
	}
}

func counts(job *Job) map[string]int32 {
	out := map[string]int32{}
	for _, ps := range job.PodSets {
		out[ps.Name] = ps.Count
	}
	return out
}

func TestRayClusterRead(t *testing.T) {
	for _, tc := range []struct {
		name    string
		cluster *unstructured.Unstructured
		counts  map[string]int32
		no      string
	}{
		{"has a head and its groups of workers, of so many hosts each", newRayCluster(), map[string]int32{"head": 1, "big": 2, "small": 2}, ""},
		{"has no pods of a group that is suspended", newRayCluster(inGroup(0, "suspend", true, "spec")), map[string]int32{"head": 1, "big": 0, "small": 2}, ""},
		{"has as many workers as the bounds of a group allow", newRayCluster(inGroup(0, "replicas", int64(20), "spec"), inGroup(1, "minReplicas", int64(3), "spec")), map[string]int32{"head": 1, "big": 8, "small": 6}, ""},
		{"is refused with a group of the head's name", newRayCluster(inGroup(0, "groupName", "head", "spec")), nil, `a group of workers has the name "head", which is the head's`},
		{"is refused with two groups of one name", newRayCluster(inGroup(0, "groupName", "small", "spec")), nil, `more than one group of workers has the name "small"`},
		{"is refused without a pod template", newRayCluster(inGroup(0, "template", nil, "spec")), nil, `pod template of group "big": it has no pod template`},
		{"is refused with a foreign scheduler", newRayCluster(inGroup(0, "template", map[string]any{"spec": map[string]any{"schedulerName": "volcano", "containers": []any{map[string]any{"name": "ray"}}}}, "spec")), nil, "names the scheduler volcano"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			job, managed, no, err := kindNamed(t, "RayCluster").Read(t.Context(), fakeClient(t), tc.cluster)
			if err != nil || !managed {
				t.Fatalf("managed %v, %v", managed, err)
			}
			if tc.no != "" {
				if no == nil || !strings.Contains(no.Message, tc.no) {
					t.Fatalf("the reason is %v, want %q", no, tc.no)
				}
				return
			}
			if no != nil {
				t.Fatal(no)
			}
			if diff := cmp.Diff(tc.counts, counts(job)); diff != "" {
				t.Error(diff)
			}
			if !job.Suspended || !job.Elastic || job.PodOwnerUID != "raycluster-1" {
				t.Errorf("suspended %v, elastic %v, pods of %s", job.Suspended, job.Elastic, job.PodOwnerUID)
			}
		})
	}
}

func TestRayClusterThatIsNotOurs(t *testing.T) {
	for name, cluster := range map[string]*unstructured.Unstructured{
		"without a queue":         newRayCluster(func(u *unstructured.Unstructured) { u.SetLabels(nil) }),
		"of a RayJob":             newRayCluster(controlled("RayJob", "tune", "rayjob-1")),
		"of a foreign controller": newRayCluster(with("kueue.x-k8s.io/multikueue", "spec", "managedBy")),
	} {
		if _, managed, _, err := kindNamed(t, "RayCluster").Read(t.Context(), fakeClient(t), cluster); managed || err != nil {
			t.Errorf("a cluster %s: managed %v, %v", name, managed, err)
		}
	}
	if _, managed, _, _ := kindNamed(t, "RayCluster").Read(t.Context(), fakeClient(t), newRayCluster(controlled("RayService", "serve", "s"))); !managed {
		t.Error("the cluster of a RayService is not managed")
	}
}

func TestHeadHasWhatKubeRayAdds(t *testing.T) {
	cluster := newRayCluster(with(true, "spec", "enableInTreeAutoscaling"), func(u *unstructured.Unstructured) {
		u.SetAnnotations(map[string]string{"ray.io/ft-enabled": "true"})
	})
	job, _, no, err := kindNamed(t, "RayCluster").Read(t.Context(), fakeClient(t), cluster)
	if no != nil || err != nil {
		t.Fatal(no, err)
	}
	if cpu := job.PodSet("head").PerPod()[corev1.ResourceCPU]; cpu.String() != "700m" {
		t.Errorf("the head asks for %s CPU, want 200m of its own at the least and 500m of the autoscaler", cpu.String())
	}
}

func TestRayJobRead(t *testing.T) {
	running := []func(*unstructured.Unstructured){with(false, "spec", "suspend"), with("tune-x7k2p", "status", "rayClusterName")}
	child := func(change ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
		u := newRayCluster(append(change, controlled("RayJob", "tune", "rayjob-1"))...)
		u.SetName("tune-x7k2p")
		return u
	}
	submitter := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "tune", UID: "submitter-1",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "ray.io/v1", Kind: "RayJob", Name: "tune", UID: "rayjob-1", Controller: new(true)}},
	}}
	all := map[string]int32{"head": 1, "big": 2, "small": 2, "submitter": 1}
	for _, tc := range []struct {
		name    string
		job     *unstructured.Unstructured
		objects []client.Object
		want    map[string]int32
		owner   types.UID
		more    []types.UID
		finish  *Finish
	}{
		{"has its cluster's pods and its submitter", newRayJob(), nil, all, "", nil, nil},
		{"has no pod that submits it by HTTP", newRayJob(with("HTTPMode", "spec", "submissionMode")), nil, map[string]int32{"head": 1, "big": 2, "small": 2}, "", nil, nil},
		{"knows its cluster and its submitter", newRayJob(running...), []client.Object{child(), submitter}, all, "raycluster-1", []types.UID{"submitter-1"}, nil},
		{"does not know a cluster of another", newRayJob(running...), []client.Object{newRayCluster(func(u *unstructured.Unstructured) { u.SetName("tune-x7k2p") })}, all, "", nil, nil},
		{
			"has as many workers as its autoscaler has asked for", newRayJob(append(running, with(true, "spec", "rayClusterSpec", "enableInTreeAutoscaling"))...),
			[]client.Object{child(inGroup(0, "replicas", int64(5), "spec"))}, map[string]int32{"head": 1, "big": 5, "small": 2, "submitter": 1}, "raycluster-1", nil, nil,
		},
		{"has its own number of workers where nothing scales", newRayJob(running...), []client.Object{child(inGroup(0, "replicas", int64(5), "spec"))}, all, "raycluster-1", nil, nil},
		{"has succeeded", newRayJob(with("Complete", "status", "jobDeploymentStatus"), with("SUCCEEDED", "status", "jobStatus")), nil, all, "", nil, &Finish{Succeeded: true}},
		{"has failed", newRayJob(with("Failed", "status", "jobDeploymentStatus"), with("FAILED", "status", "jobStatus"), with("exit 1", "status", "message")), nil, all, "", nil, &Finish{Message: "exit 1"}},
		{"has not ended while it is tried again", newRayJob(with("Retrying", "status", "jobDeploymentStatus"), with("FAILED", "status", "jobStatus")), nil, all, "", nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			job, managed, no, err := kindNamed(t, "RayJob").Read(t.Context(), fakeClient(t, tc.objects...), tc.job)
			if err != nil || no != nil || !managed {
				t.Fatalf("managed %v, %v, %v", managed, no, err)
			}
			if diff := cmp.Diff(tc.want, counts(job)); diff != "" {
				t.Error(diff)
			}
			if job.PodOwnerUID != tc.owner || cmp.Diff(tc.more, job.OtherPodOwners) != "" || cmp.Diff(tc.finish, job.Finish) != "" {
				t.Errorf("pods of %q and %v, finish %+v", job.PodOwnerUID, job.OtherPodOwners, job.Finish)
			}
			if set := job.PodSet("submitter"); set != nil && (set.Phase != 1 || set.Template.Spec.SchedulerName != "muster") {
				t.Errorf("the submitter starts in phase %d with scheduler %q", set.Phase, set.Template.Spec.SchedulerName)
			}
		})
	}
}

func TestRayJobThatIsNotOurs(t *testing.T) {
	for name, job := range map[string]*unstructured.Unstructured{
		"without a queue":              newRayJob(func(u *unstructured.Unstructured) { u.SetLabels(nil) }),
		"on a cluster that is there":   newRayJob(with(map[string]any{"ray.io/cluster": "ray"}, "spec", "clusterSelector")),
		"that another controller runs": newRayJob(with("kueue.x-k8s.io/multikueue", "spec", "managedBy")),
	} {
		if _, managed, _, err := kindNamed(t, "RayJob").Read(t.Context(), fakeClient(t), job); managed || err != nil {
			t.Errorf("a RayJob %s: managed %v, %v", name, managed, err)
		}
	}
	refused := newRayJob(with("ValidationFailed", "status", "jobDeploymentStatus"), with("bad TTL", "status", "message"))
	if _, _, no, _ := kindNamed(t, "RayJob").Read(t.Context(), fakeClient(t), refused); no == nil || no.Message != "KubeRay does not take it: bad TTL" {
		t.Errorf("the reason is %v", no)
	}
}

func TestRayPartsAreFound(t *testing.T) {
	cluster := newRayCluster(controlled("RayJob", "tune", "rayjob-1"))
	parts, err := rayJobKind{}.Children(t.Context(), fakeClient(t, cluster), newRayJob(with("ray", "status", "rayClusterName")))
	if err != nil || cmp.Diff([]types.UID{"raycluster-1"}, parts) != "" {
		t.Errorf("the parts are %v (%v)", parts, err)
	}
	submitter := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "tune", Labels: map[string]string{QueueLabel: "main"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "ray.io/v1", Kind: "RayJob", Name: "tune", UID: "rayjob-1", Controller: new(true)}},
	}}
	if _, managed, _, _ := kindNamed(t, "Job").Read(t.Context(), fakeClient(t), submitter); managed {
		t.Error("the Job that submits a RayJob is managed by itself")
	}
}

func TestRayResumeInjectsAndSuspendKeepsIt(t *testing.T) {
	infos := []PodSetInfo{{Name: "head"}, {Name: "big", NodeSelector: map[string]string{"gpu": "h200"}, Tolerations: tolerations("gpu")}, {Name: "small"}}
	for _, kind := range []string{"RayCluster", "RayJob"} {
		t.Run(kind, func(t *testing.T) {
			obj, path := newRayCluster(), []string{"spec"}
			if kind == "RayJob" {
				obj, path = newRayJob(), []string{"spec", "rayClusterSpec"}
				infos = append(infos, PodSetInfo{Name: "submitter", NodeSelector: map[string]string{"cpu": "yes"}})
			}
			before := obj.DeepCopy()
			c, k := fakeClient(t, obj), kindNamed(t, kind)
			if err := k.Resume(t.Context(), c, get(t, c, obj), infos); err != nil {
				t.Fatal(err)
			}
			now := get(t, c, obj)
			group := raySpecOf(object{now}, path...).groups()[0]
			template, err := decodeTemplate(group["template"])
			if err != nil || template.Spec.NodeSelector["gpu"] != "h200" || len(template.Spec.Tolerations) != 1 {
				t.Fatalf("the template is %+v (%v)", template, err)
			}
			if object.is(object{now}, "spec", "suspend") || object.within(object{now}, path...)["unheardOf"] != "kept" {
				t.Error("it is suspended, or a field that nobody knows is lost")
			}
			if kind == "RayJob" && object.str(object{now}, "spec", "submitterPodTemplate", "spec", "schedulerName") != "muster" {
				t.Error("the submitter names no scheduler")
			}
			// Again, it runs with them already; with others it does not.
			if err := k.Resume(t.Context(), c, now, infos); err != nil {
				t.Errorf("resuming again: %v", err)
			}
			if err := k.Resume(t.Context(), c, now, []PodSetInfo{{Name: "big", NodeSelector: map[string]string{"gpu": "a100"}}}); err == nil {
				t.Error("resumed with other infos while it runs")
			}
			if err := k.Suspend(t.Context(), c, now); err != nil || !object.is(object{get(t, c, obj)}, "spec", "suspend") {
				t.Errorf("it is not suspended (%v)", err)
			}
			// What was injected is not the author's.
			job, _, no, err := k.Read(t.Context(), c, get(t, c, obj))
			if no != nil || err != nil {
				t.Fatal(no, err)
			}
			was, _, _, _ := k.Read(t.Context(), c, before)
			if diff := cmp.Diff(was.PodSets, job.PodSets); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRayResumeRefuses(t *testing.T) {
	running := newRayCluster(with(false, "spec", "suspend"))
	err := kindNamed(t, "RayCluster").Resume(t.Context(), fakeClient(t, running), running, []PodSetInfo{{Name: "big", NodeSelector: map[string]string{"gpu": "h200"}}})
	if !errors.Is(err, ErrNotSuspended) {
		t.Errorf("a running cluster was changed: %v", err)
	}
	other := newRayCluster()
	if err := kindNamed(t, "RayCluster").Resume(t.Context(), fakeClient(t, other), other, []PodSetInfo{{Name: "gone"}}); err == nil {
		t.Error("resumed without the pod set that was admitted")
	}
}

func TestRayPodsHaveSlots(t *testing.T) {
	pod := func(nodeType, group string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{identity.RayNodeTypeLabel: nodeType, identity.RayGroupLabel: group}}}
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "ray.io/v1", Kind: "RayCluster", Name: "ray", UID: "raycluster-1", Controller: new(true)}}
		return p
	}
	for _, tc := range []struct {
		nodeType, group, set string
	}{{"head", "headgroup", "head"}, {"worker", "Big", "big"}} {
		owner, slot, ok := SlotOf(pod(tc.nodeType, tc.group))
		if !ok || owner != "raycluster-1" || slot.PodSet != tc.set || slot.Completion != Unnumbered {
			t.Errorf("a %s of %s has the slot %+v of %s", tc.nodeType, tc.group, slot, owner)
		}
		if _, alone := PodJob(pod(tc.nodeType, tc.group)); alone {
			t.Error("a Ray pod makes up a job of its own")
		}
	}
}
