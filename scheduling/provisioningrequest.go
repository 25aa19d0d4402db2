package scheduling

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// provisioningGVK is what an autoscaler is asked for nodes by.
var provisioningGVK = schema.GroupVersionKind{Group: "autoscaling.x-k8s.io", Version: "v1", Kind: "ProvisioningRequest"}

const (
	// provisioningHash is a label of requests and of their templates: of all that was
	// asked for.
	provisioningHash = "muster.dev/provisioning-hash"
	// provisioningFailures is an annotation of requests: how many before it have failed
	// in a row.
	provisioningFailures = "muster.dev/provisioning-failures"
)

// failureOf is the condition by which an autoscaler refuses a request, or takes back
// what it has brought; nil if there is none.
func failureOf(request *unstructured.Unstructured) *metav1.Condition {
	var status struct {
		Conditions []metav1.Condition `json:"conditions"`
	}
	said, _, _ := unstructured.NestedMap(request.Object, "status")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(said, &status); err != nil {
		// What is no condition says nothing.
		return nil
	}
	for i := range status.Conditions {
		c := &status.Conditions[i]
		switch c.Type {
		case "Failed", "CapacityRevoked", "BookingExpired":
			if c.Status == metav1.ConditionTrue {
				if c.LastTransitionTime.IsZero() {
					c.LastTransitionTime = request.GetCreationTimestamp()
				}
				return c
			}
		}
	}
	return nil
}

// failuresBefore is how many requests in a row had failed when this one was made.
func failuresBefore(request *unstructured.Unstructured) int {
	// What is no number says nothing.
	n, _ := strconv.ParseUint(request.GetAnnotations()[provisioningFailures], 10, 16)
	return int(n)
}

// requestsIn are Muster's requests, by the UID of their Workload.
func requestsIn(ctx context.Context, from client.Reader) (map[types.UID]*unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(provisioningGVK.GroupVersion().WithKind(provisioningGVK.Kind + "List"))
	if err := from.List(ctx, list, client.HasLabels{provisioningHash}); err != nil {
		return nil, fmt.Errorf("listing ProvisioningRequests: %w", err)
	}
	out := map[types.UID]*unstructured.Unstructured{}
	for i := range list.Items {
		if of := madeFor(&list.Items[i]); of != nil {
			out[of.UID] = &list.Items[i]
		}
	}
	return out, nil
}

// madeFor is the Workload for which Muster has made an object; nil if another has made
// it.
func madeFor(o client.Object) *metav1.OwnerReference {
	of := metav1.GetControllerOfNoCopy(o)
	if of == nil || of.Kind != "Workload" || !strings.HasPrefix(of.APIVersion, kueue.SchemeGroupVersion.Group+"/") || o.GetLabels()[provisioningHash] == "" {
		return nil
	}
	return of
}

// notMusters is an object of somebody else's that has the name of one of Muster's.
type notMusters struct {
	kind string
	is   client.ObjectKey
}

// Error implements error.
func (o notMusters) Error() string { return fmt.Sprintf("%s %s is not Muster's", o.kind, o.is.Name) }

// hash is of all that is asked for a job.
func (p *provisioner) hash(w wantsNodes) string {
	asked := []any{p.provisioning}
	for i, pod := range w.pods {
		asked = append(asked, w.job.PodSets[i].Count, pod.Labels, pod.Annotations, pod.Spec)
	}
	// A pod was decoded from JSON, and goes back.
	body, _ := json.Marshal(asked)
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])[:16]
}

