package invariants

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// pod is what matters of a Pod.
type pod struct {
	ref, namespace string
	// jobSet and set are what its labels say: whose pod it is, and of which
	// replicated job. Anyone can write labels. Those of a pod of a batch Job
	// are the Job that controls it, and its one pod set; of a training job, the
	// type of its replicas.
	jobSet types.UID
	set    string
	// alone: the pod has no owner object; it is a job itself, or its group is.
	alone bool
	// index is its number in a batch Job, below 0 if it has none.
	index int32
	node  string
	// requests are what it takes up on its node, the place of a pod included.
	requests amounts[corev1.ResourceName]
	// ended pods have succeeded or failed; they take up nothing any more.
	ended, succeeded bool
	// leaving pods are being deleted; they take up their room until they end.
	leaving bool
	// ours: Muster bound it, as far as the API tells: it was not created on
	// its node, and names a scheduler that Muster serves.
	ours    bool
	boundAt time.Time
}

func (p *pod) onNode() bool { return p != nil && p.node != "" && !p.ended }

func podOf(o *corev1.Pod) *pod {
	p := &pod{
		ref: ref("Pod", o), namespace: o.Namespace, node: o.Spec.NodeName,
		jobSet: types.UID(o.Labels[jobset.JobSetUIDKey]), set: o.Labels[jobset.ReplicatedJobNameKey],
		requests:  amounts[corev1.ResourceName]{},
		succeeded: o.Status.Phase == corev1.PodSucceeded,
		leaving:   o.DeletionTimestamp != nil,
	}
	if owner, alone := workload.PodJob(o); alone {
		p.alone, p.jobSet = true, owner.UID
		p.set = string(kueue.DefaultPodSetName)
		if _, slot, _ := workload.SlotOf(o); slot.PodSet != "" {
			p.set = slot.PodSet
		} else {
			p.set = workload.RoleOf(o)
		}
	}
	if owner := metav1.GetControllerOfNoCopy(o); p.jobSet == "" && owner != nil && (owner.Kind == "Job" || isTraining(owner) || isRay(owner)) {
		p.jobSet, p.set, p.index = owner.UID, workload.MainPodSet, workload.Unnumbered
		if _, slot, ok := workload.SlotOf(o); ok {
			p.set, p.index = slot.PodSet, slot.Completion
		}
	}
	p.ended = p.succeeded || o.Status.Phase == corev1.PodFailed
	for name, q := range resourcehelper.PodRequests(o, resourcehelper.PodResourcesOptions{}) {
		p.requests.add(name, q)
	}
	p.requests.add(corev1.ResourcePods, *resource.NewQuantity(1, resource.DecimalSI))
	return p
}

func (c *Checker) seePod(o *corev1.Pod, gone bool) {
	was, p := c.pods[o.UID], podOf(o)
	if js := c.jobSets[p.jobSet]; js != nil && js.submits {
		p.set = submitterSet
	}
	if p.alone {
		c.seeAlone(o, p)
	}
	bound := p.node != "" && (was == nil || was.node == "")
	switch {
	case bound:
		p.boundAt = c.now
		p.ours = was != nil && slices.Contains(c.options.Schedulers, o.Spec.SchedulerName)
	case was != nil:
		p.boundAt, p.ours = was.boundAt, was.ours
	}
	c.notePod(was, p, o, gone)
	if gone {
		delete(c.pods, o.UID)
	} else {
		c.pods[o.UID] = p
	}
	if p.alone && (gone || p.ended) && !slices.ContainsFunc(c.podsOf(p.jobSet, ""), func(o *pod) bool { return !o.ended }) {
		c.endJob(p.jobSet)
	}
	cl := c.claimOf(p)
	if cl != nil && p.succeeded && (was == nil || !was.succeeded) {
		cl.done[place{p.set, p.node}]++
	}
	switch {
	case gone || p.ended:
		c.settleNode(p.node)
		if cl != nil && c.ended[cl.owner] {
			c.settleClaim(cl)
		}
	case bound:
		if !p.ours {
			c.forgive()
		}
		c.judgeBind(p, cl)
		c.judgeRoom(p.node, p.ours, p.ref+" was bound", p.ref)
	}
	if cl != nil {
		c.started(cl, p.jobSet)
	}
}

func (c *Checker) notePod(was, p *pod, o *corev1.Pod, gone bool) {
	about := []string{p.ref, c.jobRef(p.jobSet)}
	if p.node != "" {
		about = append(about, "Node "+p.node)
	}
	if cl := c.claimOf(p); cl != nil {
		about = append(about, cl.ref)
	}
	say := func(format string, args ...any) { c.note(p.ref+" "+fmt.Sprintf(format, args...), about...) }
	if was == nil && !gone {
		say("is there, for scheduler %s", o.Spec.SchedulerName)
		was = &pod{}
	}
	if was == nil {
		was = p
	}
	if p.node != was.node {
		say("is bound to %s, %s", p.node, list(p.requests))
	}
	if p.ended && !was.ended {
		say("has ended: %s", o.Status.Phase)
	}
	if p.leaving && !was.leaving {
		say("is being deleted")
	}
	if gone {
		say("is gone")
	}
}

// podsOf are the pods of a job, of one pod set unless set is empty.
func (c *Checker) podsOf(job types.UID, set string) []*pod {
	var out []*pod
	for _, p := range c.pods {
		if owner, _ := c.jobOf(p.jobSet); owner == job && job != "" && (set == "" || p.set == set) {
			out = append(out, p)
		}
	}
	return out
}
