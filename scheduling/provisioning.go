package scheduling

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

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

	"github.com/muster-gpu/muster/workload"
)

// provisioningGVK is what an autoscaler is asked for nodes by.
var provisioningGVK = schema.GroupVersionKind{Group: "autoscaling.x-k8s.io", Version: "v1", Kind: "ProvisioningRequest"}

const (
	// provisionEvery is how often it is looked at who waits for nodes.
	provisionEvery = 2 * time.Second
	// provisioningStays is how long a request outlives its need while its job waits
	// for something else: what a job waits for may change from one try to the next.
	provisioningStays = 30 * time.Second
	// provisionAgain is how long a request that has failed stands before another is
	// made.
	provisionAgain = 10 * time.Minute
	// provisioningHash on a request is of all that was asked for.
	provisioningHash = "muster.dev/provisioning-hash"
	// noteNodesRefused warns: an autoscaler does not bring the nodes of a job.
	noteNodesRefused = "NodesRefused"
)

// Provisioning is how nodes are asked for that a job without pods waits for.
type Provisioning struct {
	// ClassName is the provisioningClassName of the ProvisioningRequests; empty:
	// none are made.
	ClassName string
	// Parameters are theirs.
	Parameters map[string]string
}

// provisioner keeps one ProvisioningRequest for each job without pods that has quota
// and no nodes.
type provisioner struct {
	*Jobs
	// unwanted is since when requests are not needed that are still there, by the
	// UID of their job.
	unwanted map[types.UID]time.Time
}

// run works until ctx is done.
func (p *provisioner) run(ctx context.Context) {
	for {
		if served, err := p.api.serves(ctx, provisioningGVK); served && err == nil {
			if err := p.provision(ctx); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Asking for nodes failed, trying again")
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-p.clock.After(provisionEvery):
		}
	}
}

// provision makes the requests that are missing, deletes those that are not needed,
// and tells what became of the others.
func (p *provisioner) provision(ctx context.Context) error {
	if !p.ledger.knowsAll() {
		// A request that a scheduler before this one has made would seem to be nobody's.
		return nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(provisioningGVK.GroupVersion().WithKind(provisioningGVK.Kind + "List"))
	if err := p.reader.List(ctx, list, client.HasLabels{provisioningHash}); err != nil {
		return fmt.Errorf("listing ProvisioningRequests: %w", err)
	}
	have := map[types.UID]*unstructured.Unstructured{}
	for i := range list.Items {
		if of := metav1.GetControllerOfNoCopy(&list.Items[i]); of != nil {
			have[of.UID] = &list.Items[i]
		}
	}
	now := p.clock.Now()
	var first error
	keep := func(err error) {
		if err != nil && first == nil {
			first = err
		}
	}
	for _, w := range p.ledger.wantNodes(now) {
		request := have[w.wl.UID]
		delete(have, w.wl.UID)
		delete(p.unwanted, w.wl.UID)
		keep(p.ask(ctx, w, request, now))
	}
	for uid := range p.unwanted {
		if have[uid] == nil {
			delete(p.unwanted, uid)
		}
	}
	for uid, request := range have {
		if p.unwanted[uid].IsZero() {
			p.unwanted[uid] = now
		}
		job, err := p.jobOfRequest(ctx, request)
		if err != nil {
			keep(err)
			continue
		}
		if job == nil || !p.ledger.waitsStill(job.UID) || now.Sub(p.unwanted[uid]) >= provisioningStays {
			keep(p.withdraw(ctx, request))
			if job != nil {
				p.ledger.sayProvisioning(job.UID, "")
			}
		}
	}
	return first
}

// jobOfRequest is the job of a request's Workload; nil if that is gone.
func (p *provisioner) jobOfRequest(ctx context.Context, request *unstructured.Unstructured) (*workload.Owner, error) {
	of, wl := metav1.GetControllerOfNoCopy(request), &kueue.Workload{}
	switch err := p.reader.Get(ctx, client.ObjectKey{Namespace: request.GetNamespace(), Name: of.Name}, wl); {
	case isGone(err) || (err == nil && wl.UID != of.UID):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the Workload of ProvisioningRequest %s: %w", klog.KObj(request), err)
	}
	if owner, ok := workload.OwnerOf(wl); ok {
		return &owner, nil
	}
	return nil, nil
}

// ask has nodes asked for a job by a request, which is nil if there is none yet. One
// for other pods than the job has now, or that has failed long ago, is made anew.
func (p *provisioner) ask(ctx context.Context, w wantsNodes, request *unstructured.Unstructured, now time.Time) error {
	hash := p.hash(w)
	if request == nil {
		return p.create(ctx, w, hash)
	}
	failed := failureOf(request)
	if request.GetLabels()[provisioningHash] != hash || (failed != nil && now.Sub(failed.LastTransitionTime.Time) >= provisionAgain) {
		return p.withdraw(ctx, request)
	}
	says := fmt.Sprintf("; nodes are asked for by ProvisioningRequest %s", request.GetName())
	if failed != nil {
		says = fmt.Sprintf("; ProvisioningRequest %s brings no nodes (%s): %s", request.GetName(), failed.Reason, shorten(failed.Message))
	}
	if p.ledger.sayProvisioning(w.job.Owner.UID, says) && failed != nil {
		p.note(w.job, noteNodesRefused, says[len("; "):])
	}
	return nil
}

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
				return c
			}
		}
	}
	return nil
}

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
// the request that names them.
func (p *provisioner) create(ctx context.Context, w wantsNodes, hash string) error {
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
	request := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"provisioningClassName": p.provisioning.ClassName, "podSets": sets}}}
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
	request.SetOwnerReferences([]metav1.OwnerReference{owner})
	if err := p.client.Create(ctx, request); err != nil && !apierrors.IsAlreadyExists(err) {
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
