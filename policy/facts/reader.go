package facts

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/workload"
)

// Around is what may be asked about other objects. A nil object without an error
// says that there is none.
type Around interface {
	// Runtime is a TrainingRuntime of the namespace or a ClusterTrainingRuntime.
	Runtime(ctx context.Context, namespace, kind, name string) (*unstructured.Unstructured, error)
	// Owner is the object that a reference in the namespace names. An error says that it is
	// not known now, through no fault of who wrote the reference.
	Owner(ctx context.Context, namespace string, ref metav1.OwnerReference) (*metav1.PartialObjectMetadata, error)
	// Group is what a group of pods belongs to what belongs to: its object, if a controller
	// has that, or its oldest pod that has not ended, where there is no object of its kind.
	Group(ctx context.Context, namespace string, gvk schema.GroupVersionKind, name string) (*metav1.PartialObjectMetadata, error)
}

// Claims counts the devices that a job's pods claim.
type Claims interface {
	// Count sets what the pod sets of the job claim, whose Owner says in which namespace.
	Count(ctx context.Context, job *workload.Job) error
}

// Reader describes objects.
type Reader struct {
	// Around may be nil: then no runtime and no owner is found.
	Around Around
	// Claims may be nil: then it is not known what is claimed.
	Claims Claims

	kinds map[schema.GroupKind]workload.Kind
}

// NewReader is a Reader of all kinds of jobs that Muster manages, and of others that
// have pods.
func NewReader(around Around, claims Claims) *Reader {
	r := &Reader{Around: around, Claims: claims, kinds: map[schema.GroupKind]workload.Kind{}}
	for _, kind := range workload.Kinds(workload.Options{}) {
		r.kinds[kind.GroupVersionKind().GroupKind()] = kind
	}
	return r
}

// Describe implements policy.Describer: it returns a *Workload.
func (r *Reader) Describe(ctx context.Context, req *admissionv1.AdmissionRequest, object map[string]any) any {
	w := r.Read(ctx, &unstructured.Unstructured{Object: object})
	w.User = User{Name: req.UserInfo.Username, Groups: nonNil(req.UserInfo.Groups)}
	if w.Namespace == "" {
		w.Namespace = req.Namespace
	}
	return w
}

// Read describes an object. It is not changed.
func (r *Reader) Read(ctx context.Context, u *unstructured.Unstructured) *Workload {
	w := &Workload{
		Version: Version, APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName(),
		Queue: u.GetLabels()[workload.QueueLabel], PodSets: []PodSet{}, Specs: map[string]*corev1.PodSpec{}, Containers: []Container{}, Images: []string{},
		User: User{Groups: []string{}},
	}
	if w.Name == "" && u.GetGenerateName() != "" {
		w.Name = u.GetGenerateName() + "*"
	}
	w.Owners = r.owners(ctx, u.GetNamespace(), u)
	job := r.job(ctx, w, u)
	w.Groups = r.groups(ctx, w, u.GetNamespace(), job)
	r.claim(ctx, w, job)
	for i := range job.PodSets {
		w.add(&job.PodSets[i])
	}
	slices.Sort(w.Images)
	w.Images = slices.Compact(w.Images)
	if w.Trials != nil {
		w.Trials.GPUsPer = w.GPUs
		w.GPUs *= int64(max(w.Trials.Parallel, 0))
	}
	return w
}

// unsure notes what could not be found out.
func (w *Workload) unsure(format string, args ...any) {
	more := fmt.Sprintf(format, args...)
	if w.Unknown != "" {
		more = w.Unknown + "; " + more
	}
	w.Unknown = more
}

// claim counts what the pods claim.
func (r *Reader) claim(ctx context.Context, w *Workload, job *workload.Job) {
	if !slices.ContainsFunc(job.PodSets, func(p workload.PodSet) bool { return claims(&p.Template.Spec) }) {
		return
	}
	if r.Claims == nil {
		w.unsure("what its pods claim is not counted here")
		return
	}
	job.Owner.Namespace = w.Namespace
	if err := r.Claims.Count(ctx, job); err != nil {
		w.unsure("what its pods claim: %v", err)
	}
}

