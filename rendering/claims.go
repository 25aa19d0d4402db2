package rendering

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload"
)

// Claims counts the devices that pods claim.
type Claims struct {
	// Template and Claim are those of a namespace and name.
	Template func(namespace, name string) (*resourceapi.ResourceClaimTemplate, error)
	Claim    func(namespace, name string) (*resourceapi.ResourceClaim, error)
	// Classes are the resources of quota by the DeviceClasses of which a device is
	// one of the resource. Devices of other classes are not counted.
	Classes map[string]corev1.ResourceName
}

// CountClaims has Render count claimed devices; it must be called before. Without
// it they are not counted.
func (r *Renderer) CountClaims(c Claims) { r.claims = &c }

// Count sets what the pod sets of the job claim. The error is a *reason.Reason where
// that cannot be said.
func (c *Claims) Count(job *workload.Job) error {
	// A claim that several pods name has its devices once.
	shared, payers := sets.New[string](), payersOf(job)
	for i := range job.PodSets {
		ps := &job.PodSets[i]
		ps.Claimed = workload.Claimed{Renamed: c.renamed(ps.ChargedSpec())}
		for _, claim := range ps.ChargedSpec().ResourceClaims {
			switch {
			case claim.ResourceClaimTemplateName != nil:
				name := *claim.ResourceClaimTemplateName
				template, err := c.Template(job.Owner.Namespace, name)
				if err != nil {
					return notFound("ResourceClaimTemplate", name, err)
				}
				if err := c.add(&ps.Claimed.PerPod, &template.Spec.Spec, "ResourceClaimTemplate "+name); err != nil {
					return err
				}
			case claim.ResourceClaimName != nil && payers[*claim.ResourceClaimName] == i && !shared.Has(*claim.ResourceClaimName):
				name := *claim.ResourceClaimName
				shared.Insert(name)
				object, err := c.Claim(job.Owner.Namespace, name)
				if err != nil {
					return notFound("ResourceClaim", name, err)
				}
				if err := c.add(&ps.Claimed.Shared, &object.Spec, "ResourceClaim "+name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// ClaimsGPU says that the pod may get a GPU by what it claims. A claim counts as one for
// GPUs as long as it cannot be read, because its template has not come.
func (r *Renderer) ClaimsGPU(pod *corev1.Pod) bool {
	if r.claims == nil {
		return false
	}
	for i := range pod.Spec.ResourceClaims {
		spec, _, err := r.claims.specOf(pod, &pod.Spec.ResourceClaims[i])
		if err != nil || r.claims.gpus(spec) > 0 {
			return true
		}
	}
	return false
}

// ClaimedGPUs are how many GPUs pods claim together; what several share counts once. All
// devices of a class count as one.
func (r *Renderer) ClaimedGPUs(pods []*corev1.Pod) (n int64) {
	if r.claims == nil {
		return 0
	}
	counted := sets.New[types.NamespacedName]()
	for _, pod := range pods {
		for i := range pod.Spec.ResourceClaims {
			spec, name, err := r.claims.specOf(pod, &pod.Spec.ResourceClaims[i])
			if key := (types.NamespacedName{Namespace: pod.Namespace, Name: name}); err == nil && !counted.Has(key) {
				counted.Insert(key)
				n += r.claims.gpus(spec)
			}
		}
	}
	return n
}

// specOf is what one claim of the pod asks for, and the name of the claim; that of the
// pod's own which has not been made, or has not been heard of, is one that no claim has.
func (c *Claims) specOf(pod *corev1.Pod, claim *corev1.PodResourceClaim) (*resourceapi.ResourceClaimSpec, string, error) {
	name, _, err := resourceclaim.Name(pod, claim)
	if err == nil && name != nil {
		object, err := c.Claim(pod.Namespace, *name)
		switch {
		case err == nil:
			return &object.Spec, object.Name, nil
		case claim.ResourceClaimTemplateName == nil:
			return nil, "", err
		}
	}
	template, err := c.Template(pod.Namespace, ptr.Deref(claim.ResourceClaimTemplateName, ""))
	if err != nil {
		return nil, "", err
	}
	return &template.Spec.Spec, pod.Name + "/" + claim.Name, nil
}

// gpus is how many GPUs a claim asks for.
func (c *Claims) gpus(spec *resourceapi.ResourceClaimSpec) (n int64) {
	counts, _ := c.devices(spec)
	for name, count := range counts {
		if gpu.Is(name) {
			n += count
		}
	}
	return n
}

// payersOf are the pod sets that count for each claim that pods name: the first with
// any pods, or else the first.
func payersOf(job *workload.Job) map[string]int {
	payers := map[string]int{}
	for i := range job.PodSets {
		for _, claim := range job.PodSets[i].ChargedSpec().ResourceClaims {
			if claim.ResourceClaimName == nil {
				continue
			}
			first, found := payers[*claim.ResourceClaimName]
			if !found || (job.PodSets[first].Count == 0 && job.PodSets[i].Count > 0) {
				payers[*claim.ResourceClaimName] = i
			}
		}
	}
	return payers
}

// renamed are those of the pod's requests that name a class instead of a resource.
func (c *Claims) renamed(spec *corev1.PodSpec) (out map[corev1.ResourceName]corev1.ResourceName) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			for class, name := range c.Classes {
				implicit := corev1.ResourceName(resourceapi.ResourceDeviceClassPrefix + class)
				if _, ok := containers[i].Resources.Limits[implicit]; !ok {
					continue
				}
				if out == nil {
					out = map[corev1.ResourceName]corev1.ResourceName{}
				}
				out[implicit] = name
			}
		}
	}
	return out
}

// add counts the devices of one claim.
func (c *Claims) add(list *corev1.ResourceList, spec *resourceapi.ResourceClaimSpec, of string) error {
	counts, unbounded := c.devices(spec)
	if unbounded != "" {
		return reason.New(reason.Misconfigured, "%s, which its pods name, asks for all devices of class %s, whose number is not known", of, unbounded)
	}
	for name, n := range counts {
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		sum := (*list)[name]
		sum.Add(*resource.NewQuantity(n, resource.DecimalSI))
		(*list)[name] = sum
	}
	return nil
}

// devices are the devices that a claim asks for, as resources. Of alternatives that
// count which would take most. unbounded is a class of which all devices are asked for,
// if there is one; they count as one.
func (c *Claims) devices(spec *resourceapi.ResourceClaimSpec) (counts map[corev1.ResourceName]int64, unbounded string) {
	counts = map[corev1.ResourceName]int64{}
	for i := range spec.Devices.Requests {
		request := &spec.Devices.Requests[i]
		most := map[corev1.ResourceName]int64{}
		count := func(class string, mode resourceapi.DeviceAllocationMode, n int64) {
			name, ok := c.Classes[class]
			if !ok {
				return
			}
			if mode == resourceapi.DeviceAllocationModeAll {
				unbounded = class
			}
			most[name] = max(most[name], cmp.Or(n, 1))
		}
		if exact := request.Exactly; exact != nil && !ptr.Deref(exact.AdminAccess, false) {
			count(exact.DeviceClassName, exact.AllocationMode, exact.Count)
		}
		for _, or := range request.FirstAvailable {
			count(or.DeviceClassName, or.AllocationMode, or.Count)
		}
		for name, n := range most {
			counts[name] += n
		}
	}
	return counts, unbounded
}

// notFound is the error of something that a pod names.
func notFound(kind, name string, err error) error {
	if apierrors.IsNotFound(err) {
		return reason.New(reason.Misconfigured, "%s %s, which its pods name, does not exist", kind, name)
	}
	return fmt.Errorf("reading %s %s: %w", kind, name, err)
}
