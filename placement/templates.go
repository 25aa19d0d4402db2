package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/component-helpers/storage/volume"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"
)

// makeClaims makes those claims of the pod that its controllers would make
// from templates, and names the resource claims in the pod's status.
func (c *claims) makeClaims(pod *v1.Pod) *fwk.Status {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil {
			continue
		}
		name := ephemeral.VolumeClaimName(pod, v)
		if _, exists := c.volumes.claim(pod.Namespace, name); exists {
			continue
		}
		if status := c.makeVolumeClaim(pod, name, v); status != nil {
			return status
		}
	}
	named := pod.Status.ResourceClaimStatuses
	for _, r := range pod.Spec.ResourceClaims {
		isNamed := func(s v1.PodResourceClaimStatus) bool { return s.Name == r.Name }
		if r.ResourceClaimTemplateName == nil || c.templates == nil || slices.ContainsFunc(named, isNamed) {
			continue
		}
		template, err := c.templates.ResourceClaimTemplates(pod.Namespace).Get(*r.ResourceClaimTemplateName)
		if apierrors.IsNotFound(err) {
			return refuse("resourceclaimtemplate %q not found", *r.ResourceClaimTemplateName)
		}
		if err != nil {
			return fwk.AsStatus(fmt.Errorf("reading resourceclaimtemplate %s: %w", *r.ResourceClaimTemplateName, err))
		}
		claim := &resourceapi.ResourceClaim{ObjectMeta: *template.Spec.ObjectMeta.DeepCopy(), Spec: template.Spec.Spec}
		setOwned(&claim.ObjectMeta, pod, pod.Name+"-"+r.Name)
		c.devices.tracker.lay(claim)
		// The pod is a copy, the statuses are not: they are appended to another array.
		named = append(slices.Clip(named), v1.PodResourceClaimStatus{Name: r.Name, ResourceClaimName: &claim.Name})
	}
	pod.Status.ResourceClaimStatuses = named
	return nil
}

// makeVolumeClaim makes the claim of a generic ephemeral volume. A claim that
// does not wait for its pod is bound before the pod is scheduled, to a volume
// of which only its class is known.
func (c *claims) makeVolumeClaim(pod *v1.Pod, name string, v *v1.Volume) *fwk.Status {
	template := v.Ephemeral.VolumeClaimTemplate
	claim := &v1.PersistentVolumeClaim{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	setOwned(&claim.ObjectMeta, pod, name)
	claim.Status.Phase = v1.ClaimPending
	if claim.Spec.StorageClassName == nil && claim.Annotations[v1.BetaStorageClassAnnotation] == "" {
		class, err := c.defaultClass()
		if err != nil {
			return fwk.AsStatus(fmt.Errorf("finding the default storage class: %w", err))
		}
		if class != "" {
			claim.Spec.StorageClassName = &class
		}
	}
	className := volume.GetPersistentVolumeClaimClass(claim)
	var class *storagev1.StorageClass
	if className != "" {
		var err error
		if class, err = c.classes.Get(className); apierrors.IsNotFound(err) {
			return refuse("storageclass %q of volume %q not found", className, v.Name)
		} else if err != nil {
			return fwk.AsStatus(fmt.Errorf("reading storage class %s: %w", className, err))
		}
	}
	c.lay(c.volumes.claims, pod.Namespace+"/"+name, claim)
	if class == nil || ptr.Deref(class.VolumeBindingMode, storagev1.VolumeBindingImmediate) == storagev1.VolumeBindingImmediate {
		c.bind(claim, class, nil)
	}
	return nil
}

// defaultClass is the storage class of claims that name none: the newest of
// those marked as default, empty if there is none.
func (c *claims) defaultClass() (string, error) {
	all, err := c.classes.List(labels.Everything())
	if err != nil {
		return "", err
	}
	var found []*storagev1.StorageClass
	for _, class := range all {
		if class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" {
			found = append(found, class)
		}
	}
	if len(found) == 0 {
		return "", nil
	}
	return slices.MinFunc(found, func(a, b *storagev1.StorageClass) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	}).Name, nil
}

// setOwned makes an object one that was made for the pod.
func setOwned(meta *metav1.ObjectMeta, pod *v1.Pod, name string) {
	meta.Name, meta.Namespace = name, pod.Namespace
	meta.UID = types.UID(string(pod.UID) + "/" + name)
	meta.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pod, v1.SchemeGroupVersion.WithKind("Pod"))}
}

func refuse(format string, args ...any) *fwk.Status {
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf(format, args...))
}
