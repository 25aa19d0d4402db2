package queueing

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Path is where the webhook server serves the Handler.
const Path = "/mutate-queueing"

// Options are what an administrator decides.
type Options struct {
	// SchedulerName is Muster's, and is stamped.
	SchedulerName string
	// DefaultQueue sends jobs that name no queue to the default LocalQueue of their
	// namespace (workload.DefaultQueueOf), where there is one.
	DefaultQueue bool
	// Exempt are the namespaces in which objects are left as they are.
	Exempt []string
}

// Handler answers admission requests with Decide's patch. It always allows,
// has no side effects (a dry run is answered as any other request) and writes
// nothing.
type Handler struct {
	reader  metadata.Interface
	queues  *queues
	options Options
	exempt  sets.Set[string]
}

var _ admission.Handler = &Handler{}

// NewHandler returns a Handler. The reader may get TrainJobs, namespaces and LocalQueues;
// it reads their metadata only, at most two objects for a request. A LocalQueue that it
// has found, and what a namespace says, it does not read again for some seconds of the
// clock.
func NewHandler(reader metadata.Interface, clock clock.Clock, options Options) *Handler {
	return &Handler{reader: reader, queues: newQueues(reader, clock), options: options, exempt: sets.New(options.Exempt...)}
}

// Handle implements admission.Handler.
func (h *Handler) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create || req.SubResource != "" || h.exempt.Has(req.Namespace) {
		return admission.Allowed("")
	}
	name := req.Name
	if name == "" {
		// A generated name does not exist yet.
		name = "(unnamed)"
	}
	log := klog.FromContext(ctx).WithValues("kind", req.Kind.Kind, "object", klog.KRef(req.Namespace, name), "requestUID", req.UID)

	object, err := Parse(schema.GroupKind{Group: req.Kind.Group, Kind: req.Kind.Kind}, req.Object.Raw)
	if err != nil {
		log.V(2).Info("Passed on an object that could not be read", "reason", err.Error())
		return admission.Allowed("")
	}

	around := Surroundings{SchedulerName: h.options.SchedulerName}
	if NeedsOwner(object) {
		owner := object.Owner()
		around.OwnerQueued, err = ownerQueued(ctx, h.reader, req.Namespace, owner)
		if err != nil {
			// Both guesses can be wrong, but not equally. Stamped by mistake, the
			// pods of a job without a queue wait for a scheduler that never takes
			// them, and the template cannot be changed any more: this webhook
			// would be the reason that they do not start. Not stamped by
			// mistake, a queued job's TrainJob is suspended all the same; it
			// holds nothing, the scheduler refuses it with a reason, and deleting
			// its JobSet lets the Trainer make a new one.
			log.Error(err, "Could not read the owner; the scheduler's name is not set")
			return admission.Allowed("").WithWarnings(fmt.Sprintf(
				"TrainJob %s could not be read, so the scheduler's name was not set; if it is queued, delete this JobSet to have it made again",
				klog.KRef(req.Namespace, owner.Name)))
		}
	}

	if h.options.DefaultQueue && NeedsDefaultQueue(object, h.options.SchedulerName) {
		if around.DefaultQueue, err = h.queues.defaultOf(ctx, req.Namespace); err != nil {
			// Labelled by mistake, the job would wait for a queue that does not
			// exist. Not labelled by mistake, it runs as jobs without a queue do.
			log.Error(err, "Could not look for the default queue; the job is left as it is")
		}
	}

	response := admission.Allowed("")
	response.Patches = Decide(object, around)
	if queue := object.Queue(); queue != "" && object.kind != Pod && !object.serves() && !object.child() && !object.foreign() {
		if h.queues.missing(ctx, req.Namespace, queue) {
			response = response.WithWarnings(fmt.Sprintf(
				"queue %q does not exist in namespace %q; the job stays suspended until it does", queue, req.Namespace))
		}
	}
	log.V(2).Info("Decided", "changes", len(response.Patches), "dryRun", req.DryRun != nil && *req.DryRun)
	return response
}
