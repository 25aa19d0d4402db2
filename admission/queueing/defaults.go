package queueing

import (
	"strings"

	"gomodules.xyz/jsonpatch/v2"
)

// NeedsDefaultQueue says whether a new object goes to the default queue of its
// namespace if there is one, so that a caller looks only then. schedulerName is
// Muster's.
//
// As in Kueue, that is a job which names no queue, unless it is a part of
// another one. Other than in Kueue, a JobSet, a Job or a training job without GPUs
// is none of ours: most of a cluster's Jobs are, and their teams have not asked for a
// queue. A TrainJob's GPUs may be known to its runtime only, so every TrainJob
// counts. A job that names another scheduler would be refused in the queue, and
// runs where its author has asked for.
func NeedsDefaultQueue(o *Object, schedulerName string) bool {
	if o.body.Metadata == nil || o.body.Spec == nil || o.Queue() != "" || o.child() || o.foreign() || o.serves() || o.onOthers() {
		return false
	}
	if o.kind == TrainJob {
		return true
	}
	asks := false
	for _, s := range o.podSpecs() {
		if !o.namesNone(s) && *s.SchedulerName != schedulerName {
			return false
		}
		asks = asks || s.asksGPU()
	}
	return asks && o.kind != Pod
}

// label is the operation that sets a label.
func (o *Object) label(key, value string) jsonpatch.Operation {
	if o.body.Metadata.Labels == nil {
		return jsonpatch.NewOperation("add", "/metadata/labels", map[string]string{key: value})
	}
	return jsonpatch.NewOperation("add", "/metadata/labels/"+pointer(key), value)
}

// pointer is a key as it is written in a JSON pointer (RFC 6901).
func pointer(key string) string { return escape.Replace(key) }

var escape = strings.NewReplacer("~", "~0", "/", "~1")
