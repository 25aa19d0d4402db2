package workload

import (
	"context"
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload/identity"
)

// Ray's objects are read as they come, so that KubeRay's types and what they
// depend on are not compiled in. This file knows what RayClusters and RayJobs
// share: the specification of a cluster.
const (
	rayController = "ray.io/kuberay-operator"

	rayClusterLabel = "ray.io/cluster"
	rayNodeLabel    = "ray.io/is-ray-node"
	rayHeadGroup    = "headgroup"
	rayWorker       = "worker"

	// submitterPodSet is the pod set of the Job that submits a RayJob.
	submitterPodSet = "submitter"
)

var rayVersion = schema.GroupVersion{Group: identity.RayGroup, Version: "v1"}

// object reads the fields of an object without Go types. A field of the wrong
// type, which the API server lets no one write, reads as unset.
type object struct{ *unstructured.Unstructured }

func asObject(obj client.Object, kind string) (object, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return object{}, fmt.Errorf("a %T was given where a %s is read as unstructured", obj, kind)
	}
	return object{u}, nil
}

func (o object) str(path ...string) string {
	s, _, _ := unstructured.NestedString(o.Object, path...)
	return s
}

func (o object) is(path ...string) bool {
	b, _, _ := unstructured.NestedBool(o.Object, path...)
	return b
}

// within is the part of the object at path, not copied; nil if it has none.
func (o object) within(path ...string) map[string]any {
	part, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	m, _ := part.(map[string]any)
	return m
}

// newObject is an empty object of a kind that is read without Go types.
func newObject(gvk schema.GroupVersionKind) client.Object {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u
}

// decodeTemplate reads a pod template out of an object.
func decodeTemplate(part any) (*corev1.PodTemplateSpec, error) {
	fields, ok := part.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("it has no pod template")
	}
	t := &corev1.PodTemplateSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, t); err != nil {
		return nil, err
	}
	return t, nil
}

// rayTemplate is one pod template of a Ray cluster.
type rayTemplate struct {
	podSet string
	// path is where it is, in the specification of the cluster.
	path  string
	count int64
	// as is the template as it is in the object, own as its author wrote it.
	as, own *corev1.PodTemplateSpec
}

// raySpec is the specification of a Ray cluster.
type raySpec struct {
	fields map[string]any
	// faultTolerant: the annotations of the object ask for it.
	faultTolerant bool
}

func raySpecOf(o object, path ...string) raySpec {
	s := raySpec{fields: o.within(path...)}
	_, asked := s.fields["gcsFaultToleranceOptions"]
	s.faultTolerant = asked || strings.EqualFold(o.GetAnnotations()["ray.io/ft-enabled"], "true")
	return s
}

// autoscales says that KubeRay's autoscaler changes the numbers of workers.
func (s raySpec) autoscales() bool {
	yes, _, _ := unstructured.NestedBool(s.fields, "enableInTreeAutoscaling")
	return yes
}

func (s raySpec) groups() []map[string]any {
	list, _ := s.fields["workerGroupSpecs"].([]any)
	out := make([]map[string]any, 0, len(list))
	for _, item := range list {
		group, _ := item.(map[string]any)
		out = append(out, group)
	}
	return out
}

// templates are the head's pod template and those of the groups of workers, in
// the order in which Kueue has them.
func (s raySpec) templates() ([]rayTemplate, *reason.Reason) {
	out := []rayTemplate{{podSet: HeadPodSet, path: "/headGroupSpec/template", count: 1}}
	head, _ := s.fields["headGroupSpec"].(map[string]any)
	parts := []any{head["template"]}
	seen := map[string]bool{HeadPodSet: true}
	for i, group := range s.groups() {
		name, _ := group["groupName"].(string)
		set := string(kueue.NewPodSetReference(name))
		switch {
		case set == HeadPodSet:
			return nil, reason.New(reason.Misconfigured, "a group of workers has the name %q, which is the head's", name)
		case seen[set]:
			return nil, reason.New(reason.Misconfigured, "more than one group of workers has the name %q", name)
		case !podSetName.MatchString(set):
			return nil, reason.New(reason.Misconfigured,
				"the group of workers %q has no name that a pod set may have: 1 to 63 letters, digits and inner '-'", name)
		}
		seen[set] = true
		parts = append(parts, group["template"])
		out = append(out, rayTemplate{podSet: set, path: fmt.Sprintf("/workerGroupSpecs/%d/template", i), count: rayWorkers(group)})
	}
	if len(out) > maxPodSets {
		return nil, reason.New(reason.Misconfigured, "the cluster has %d groups of workers, and a Workload holds at most %d pod sets, one of them the head's",
			len(out)-1, maxPodSets)
	}
	for i := range out {
		as, err := decodeTemplate(parts[i])
		if err == nil && len(as.Spec.Containers) == 0 {
			err = fmt.Errorf("it has no containers")
		}
		if err == nil {
			out[i].as, out[i].own = as, as.DeepCopy()
			_, err = restore(out[i].own)
		}
		if err != nil {
			return nil, reason.New(reason.Misconfigured, "pod template of group %q: %v", out[i].podSet, err)
		}
	}
	return out, nil
}

