package scheduling

import (
	"context"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

const (
	// refusalBound is how long, once a second, the events of the jobs that are
	// given up may take to be read.
	refusalBound = 5 * time.Second
)

// failedCreates are the reasons with which controllers tell that the API server
// did not take a pod: those of Kubernetes, and the Training Operator.
var failedCreates = []string{"FailedCreate", "FailedCreatePod"}

// refusal is what was last said by those who create a job's pods of why they
// could not: a ResourceQuota, Pod Security, a webhook. What was said before the
// job was admitted is marked as such. It is empty where nobody said anything, or it cannot be read.
func (j *Jobs) refusal(ctx context.Context, of lapse) string {
	message, err := j.lastRefusal(ctx, of)
	if err != nil {
		o := of.job.Owner
		klog.FromContext(ctx).Error(err, "Looking for why pods were not created", "job", klog.KRef(o.Namespace, o.Name))
		return ""
	}
	return message
}

func (j *Jobs) lastRefusal(ctx context.Context, of lapse) (string, error) {
	creators, err := j.creators(ctx, of)
	if err != nil {
		return "", err
	}
	var events []corev1.Event
	for _, reason := range failedCreates {
		list := &corev1.EventList{}
		err = j.client.List(ctx, list, client.InNamespace(of.job.Owner.Namespace), client.MatchingFields{"reason": reason})
		if err != nil {
			return "", fmt.Errorf("listing events: %w", err)
		}
		events = append(events, list.Items...)
	}
	// Events have the time in seconds.
	var newest time.Time
	message := ""
	for i := range events {
		ev := &events[i]
		if at := lastSeen(ev); creators.Has(ev.InvolvedObject.UID) && !at.Before(newest) {
			newest, message = at, ev.Message
		}
	}
	for _, head := range []string{"(combined from similar events): ", "Error creating: "} {
		message = strings.TrimPrefix(message, head)
	}
	message = shorten(message)
	if message != "" && newest.Before(of.admitted.Truncate(time.Second)) {
		// Who tells much of one object is silenced by its own client for
		// minutes, so the last word may be that of an earlier start.
		message += ", told at " + newest.UTC().Format(time.RFC3339) + ", before this start"
	}
	return message, nil
}

// creators are the UIDs of the objects that create a job's pods: those that are
// known, and the Jobs of its JobSet, of which there may be no pod.
func (j *Jobs) creators(ctx context.Context, of lapse) (sets.Set[types.UID], error) {
	out, job := of.creators, of.job
	if job.Gated || job.PodOwnerUID == "" {
		return out, nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("JobList"))
	err := j.client.List(ctx, list, client.InNamespace(job.Owner.Namespace), client.MatchingLabels{jobset.JobSetUIDKey: string(job.PodOwnerUID)})
	if err != nil {
		return nil, fmt.Errorf("listing the Jobs of %s %s: %w", job.Owner.Kind, job.Owner.NamespacedName, err)
	}
	for i := range list.Items {
		// Labels can be written by anyone.
		if o := metav1.GetControllerOfNoCopy(&list.Items[i]); o != nil && out.Has(o.UID) {
			out.Insert(list.Items[i].UID)
		}
	}
	return out, nil
}

// lastSeen is when an event was told last, of either of the two events APIs.
func lastSeen(ev *corev1.Event) time.Time {
	last := ev.CreationTimestamp.Time
	times := []time.Time{ev.LastTimestamp.Time, ev.EventTime.Time}
	if ev.Series != nil {
		times = append(times, ev.Series.LastObservedTime.Time)
	}
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}

// shorten cuts what others say to what an event can hold beside our own words.
func shorten(s string) string {
	const most = 512
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
