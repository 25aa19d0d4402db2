package validate

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/muster-gpu/muster/policy"
)

// Path is where the webhook server serves the Handler.
const Path = "/validate-policies"

// deniedBy is the audit annotation with the policies that refuse a request.
const deniedBy = "denied-by"

// Handler answers admission requests about objects that policies are for.
type Handler struct {
	engine *policy.Engine
	ready  func() error
	exempt sets.Set[string]
}

// NewHandler returns a Handler that asks the engine once ready returns nil: one that
// has not all policies yet would let objects through. Objects of the exempt namespaces
// are allowed.
func NewHandler(engine *policy.Engine, ready func() error, exempt []string) *Handler {
	return &Handler{engine: engine, ready: ready, exempt: sets.New(exempt...)}
}

// Handle answers with what the policies say. An error means that they could not be
// asked.
func (h *Handler) Handle(ctx context.Context, req admission.Request) (admission.Response, error) {
	if h.exempt.Has(req.Namespace) {
		return admission.Allowed(""), nil
	}
	if err := h.ready(); err != nil {
		return admission.Response{}, err
	}
	decision, err := h.engine.Review(ctx, &req.AdmissionRequest)
	if err != nil {
		return admission.Response{}, err
	}
	response := admission.Allowed("")
	if !decision.Allowed {
		response = admission.Denied(decision.Message())
		names := denying(&decision)
		response.AuditAnnotations = map[string]string{deniedBy: strings.Join(names, ",")}
		klog.FromContext(ctx).Info("Denied", "kind", req.Kind.Kind, "object", klog.KRef(req.Namespace, req.Name),
			"operation", req.Operation, "user", req.UserInfo.Username, "policies", names, "requestUID", req.UID)
	}
	return response.WithWarnings(decision.WarningLines()...), nil
}

// denying are the policies that refuse, each once.
func denying(d *policy.Decision) []string {
	names := sets.New[string]()
	for i := range d.Denials {
		names.Insert(d.Denials[i].Policy)
	}
	for i := range d.Failures {
		if d.Failures[i].Does == policy.Deny {
			names.Insert(d.Failures[i].Policy)
		}
	}
	return sets.List(names)
}
