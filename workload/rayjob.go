package workload

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/reason"
)

// rayJobKind is a RayJob with a cluster of its own. KubeRay makes a RayCluster
// for it, and a Job that submits it once the cluster is ready; both are parts
// of it. A RayJob that runs on a cluster which is there takes nothing itself.
type rayJobKind struct{ Options }

var (
	_ Kind   = rayJobKind{}
	_ Parent = rayJobKind{}
)

var rayJobGVK = rayVersion.WithKind("RayJob")

// How KubeRay submits a RayJob, as far as that takes pods or containers.
const (
	raySubmitsByJob     = "K8sJobMode"
	raySubmitsBySidecar = "SidecarMode"
)

func (rayJobKind) GroupVersionKind() schema.GroupVersionKind { return rayJobGVK }

func (rayJobKind) New() client.Object { return newObject(rayJobGVK) }

// Read implements Kind. r must know RayClusters and batch Jobs.
func (k rayJobKind) Read(ctx context.Context, r client.Reader, obj client.Object) (*Job, bool, *reason.Reason, error) {
	o, err := asObject(obj, "RayJob")
	if err != nil {
		return nil, false, nil, err
	}
	by := o.str("spec", "managedBy")
	if o.GetLabels()[QueueLabel] == "" || foreignManager(&by, rayController) || len(o.within("spec", "clusterSelector")) > 0 {
		return nil, false, nil, nil
	}
	job := newJob(rayJobGVK, o)
	job.Elastic = true
	job.Suspended = o.is("spec", "suspend")
	job.TimeLimit = rayTimeLimit(o)
	job.Finish = rayJobFinish(o)
	cluster, err := rayClusterOf(ctx, r, o)
	if err != nil {
		return job, true, nil, err
	}
	if cluster != nil {
		job.PodOwnerUID = cluster.GetUID()
	}
	if job.OtherPodOwners, err = submitterOf(ctx, r, o); err != nil {
		return job, true, nil, err
	}
	sets, no := rayJobSets(o, cluster)
	if no == nil {
		no = readRay(job, k.Options, sets, "create the RayJob anew")
	}
	if no == nil && o.str("status", "jobDeploymentStatus") == "ValidationFailed" {
		no = reason.New(reason.Misconfigured, "KubeRay does not take it: %s", o.str("status", "message"))
	}
	if job.over() {
		no = nil
	}
	return job, true, no, nil
}

// rayJobSets are the pod sets of a RayJob. Where KubeRay's autoscaler changes
// the numbers of workers, it does so in the cluster.
func rayJobSets(o object, cluster *object) ([]PodSet, *reason.Reason) {
	spec := raySpecOf(o, "spec", "rayClusterSpec")
	if spec.fields == nil {
		return nil, reason.New(reason.Misconfigured, "the RayJob has no rayClusterSpec")
	}
	templates, no := spec.templates()
	if no != nil {
		return nil, no
	}
	if cluster != nil && spec.autoscales() && !o.is("spec", "suspend") {
		now := map[string]int64{}
		for _, group := range raySpecOf(*cluster, "spec").groups() {
			name, _ := group["groupName"].(string)
			now[string(kueue.NewPodSetReference(name))] = rayWorkers(group)
		}
		for i := range templates[1:] {
			if n, found := now[templates[i+1].podSet]; found {
				templates[i+1].count = n
			}
		}
	}
	sets, no := spec.podSets(templates)
	if no != nil {
		return nil, no
	}
	switch o.submission() {
	case raySubmitsByJob:
		t, no := o.submitter(templates[0].own)
		if no != nil {
			return nil, no
		}
		set, no := raySet(submitterPodSet, 1, t.own)
		if no != nil {
			return nil, no
		}
		// It is made when the cluster is ready.
		set.Phase = 1
		sets = append(sets, set)
	case raySubmitsBySidecar:
		head := &sets[0].Template.Spec
		head.Containers = append(head.Containers, corev1.Container{Name: rayJobSubmitter, Resources: submitterResources()})
	}
	if len(sets) > maxPodSets {
		return nil, reason.New(reason.Misconfigured, "the RayJob has pods of %d kinds, and a Workload holds at most %d pod sets", len(sets), maxPodSets)
	}
	return sets, nil
}

const rayJobSubmitter = "ray-job-submitter"

// submitterResources are what KubeRay gives a submitter that says nothing.
func submitterResources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")},
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("200Mi")},
	}
}

func (o object) submission() string {
	if mode := o.str("spec", "submissionMode"); mode != "" {
		return mode
	}
	return raySubmitsByJob
}

// submitter is the template of the pod that submits a RayJob: the author's, or
// the one that KubeRay takes without one, on the image of the head and for its
// scheduler.
func (o object) submitter(head *corev1.PodTemplateSpec) (rayTemplate, *reason.Reason) {
	t := rayTemplate{podSet: submitterPodSet, path: "/submitterPodTemplate", count: 1, as: &corev1.PodTemplateSpec{}}
	fields := o.within("spec", "submitterPodTemplate")
	if fields == nil {
		t.own = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			SchedulerName: head.Spec.SchedulerName,
			Containers: []corev1.Container{{
				Name: rayJobSubmitter, Image: head.Spec.Containers[0].Image, Resources: submitterResources(),
			}},
		}}
		return t, nil
	}
	as, err := decodeTemplate(fields)
	if err == nil {
		t.as, t.own = as, as.DeepCopy()
		_, err = restore(t.own)
	}
	if err != nil {
		return t, reason.New(reason.Misconfigured, "submitterPodTemplate: %v", err)
	}
	return t, nil
}

