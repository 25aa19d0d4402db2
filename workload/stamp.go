package workload

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/constants"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload/identity"
)

// The labels of the Job's name and UID in their older form, which the Job
// controller writes too.
const (
	legacyJobName       = "job-name"
	legacyControllerUID = "controller-uid"
)

// Stamp is what the controllers write on the pods of a set beyond the
// template, as far as it is known before the pods exist. The zero Stamp is
// that of a set whose controllers write nothing.
type Stamp struct {
	// Labels are the same on all pods of the set.
	Labels map[string]string
	// Namespace and JobPrefix name the Job of each replica: the replica's index
	// follows the prefix.
	Namespace, JobPrefix string
	// FirstGlobal and FirstInGroup are the indices of the first replica among
	// all Jobs of the JobSet, and among those of its group.
	FirstGlobal, FirstInGroup int32
	// Indexed says that the pods of each Job are numbered.
	Indexed bool
	// IndexLabel is the label that holds the pod's number in its set, counted
	// from FirstIndex; empty where there is none.
	IndexLabel string
	FirstIndex int32
}

// RefusedPriority is the reason against a pod of the set that the API server
// would refuse with the label that JobSet's webhook puts on it, nil if there is
// none.
func (p *PodSet) RefusedPriority(pod *corev1.Pod) *reason.Reason {
	if p.Stamp.JobPrefix == "" || p.Exclusive.ByNodeSelector || ptr.Deref(pod.Spec.Priority, 0) >= 0 {
		return nil
	}
	return reason.New(reason.Misconfigured, "its pods have the priority %d, and JobSet writes it into their label %s, where no negative number is allowed; a WorkloadPriorityClass (label %s) may be negative",
		*pod.Spec.Priority, constants.PriorityKey, PriorityClassLabel)
}

// DiffersByReplica says that the pods of different replicas have different
// values of a label.
func DiffersByReplica(label string) bool {
	switch label {
	case jobset.JobIndexKey, jobset.JobKey, jobset.JobGlobalIndexKey, jobset.JobGroupIndexKey:
		return true
	}
	return IsJobTracking(label)
}

// DiffersByPod says that every pod of a replica has a value of its own of a
// label.
func DiffersByPod(label string) bool {
	return label == batchv1.JobCompletionIndexAnnotation || label == identity.ReplicaIndexLabel
}

// LabelsOf are the labels that the controllers write on the pod of a slot. The
// UID of its Job is not among them: there is no Job yet. The map is the
// caller's.
func (p *PodSet) LabelsOf(s Slot) map[string]string {
	out := map[string]string{}
	maps.Copy(out, p.Stamp.Labels)
	if p.Stamp.IndexLabel != "" && s.Completion >= 0 {
		out[p.Stamp.IndexLabel] = strconv.Itoa(int(p.Stamp.FirstIndex + s.Completion))
	}
	if p.Stamp.JobPrefix == "" {
		return out
	}
	name := p.jobName(s.Replica)
	key := sha1.Sum([]byte(p.Stamp.Namespace + "/" + name))
	out[jobset.JobKey] = hex.EncodeToString(key[:])
	out[jobset.JobIndexKey] = strconv.Itoa(int(s.Replica))
	out[jobset.JobGlobalIndexKey] = strconv.Itoa(int(p.Stamp.FirstGlobal + s.Replica))
	out[jobset.JobGroupIndexKey] = strconv.Itoa(int(p.Stamp.FirstInGroup + s.Replica))
	out[batchv1.JobNameLabel], out[legacyJobName] = name, name
	if p.Stamp.Indexed && s.Completion >= 0 {
		out[batchv1.JobCompletionIndexAnnotation] = strconv.Itoa(int(s.Completion))
	}
	return out
}

func (p *PodSet) jobName(replica int32) string { return p.Stamp.JobPrefix + strconv.Itoa(int(replica)) }

// stampOf is what the JobSet and the Job controller will write on the pods of
// replicated job number at of a JobSet.
func stampOf(js *jobset.JobSet, at int) Stamp {
	rj := &js.Spec.ReplicatedJobs[at]
	s := Stamp{
		Namespace: js.Namespace, JobPrefix: js.Name + "-" + rj.Name + "-",
		Indexed: ptr.Deref(rj.Template.Spec.CompletionMode, batchv1.IndexedCompletion) == batchv1.IndexedCompletion,
	}
	var all, group int32
	for i := range js.Spec.ReplicatedJobs {
		o := &js.Spec.ReplicatedJobs[i]
		if i == at {
			s.FirstGlobal, s.FirstInGroup = all, group
		}
		all += o.Replicas
		if o.GroupName == rj.GroupName {
			group += o.Replicas
		}
	}
	s.Labels = map[string]string{
		jobset.JobSetNameKey:         js.Name,
		jobset.JobSetUIDKey:          string(js.UID),
		jobset.ReplicatedJobNameKey:  rj.Name,
		jobset.ReplicatedJobReplicas: strconv.Itoa(int(rj.Replicas)),
		jobset.GlobalReplicasKey:     strconv.Itoa(int(all)),
		jobset.GroupNameKey:          rj.GroupName,
		jobset.GroupReplicasKey:      strconv.Itoa(int(group)),
		constants.RestartsKey:        strconv.Itoa(int(js.Status.Restarts)),
	}
	if c := js.Spec.Coordinator; c != nil {
		subdomain := js.Name
		if js.Spec.Network != nil && js.Spec.Network.Subdomain != "" {
			subdomain = js.Spec.Network.Subdomain
		}
		s.Labels[jobset.CoordinatorKey] = fmt.Sprintf("%s-%s-%d-%d.%s", js.Name, c.ReplicatedJob, c.JobIndex, c.PodIndex, subdomain)
	}
	return s
}

// AttemptOf is the number of the JobSet's restarts before the pod was made, 0
// if the pod does not say it.
func AttemptOf(pod *corev1.Pod) int32 { return attempt(pod.Labels) }

// Attempt is the number of restarts that a set's next pods will tell of.
func (p *PodSet) Attempt() int32 { return attempt(p.Stamp.Labels) }

func attempt(labels map[string]string) int32 {
	n, _ := identity.Ordinal(labels[constants.RestartsKey])
	return n
}