// rayWorkers is the number of pods in a group of workers, as KubeRay makes
// them: replicas, within their bounds, of so many hosts each.
func rayWorkers(group map[string]any) int64 {
	number := func(field string, unset int64) int64 {
		if n, found, err := unstructured.NestedInt64(group, field); found && err == nil {
			return n
		}
		return unset
	}
	if suspended, _, _ := unstructured.NestedBool(group, "suspend"); suspended {
		return 0
	}
	replicas := max(number("replicas", 1), number("minReplicas", 0), 0)
	replicas = min(replicas, number("maxReplicas", math.MaxInt32))
	return replicas * max(number("numOfHosts", 1), 1)
}

// podSets turns the templates of a cluster into pod sets. The head has what
// KubeRay adds to its pod.
func (s raySpec) podSets(templates []rayTemplate) ([]PodSet, *reason.Reason) {
	out := make([]PodSet, 0, len(templates))
	for i := range templates {
		t := &templates[i]
		if t.count < 0 || t.count > math.MaxInt32 {
			return nil, reason.New(reason.Misconfigured, "group %q asks for %d pods", t.podSet, t.count)
		}
		set, no := raySet(t.podSet, int32(t.count), t.own.DeepCopy())
		if no != nil {
			return nil, no
		}
		kind, group := rayWorker, t.podSet
		if t.podSet == HeadPodSet {
			kind, group = identity.RayHead, rayHeadGroup
			s.completeHead(&set.Template)
		}
		set.Stamp.Labels = map[string]string{rayNodeLabel: "yes", identity.RayNodeTypeLabel: kind, identity.RayGroupLabel: group}
		out = append(out, set)
	}
	return out, nil
}

func raySet(name string, count int32, template *corev1.PodTemplateSpec) (PodSet, *reason.Reason) {
	set := PodSet{Name: name, Count: count, Completions: count, PodsPerReplica: max(count, 1), Template: *template}
	var no *reason.Reason
	set.Topology, no = topologyOf(fmt.Sprintf("pod template of group %q", name), template.Annotations, kueue.PodSetTopologyRequest{})
	return set, no
}

// completeHead adds what KubeRay puts into the head's pod beyond its template,
// as far as it takes up room: the autoscaler's container, and for the Job that
// cleans up after a head that is tolerant to faults as much as that Job takes.
func (s raySpec) completeHead(t *corev1.PodTemplateSpec) {
	if s.faultTolerant {
		ray := &t.Spec.Containers[0].Resources
		least := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m"), corev1.ResourceMemory: resource.MustParse("256Mi")}
		requests := filled(ray.Requests, least)
		for name, q := range least {
			if have := requests[name]; have.Cmp(q) < 0 {
				requests[name] = q
			}
		}
		ray.Requests = requests
	}
	if !s.autoscales() {
		return
	}
	own := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("512Mi")}
	autoscaler := corev1.Container{Name: "autoscaler", Resources: corev1.ResourceRequirements{Requests: own, Limits: own}}
	if fields, found, _ := unstructured.NestedMap(s.fields, "autoscalerOptions", "resources"); found {
		asked := corev1.ResourceRequirements{}
		// What the API server would not take is not taken here either.
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &asked); err == nil {
			autoscaler.Resources = asked
		}
	}
	t.Spec.Containers = append(t.Spec.Containers, autoscaler)
}

// readRay fills in the pod sets of a job and says what is wrong with them.
func readRay(job *Job, o Options, podSets []PodSet, remedy string) *reason.Reason {
	job.PodSets = podSets
	job.PodPriorityClass = podPriorityClass(podSets)
	if no := placedAlready(podSets); no != nil {
		return no
	}
	return foreignScheduler(podSets, o.SchedulerNames, "", job.Owner.Kind+" "+job.Owner.Name, remedy)
}

// rayOperations are the changes that inject infos into the templates at prefix,
// in place of what an earlier resume injected, and how many of the infos found
// their template.
func rayOperations(prefix string, templates []rayTemplate, infos []PodSetInfo) ([]operation, int, error) {
	var operations []operation
	found := 0
	for i := range templates {
		t := &templates[i]
		want := t.own.DeepCopy()
		for n := range infos {
			if infos[n].Name != t.podSet {
				continue
			}
			in, err := injectionOf(&infos[n], want)
			if err == nil {
				err = in.inject(want)
			}
			if err != nil {
				return nil, 0, err
			}
			found++
		}
		operations = append(operations, templateOperations(prefix+t.path, t.as, want)...)
	}
	return operations, found, nil
}

// resumeRay sends the changes and ends the suspension, in one request. An
// object that runs already is only compared.
func resumeRay(ctx context.Context, c client.Client, o object, suspended bool, operations []operation) error {
	if !suspended {
		if len(operations) > 0 {
			return ErrNotSuspended
		}
		return nil
	}
	if len(operations) > 0 {
		// The indices in the paths hold for this version alone.
		operations = append(operations, operation{Op: "add", Path: "/metadata/resourceVersion", Value: o.GetResourceVersion()})
	}
	operations = append(operations, operation{Op: "add", Path: "/spec/suspend", Value: false})
	return send(ctx, c, o.DeepCopy(), operations)
}