// claims says that the pods ask for devices other than by a resource's own name.
func claims(spec *corev1.PodSpec) bool {
	return len(spec.ResourceClaims) > 0 || slices.ContainsFunc(slices.Concat(spec.Containers, spec.InitContainers), func(c corev1.Container) bool {
		for name := range c.Resources.Limits {
			if strings.HasPrefix(string(name), deviceClassPrefix) {
				return true
			}
		}
		return false
	})
}

// deviceClassPrefix begins a resource that stands for the devices of a class.
const deviceClassPrefix = "deviceclass.resource.kubernetes.io/"

// add lists a pod set.
func (w *Workload) add(set *workload.PodSet) {
	perPod, all := set.CountGPUs()
	w.PodSets = append(w.PodSets, PodSet{
		Name: set.Name, Count: set.Count, GPUsPerPod: perPod, GPUs: all,
		Labels: nonNilMap(set.Template.Labels), Annotations: nonNilMap(set.Template.Annotations),
	})
	w.Specs[set.Name] = &set.Template.Spec
	w.GPUsPerPod = max(w.GPUsPerPod, perPod)
	w.GPUs += all
	spec := &set.Template.Spec
	for i := range spec.Containers {
		w.addContainer(set, "container", &spec.Containers[i])
	}
	for i := range spec.InitContainers {
		w.addContainer(set, "initContainer", &spec.InitContainers[i])
	}
	for i := range spec.EphemeralContainers {
		e := &spec.EphemeralContainers[i]
		w.addContainer(set, "ephemeralContainer", &corev1.Container{Name: e.Name, Image: e.Image, Env: e.Env, VolumeMounts: e.VolumeMounts})
	}
}

func (w *Workload) addContainer(set *workload.PodSet, kind string, c *corev1.Container) {
	out := Container{
		PodSet: set.Name, Scratch: scratch(set.Template.Spec.Volumes, c.VolumeMounts), Name: c.Name, Type: kind, Image: c.Image, Env: map[string]string{},
		Requests: gpuQuantities(c.Resources.Requests), Limits: gpuQuantities(c.Resources.Limits),
	}
	for name, quantity := range c.Resources.Limits {
		if _, requested := c.Resources.Requests[name]; !requested && gpu.Is(name) {
			out.GPUs += quantity.Value()
		}
	}
	out.GPUs += workload.GPUs(c.Resources.Requests)
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			out.Env[e.Name] = e.Value
		}
	}
	w.Containers = append(w.Containers, out)
	if c.Image != "" {
		w.Images = append(w.Images, c.Image)
	}
}

// scratch are the directories in which volumes are mounted that are empty at first.
func scratch(volumes []corev1.Volume, mounts []corev1.VolumeMount) []string {
	out := []string{}
	for i := range mounts {
		if slices.ContainsFunc(volumes, func(v corev1.Volume) bool { return v.Name == mounts[i].Name && v.EmptyDir != nil }) {
			out = append(out, mounts[i].MountPath)
		}
	}
	return out
}

func gpuQuantities(list corev1.ResourceList) map[string]string {
	out := map[string]string{}
	for name, quantity := range list {
		if gpu.Is(name) {
			out[string(name)] = quantity.String()
		}
	}
	return out
}

// maxOwners is how far the chain of controllers is followed: a pipeline's trial of
// an Experiment has four above its pods.
const maxOwners = 6

// owners are the controllers of an object of the namespace, as far as they can be found.
func (r *Reader) owners(ctx context.Context, namespace string, at metav1.Object) []Owner {
	out := []Owner{}
	for len(out) < maxOwners {
		ref := metav1.GetControllerOfNoCopy(at)
		if ref == nil {
			return out
		}
		owner := Owner{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: string(ref.UID)}
		var found *metav1.PartialObjectMetadata
		if r.Around != nil {
			var err error
			found, err = r.Around.Owner(ctx, namespace, *ref)
			owner.Unread = err != nil
		}
		if found == nil || found.UID != ref.UID {
			return append(out, owner)
		}
		owner.Exists, owner.Queue = true, found.Labels[workload.QueueLabel]
		out, at = append(out, owner), found
	}
	return out
}

func nonNil(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

func nonNilMap(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// convert reads the fields of an unstructured value into a typed one.
func convert(from, into any) error {
	body, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}
