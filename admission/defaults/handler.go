package defaults

import (
	"context"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Path is where the webhook server serves the Handler.
const Path = "/mutate-defaults"

// lookupTimeout bounds the reads that a request may cost. It stays under the API
// server's own time-out for the webhook (2 s) with room for the answer.
const lookupTimeout = time.Second

const (
	jobSetGroup = "jobset.x-k8s.io"
	// ownManager is the value of managedBy that means what an absent one means.
	ownManager = "jobset.sigs.k8s.io/jobset-controller"
	// jobSetLabel is on the pods of JobSets.
	jobSetLabel = "jobset.sigs.k8s.io/jobset-name"
)

// Handler answers admission requests about JobSets and pods.
type Handler struct {
	catalog *Catalog
	exempt  sets.Set[string]
}

// NewHandler returns a Handler. Objects of the exempt namespaces are left as they
// are.
func NewHandler(catalog *Catalog, exempt []string) *Handler {
	return &Handler{catalog: catalog, exempt: sets.New(exempt...)}
}

// Handle answers with Stamp's patch, or refuses. An error means that what is needed
// for an answer is not known now.
func (h *Handler) Handle(ctx context.Context, req admission.Request) (admission.Response, error) {
	if req.SubResource != "" || h.exempt.Has(req.Namespace) {
		return admission.Allowed(""), nil
	}
	d, err := Read(req.Object.Raw)
	if err != nil {
		// The API server's own validation says what is wrong with it.
		klog.FromContext(ctx).V(2).Info("Passed on an object that could not be read", "reason", err.Error(), "requestUID", req.UID)
		return admission.Allowed(""), nil
	}
	switch kind := (schema.GroupKind{Group: req.Kind.Group, Kind: req.Kind.Kind}); {
	case kind.Group == jobSetGroup && req.Operation == admissionv1.Update:
		return restored(d, req.OldObject.Raw), nil
	case req.Operation != admissionv1.Create:
		return admission.Allowed(""), nil
	case kind.Group == jobSetGroup && !elsewhere(d):
		templates, err := d.Templates()
		return h.stamp(ctx, req, d, templates, err)
	case kind == schema.GroupKind{Kind: podKind} && !placed(d):
		template, err := d.Pod()
		return h.stamp(ctx, req, d, []Template{template}, err)
	}
	return admission.Allowed(""), nil
}

// elsewhere says that another controller runs the JobSet.
func elsewhere(d *Document) bool {
	by, _ := d.get(path{"spec", "managedBy"})
	return by != nil && by != "" && by != ownManager
}

// placed says that a pod was made for a node, or from a template of a JobSet, which
// was stamped when the JobSet was created, or was left as it is: a job whose pods
// are not alike would be worse.
func placed(d *Document) bool {
	node, _ := d.get(path{"spec", "nodeName"})
	return (node != nil && node != "") || member(d)
}

// member says that a pod is a JobSet's.
func member(d *Document) bool {
	_, labelled := d.get(path{"metadata", "labels", jobSetLabel})
	owner := metav1.GetControllerOf(&unstructured.Unstructured{Object: d.root})
	return labelled && owner != nil && owner.Kind == "Job"
}

// restored answers an update of a JobSet that is suspended, or is to be.
func restored(d *Document, raw []byte) admission.Response {
	old, err := Read(raw)
	if err != nil || (!suspended(old) && !suspended(d)) || d.Restore(old) != nil {
		return admission.Allowed("")
	}
	response := admission.Allowed("")
	response.Patches = d.Patch()
	return response
}

func suspended(d *Document) bool {
	suspend, _ := d.get(path{"spec", "suspend"})
	return suspend == true
}

// stamp stamps the templates of the document. unread is why they could not be read.
func (h *Handler) stamp(ctx context.Context, req admission.Request, d *Document, templates []Template, unread error) (admission.Response, error) {
	log := klog.FromContext(ctx).WithValues("kind", req.Kind.Kind, "object", klog.KRef(req.Namespace, req.Name), "requestUID", req.UID)
	if unread != nil {
		log.V(2).Info("Passed on an object that could not be read", "reason", unread.Error())
		return admission.Allowed(""), nil
	}
	if err := h.catalog.Ready(); err != nil {
		return admission.Response{}, err
	}
	all := h.catalog.All()
	if len(all) == 0 || len(templates) == 0 {
		return admission.Allowed(""), nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	subject, err := h.catalog.subject(ctx, req.Namespace, req.Kind.Kind, &unstructured.Unstructured{Object: d.root}, all)
	if err != nil {
		return admission.Response{}, err
	}
	around := h.catalog.around(subject.Namespace, req.Kind.Kind == podKind)
	var refusals []string
	warnings := sets.New[string]()
	for _, template := range templates {
		out := d.Stamp(template, Choose(all, subject, template.Pod.Labels), around)
		refusals = append(refusals, out.Refusals...)
		warnings.Insert(out.Warnings...)
	}
	log.V(2).Info("Decided", "changes", len(d.Patch()), "refusals", len(refusals))
	if len(refusals) > 0 {
		return admission.Denied(strings.Join(refusals, "; ")), nil
	}
	response := admission.Allowed("")
	response.Patches = d.Patch()
	return response.WithWarnings(sets.List(warnings)...), nil
}
