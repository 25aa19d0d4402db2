package reason

import "fmt"

// Class is the bounded kind of a "no": a metric label value and the reason of
// a condition, in CamelCase as the Kubernetes API conventions ask.
type Class string

// The classes. Those that Kueue names carry Kueue's names.
const (
	// Misconfigured: the job cannot be read as pods with resources.
	Misconfigured Class = "Misconfigured"
	// RuntimeNotFound: a TrainJob names a runtime that does not exist.
	RuntimeNotFound Class = "RuntimeNotFound"
	// WaitingForPodTemplates: the controller that writes the job's pod
	// templates has not written them yet.
	WaitingForPodTemplates Class = "WaitingForPodTemplates"
	// WaitingForPods: pods of the group are still to be created.
	WaitingForPods Class = "WaitingForPods"
	// PodGroupNotFound: pods name a PodGroup that does not exist.
	PodGroupNotFound Class = "PodGroupNotFound"
	// NoQueue: GPU pods without a queue are held, by configuration.
	NoQueue Class = "NoQueue"
	// ForeignScheduler: a pod template names a scheduler that is not Muster.
	ForeignScheduler Class = "ForeignScheduler"
	// QueueNotFound: the LocalQueue or its ClusterQueue does not exist.
	QueueNotFound Class = "QueueNotFound"
	// QueueInactive: the queue is stopped, or its ClusterQueue is not active.
	QueueInactive Class = "QueueInactive"
	// NamespaceMismatch: the ClusterQueue's namespaceSelector does not match.
	NamespaceMismatch Class = "NamespaceMismatch"
	// NoMatchingFlavor: no flavor of the ClusterQueue offers what is asked.
	NoMatchingFlavor Class = "NoMatchingFlavor"
	// ExceedsMaxQuota: more is asked than the queue could ever give.
	ExceedsMaxQuota Class = "ExceedsMaxQuota"
	// WaitingForQuota: the quota exists but is in use.
	WaitingForQuota Class = "WaitingForQuota"
	// WaitingForPreemptedWorkloads: other jobs are being stopped for it.
	WaitingForPreemptedWorkloads Class = "WaitingForPreemptedWorkloads"
	// ExceedsCluster: the nodes could not hold the job even if they were empty.
	ExceedsCluster Class = "ExceedsCluster"
	// NoPlacement: the quota is free, but no set of nodes takes the whole job.
	NoPlacement Class = "NoPlacement"
	// PendingEvaluation: the job stands behind another in a StrictFIFO queue, and
	// is not tried before it.
	PendingEvaluation Class = "PendingEvaluation"
	// BackingOff: an earlier start failed and the retry time has not come.
	BackingOff Class = "BackingOff"
	// Deactivated: spec.active of the Workload is false.
	Deactivated Class = "Deactivated"
	// AnotherScheduler: a live Kueue manager decides quota in this cluster.
	AnotherScheduler Class = "AnotherScheduler"
)

// Reason is one "no": why a job may not start now.
type Reason struct {
	Class Class
	// Message is one sentence with numbers, without a final full stop, that
	// reads well after "pending: ".
	Message string
}

// New returns a Reason whose message is formatted as fmt.Sprintf does.
func New(class Class, format string, args ...any) *Reason {
	return &Reason{Class: class, Message: fmt.Sprintf(format, args...)}
}

// And is the Reason with more at the end of its sentence; nil stays nil.
func (r *Reason) And(more string) *Reason {
	if r == nil || more == "" {
		return r
	}
	return &Reason{Class: r.Class, Message: r.Message + more}
}

// String is the sentence alone.
func (r *Reason) String() string {
	if r == nil {
		return ""
	}
	return r.Message
}

// Error lets a Reason travel as an error; callers get it back with errors.As.
func (r *Reason) Error() string { return r.String() }
