package rendering

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	resourcelisters "k8s.io/client-go/listers/resource/v1"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload"
)

// Claims counts the devices that pods claim.
type Claims struct {
	Templates resourcelisters.ResourceClaimTemplateLister
	Claims    resourcelisters.ResourceClaimLister
	// Classes are the resources of quota by the DeviceClasses of which a device is
	// one of the resource. Devices of other classes are not counted.
	Classes map[string]corev1.ResourceName
}

// CountClaims has Render count claimed devices; it must be called before. Without
// it they are not counted.
func (r *Renderer) CountClaims(c Claims) { r.claims = &c }

// count sets what the pod sets of the job claim. The error is a *reason.Reason where
// that cannot be said.
func (c *Claims) count(job *workload.Job) error {
	// A claim that several pods name has its devices once.
	shared, payers := sets.New[string](), payersOf(job)
	for i := range job.PodSets {
		ps := &job.PodSets[i]
		ps.Claimed = workload.Claimed{Renamed: c.renamed(ps.ChargedSpec())}
		for _, claim := range ps.ChargedSpec().ResourceClaims {
			switch {
			case claim.ResourceClaimTemplateName != nil:
				name := *claim.ResourceClaimTemplateName
				template, err := c.Templates.ResourceClaimTemplates(job.Owner.Namespace).Get(name)
				if err != nil {
					return notFound("ResourceClaimTemplate", name, err)
				}
				if err := c.add(&ps.Claimed.PerPod, &template.Spec.Spec, "ResourceClaimTemplate "+name); err != nil {
					return err
				}
			case claim.ResourceClaimName != nil && payers[*claim.ResourceClaimName] == i && !shared.Has(*claim.ResourceClaimName):
				name := *claim.ResourceClaimName
				shared.Insert(name)
				object, err := c.Claims.ResourceClaims(job.Owner.Namespace).Get(name)
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

// add counts the devices of one claim. Of alternatives that count which would take
// most.
func (c *Claims) add(list *corev1.ResourceList, spec *resourceapi.ResourceClaimSpec, of string) error {
	put := func(counts map[corev1.ResourceName]int64) {
		for name, n := range counts {
			if *list == nil {
				*list = corev1.ResourceList{}
			}
			sum := (*list)[name]
			sum.Add(*resource.NewQuantity(n, resource.DecimalSI))
			(*list)[name] = sum
		}
	}
	for i := range spec.Devices.Requests {
		request := &spec.Devices.Requests[i]
		most := map[corev1.ResourceName]int64{}
		count := func(class string, mode resourceapi.DeviceAllocationMode, n int64) error {
			name, ok := c.Classes[class]
			if !ok {
				return nil
			}
			if mode == resourceapi.DeviceAllocationModeAll {
				return reason.New(reason.Misconfigured, "%s, which its pods name, asks for all devices of class %s, whose number is not known", of, class)
			}
			most[name] = max(most[name], cmp.Or(n, 1))
			return nil
		}
		if exact := request.Exactly; exact != nil && (exact.AdminAccess == nil || !*exact.AdminAccess) {
			if err := count(exact.DeviceClassName, exact.AllocationMode, exact.Count); err != nil {
				return err
			}
		}
		for _, or := range request.FirstAvailable {
			if err := count(or.DeviceClassName, or.AllocationMode, or.Count); err != nil {
				return err
			}
		}
		put(most)
	}
	return nil
}

// notFound is the error of something that a pod names.
func notFound(kind, name string, err error) error {
	if apierrors.IsNotFound(err) {
		return reason.New(reason.Misconfigured, "%s %s, which its pods name, does not exist", kind, name)
	}
	return fmt.Errorf("reading %s %s: %w", kind, name, err)
}