// create asks for the nodes of a job: a template for each of its pod sets, and then
// the request that names them. It fails with notMusters where others have what is called so.
func (p *provisioner) create(ctx context.Context, w wantsNodes, hash string) error {
	request := &unstructured.Unstructured{}
	request.SetGroupVersionKind(provisioningGVK)
	switch err := p.client.Get(ctx, client.ObjectKeyFromObject(w.wl), request); {
	case err == nil && madeFor(request) == nil:
		return notMusters{provisioningGVK.Kind, client.ObjectKeyFromObject(request)}
	case err == nil:
		// The cache has not seen it yet, or it is of a Workload before this one, and
		// goes.
		return nil
	case !isGone(err):
		return fmt.Errorf("reading ProvisioningRequest %s: %w", klog.KObj(w.wl), err)
	}
	owner := *metav1.NewControllerRef(w.wl, kueue.SchemeGroupVersion.WithKind("Workload"))
	var sets []any
	for i, pod := range w.pods {
		if w.job.PodSets[i].Count == 0 {
			continue
		}
		t := &corev1.PodTemplate{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: w.wl.Namespace, Name: templateName(w.wl, i),
				Labels: map[string]string{provisioningHash: hash}, OwnerReferences: []metav1.OwnerReference{owner},
			},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec},
		}
		if err := p.writeTemplate(ctx, t); err != nil {
			return err
		}
		sets = append(sets, map[string]any{"count": int64(w.job.PodSets[i].Count), "podTemplateRef": map[string]any{"name": t.Name}})
	}
	request.Object = map[string]any{"spec": map[string]any{"provisioningClassName": p.provisioning.ClassName, "podSets": sets}}
	if len(p.provisioning.Parameters) > 0 {
		parameters := map[string]any{}
		for k, v := range p.provisioning.Parameters {
			parameters[k] = v
		}
		request.Object["spec"].(map[string]any)["parameters"] = parameters
	}
	request.SetGroupVersionKind(provisioningGVK)
	request.SetNamespace(w.wl.Namespace)
	request.SetName(w.wl.Name)
	request.SetLabels(map[string]string{provisioningHash: hash})
	if n := p.failed[w.wl.UID].count; n > 0 {
		request.SetAnnotations(map[string]string{provisioningFailures: strconv.Itoa(n)})
	}
	request.SetOwnerReferences([]metav1.OwnerReference{owner})
	if err := p.client.Create(ctx, request); err != nil {
		return fmt.Errorf("creating ProvisioningRequest %s: %w", klog.KObj(request), err)
	}
	return nil
}

// templateName is the name of the template of a pod set of a Workload's request.
func templateName(wl *kueue.Workload, set int) string {
	// What is cut off would tell Workloads of long names apart.
	const most = 200
	if len(wl.Name) <= most {
		return fmt.Sprintf("%s-%d", wl.Name, set)
	}
	return fmt.Sprintf("%s-%s-%d", wl.Name[:most], wl.UID, set)
}

// writeTemplate creates a template, or brings one that was left over up to date.
func (p *provisioner) writeTemplate(ctx context.Context, t *corev1.PodTemplate) error {
	err := p.client.Create(ctx, t.DeepCopy())
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return fmt.Errorf("creating PodTemplate %s: %w", klog.KObj(t), err)
		}
		return nil
	}
	have := &corev1.PodTemplate{}
	if err := p.client.Get(ctx, client.ObjectKeyFromObject(t), have); err != nil {
		return fmt.Errorf("reading PodTemplate %s: %w", klog.KObj(t), err)
	}
	if madeFor(have) == nil {
		return notMusters{"PodTemplate", client.ObjectKeyFromObject(t)}
	}
	if have.Labels[provisioningHash] == t.Labels[provisioningHash] && equality.Semantic.DeepEqual(have.OwnerReferences, t.OwnerReferences) {
		return nil
	}
	t.ResourceVersion = have.ResourceVersion
	if err := p.client.Update(ctx, t); err != nil {
		return fmt.Errorf("updating PodTemplate %s: %w", klog.KObj(t), err)
	}
	return nil
}

// withdraw deletes a request, and before it its templates: what cannot be deleted is
// tried again as long as there is the request.
func (p *provisioner) withdraw(ctx context.Context, request *unstructured.Unstructured) error {
	current := &unstructured.Unstructured{}
	current.SetGroupVersionKind(provisioningGVK)
	err := p.client.Get(ctx, client.ObjectKeyFromObject(request), current)
	if isGone(err) || (err == nil && current.GetUID() != request.GetUID()) {
		// The cache has not seen it yet.
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading ProvisioningRequest %s: %w", klog.KObj(request), err)
	}
	sets, _, _ := unstructured.NestedSlice(request.Object, "spec", "podSets")
	for _, set := range sets {
		m, _ := set.(map[string]any)
		name, _, _ := unstructured.NestedString(m, "podTemplateRef", "name")
		t := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: request.GetNamespace(), Name: name}}
		if err := p.client.Delete(ctx, t); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting PodTemplate %s: %w", klog.KObj(t), err)
		}
	}
	uid := request.GetUID()
	if err := p.client.Delete(ctx, current, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting ProvisioningRequest %s: %w", klog.KObj(request), err)
	}
	return nil
}
