package identity

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Owner identifies the top-most managed object of a job. The UID is part of
// the identity: a job deleted and created again under its name is another job.
type Owner struct {
	schema.GroupVersionKind
	types.NamespacedName
	UID types.UID
}

// QueueLabel is the label by which an owner asks for a queue: Kueue's.
const QueueLabel = "kueue.x-k8s.io/queue-name"

const (
	maxWorkloadName    = 253
	workloadHashLength = 5
)

// WorkloadName is the name of the owner's Workload: the one that Kueue gives
// with its default settings, so that either of them finds the other's object.
// It is the owner's kind and name, shortened to fit, and five hexadecimal
// digits of a hash over kind, group, name and UID.
//
// A group that only its pods' labels make gives its own name to its Workload.
//
// The name of a replica of a LeaderWorkerSet is made with the UID of the
// LeaderWorkerSet, which the pod does not know.
func WorkloadName(o Owner) string {
	if o.GroupVersionKind == KueueGroupGVK {
		return o.Name
	}
	prefix := strings.ToLower(o.Kind) + "-" + o.Name
	if most := maxWorkloadName - 1 - workloadHashLength; len(prefix) > most {
		prefix = prefix[:most]
	}
	hash := sha1.Sum([]byte(o.Kind + "\n" + o.Group + "\n" + o.Name + "\n" + string(o.UID)))
	return prefix + "-" + hex.EncodeToString(hash[:])[:workloadHashLength]
}