// rayJobFinish reads how the RayJob ended. That it failed may be said before
// KubeRay tries it again.
func rayJobFinish(o object) *Finish {
	switch o.str("status", "jobDeploymentStatus") {
	case "Complete", "Failed":
		return &Finish{Succeeded: o.str("status", "jobStatus") == "SUCCEEDED", Message: o.str("status", "message")}
	}
	return nil
}

// rayClusterOf is the RayCluster that KubeRay made for a RayJob, nil if there
// is none now.
func rayClusterOf(ctx context.Context, r client.Reader, o object) (*object, error) {
	name := o.str("status", "rayClusterName")
	if name == "" {
		return nil, nil
	}
	cluster, err := asObject(newObject(rayClusterGVK), "RayCluster")
	if err != nil {
		return nil, err
	}
	err = r.Get(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: name}, cluster.Unstructured)
	switch {
	case apierrors.IsNotFound(err), apimeta.IsNoMatchError(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading RayCluster %s/%s: %w", o.GetNamespace(), name, err)
	case !metav1.IsControlledBy(cluster, o):
		return nil, nil
	}
	return &cluster, nil
}

// submitterOf is the Job that submits a RayJob, if there is one.
func submitterOf(ctx context.Context, r client.Reader, o object) ([]types.UID, error) {
	submitter := &batchv1.Job{}
	err := r.Get(ctx, client.ObjectKeyFromObject(o), submitter)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading Job %s/%s: %w", o.GetNamespace(), o.GetName(), err)
	case !metav1.IsControlledBy(submitter, o):
		return nil, nil
	}
	return []types.UID{submitter.UID}, nil
}

// Children implements Parent: the RayCluster and the submitter.
func (rayJobKind) Children(ctx context.Context, r client.Reader, obj client.Object) ([]types.UID, error) {
	o, err := asObject(obj, "RayJob")
	if err != nil {
		return nil, err
	}
	cluster, err := rayClusterOf(ctx, r, o)
	if err != nil {
		return nil, err
	}
	out, err := submitterOf(ctx, r, o)
	if cluster != nil {
		out = append(out, cluster.GetUID())
	}
	return out, err
}

// Suspend implements Kind. KubeRay deletes the cluster and the submitter.
func (rayJobKind) Suspend(ctx context.Context, c client.Client, obj client.Object) error {
	return suspendObject(ctx, c, obj, "RayJob")
}

// Resume implements Kind.
func (rayJobKind) Resume(ctx context.Context, c client.Client, obj client.Object, infos []PodSetInfo) error {
	o, err := asObject(obj, "RayJob")
	if err != nil {
		return err
	}
	if err := resumeRayJob(ctx, c, o, infos); err != nil {
		return fmt.Errorf("resuming RayJob %s/%s: %w", o.GetNamespace(), o.GetName(), err)
	}
	return nil
}

func resumeRayJob(ctx context.Context, c client.Client, o object, infos []PodSetInfo) error {
	templates, no := raySpecOf(o, "spec", "rayClusterSpec").templates()
	if no != nil {
		return no
	}
	operations, found, err := rayOperations("/spec/rayClusterSpec", templates, infos)
	if err != nil {
		return err
	}
	if o.submission() == raySubmitsByJob {
		t, no := o.submitter(templates[0].own)
		if no != nil {
			return no
		}
		more, n, err := rayOperations("/spec", []rayTemplate{t}, infos)
		if err != nil {
			return err
		}
		if o.within("spec", "submitterPodTemplate") == nil {
			// KubeRay's own would name no scheduler.
			if more, err = wholeTemplate(t, infos); err != nil {
				return err
			}
		}
		operations, found = append(operations, more...), found+n
	}
	if found != len(infos) {
		return errOtherSets(len(infos), found)
	}
	return resumeRay(ctx, c, o, o.is("spec", "suspend"), operations)
}

// wholeTemplate adds a template that its author left out, with what is injected.
func wholeTemplate(t rayTemplate, infos []PodSetInfo) ([]operation, error) {
	want := t.own.DeepCopy()
	for i := range infos {
		if infos[i].Name != t.podSet {
			continue
		}
		in, err := injectionOf(&infos[i], want)
		if err == nil {
			err = in.inject(want)
		}
		if err != nil {
			return nil, err
		}
	}
	return []operation{{Op: "add", Path: "/spec" + t.path, Value: want}}, nil
}

// rayTimeLimit is when KubeRay ends a RayJob, in seconds after its start: each try
// has its own deadline, and the cluster stays a while after the last, or for ever
// unless it is to be shut down.
func rayTimeLimit(o object) *int64 {
	deadline := positive(o.Unstructured, "spec", "activeDeadlineSeconds")
	if deadline == nil || !o.is("spec", "shutdownAfterJobFinishes") {
		return nil
	}
	tries, stays := int64(1), int64(0)
	if n := positive(o.Unstructured, "spec", "backoffLimit"); n != nil {
		tries += *n
	}
	if n := positive(o.Unstructured, "spec", "ttlSecondsAfterFinished"); n != nil {
		stays = *n
	}
	return new(min(*times(deadline, tries), mostSeconds-min(stays, mostSeconds)) + min(stays, mostSeconds))
}
