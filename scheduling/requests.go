package scheduling

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-gpu/muster/quota"
	"github.com/muster-gpu/muster/workload"
)

// request is what the job asks of the quota tree.
func (e *entry) request(namespaceLabels map[string]string) quota.Request {
	r := quota.Request{
		ID:              e.job.Owner.UID,
		Priority:        e.priority,
		Created:         e.job.Created,
		Queue:           types.NamespacedName{Namespace: e.job.Owner.Namespace, Name: e.job.Queue},
		NamespaceLabels: namespaceLabels,
	}
	r.PodSets = make([]quota.PodSet, len(e.job.PodSets))
	for i, perPod := range e.perPod() {
		ps := &e.job.PodSets[i]
		r.PodSets[i] = quota.PodSet{Name: ps.Name, Count: ps.Count, PerPod: perPod, Shared: quota.RequestsOf(ps.Claimed.Shared), Template: ps.ChargedSpec(), Levels: levelsAsked(ps.Topology)}
	}
	return r
}

// perPod is what a pod of each pod set requests. It is kept where others request
// it too.
func (e *entry) perPod() []quota.Requests {
	var shared *demand
	if b := e.spot.bucket; b != nil && b.key.shape == e.shape {
		if shared = b.demand; shared.perPod != nil {
			return shared.perPod
		}
	}
	out := requestsOf(e.job)
	if shared != nil && (shared.buckets > 1 || len(e.spot.bucket.jobs.items) > 1) {
		shared.perPod = out
	}
	return out
}

func requestsOf(job *workload.Job) []quota.Requests {
	out := make([]quota.Requests, len(job.PodSets))
	for i := range job.PodSets {
		out[i] = quota.RequestsOf(job.PodSets[i].PerPod())
	}
	return out
}

// mostRequests bounds how many different requests are remembered.
const mostRequests = 256

// known is what a pod of each pod set requests, if pods of other jobs have been
// found to request the same; else it is nil, and remembered for the next.
func (w *waitlist) known(job *workload.Job) []quota.Requests {
	out := requestsOf(job)
	all := true
	for i, r := range out {
		words := r.String()
		if known, ok := w.requests[words]; ok {
			out[i] = known
			continue
		}
		all = false
		if len(w.requests) == mostRequests {
			clear(w.requests)
		}
		w.requests[words] = r
	}
	if !all {
		return nil
	}
	return out
}

// holder is the job as the holder of a charge since reserved.
func (e *entry) holder(reserved time.Time) quota.Holder {
	return quota.Holder{Priority: e.priority, Created: e.job.Created, Reserved: reserved, Queue: e.queue()}
}

// gpus is the number of GPUs that the whole job asks for.
func (e *entry) gpus() int64 { return gpusOf(e.job) }
