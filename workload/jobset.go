package workload

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-gpu/muster/api/reason"
)

// jobSetKind is a JobSet that somebody created as such; one that the Trainer
// made belongs to its TrainJob.
type jobSetKind struct{ Options }

var _ Kind = jobSetKind{}

func (jobSetKind) GroupVersionKind() schema.GroupVersionKind {
	return jobset.SchemeGroupVersion.WithKind("JobSet")
}

func (jobSetKind) New() client.Object { return &jobset.JobSet{} }

// Read implements Kind.
func (k jobSetKind) Read(_ context.Context, _ client.Reader, obj client.Object) (*Job, bool, *reason.Reason, error) {
	js, err := asJobSet(obj)
	if err != nil {
		return nil, false, nil, err
	}
	if js.Labels[QueueLabel] == "" || foreignManager(js.Spec.ManagedBy, jobset.JobSetControllerName) || ownedByTrainJob(js) {
		return nil, false, nil, nil
	}
	job := newJob(k.GroupVersionKind(), js)
	job.Suspended = ptr.Deref(js.Spec.Suspend, false)
	job.Finish = finish(js.Status.Conditions, string(jobset.JobSetCompleted), string(jobset.JobSetFailed))
	no := readJobSet(job, js, k.Options, "create the JobSet anew")
	return job, true, no, nil
}

// readJobSet fills in the parts of a job that its JobSet says, the job's own or
// its child. It returns nothing for a job that is over.
func readJobSet(job *Job, js *jobset.JobSet, o Options, remedy string) *reason.Reason {
	job.PodOwnerUID = js.UID
	jobs, _, no := authored(js)
	if no == nil {
		job.PodSets, no = podSets(jobs, js.Spec.StartupPolicy)
	}
	for i := range job.PodSets {
		job.PodSets[i].Stamp = stampOf(js, i)
		job.PodSets[i].Ended = jobSetEnded(js, &job.PodSets[i])
		job.PodSets[i].Deadline = withRestarts(job.PodSets[i].Deadline, js.Spec.FailurePolicy)
		if no == nil {
			job.PodSets[i].Exclusive, no = exclusiveOf(js, &jobs[i])
		}
	}
	if no == nil {
		job.PodPriorityClass = podPriorityClass(job.PodSets)
		no = placedAlready(job.PodSets)
	}
	if no == nil {
		no = foreignScheduler(job.PodSets, o.SchedulerNames, "", "JobSet "+js.Name, remedy)
	}
	if job.over() {
		return nil
	}
	return no
}

// withRestarts is the deadline of Jobs that a JobSet makes anew when they fail, as
// they do when their time is up: each has the whole time again. There is none where
// a rule lets them be made anew without end.
func withRestarts(deadline *int64, p *jobset.FailurePolicy) *int64 {
	if p == nil {
		return deadline
	}
	for i := range p.Rules {
		switch p.Rules[i].Action {
		case jobset.RestartJobSetAndIgnoreMaxRestarts, jobset.RestartJobAndIgnoreMaxRestarts:
			return nil
		}
	}
	return times(deadline, 1+int64(max(0, p.MaxRestarts)))
}

// jobSetEnded says that all pods of a replicated job are over, because all of
// its Jobs have completed: they stay so when the JobSet is stopped and runs
// again. Nothing is said of one that has completed in part.
func jobSetEnded(js *jobset.JobSet, set *PodSet) *Ended {
	for i := range js.Status.ReplicatedJobsStatus {
		status := &js.Status.ReplicatedJobsStatus[i]
		if status.Name == set.Name && status.Succeeded > 0 && status.Succeeded >= set.Count/set.PodsPerReplica {
			return &Ended{Count: set.Completions}
		}
	}
	return nil
}

func foreignManager(managedBy *string, builtIn string) bool {
	name := ptr.Deref(managedBy, "")
	return name != "" && name != builtIn
}

func ownedByTrainJob(js *jobset.JobSet) bool {
	owner := metav1.GetControllerOfNoCopy(js)
	return owner != nil && isTrainJob(owner)
}

// Suspend implements Kind. The templates are restored in the same request,
// which JobSet accepts for a JobSet that is being suspended.
func (jobSetKind) Suspend(ctx context.Context, c client.Client, obj client.Object) error {
	js, err := asJobSet(obj)
	if err != nil {
		return err
	}
	want := js.DeepCopy()
	for i := range want.Spec.ReplicatedJobs {
		// Suspending is not to fail for an annotation that somebody spoiled.
		_, _ = restore(&want.Spec.ReplicatedJobs[i].Template.Spec.Template)
	}
	want.Spec.Suspend = new(true)
	if err := patchJobSet(ctx, c, js, want); err != nil {
		return fmt.Errorf("suspending JobSet %s/%s: %w", js.Namespace, js.Name, err)
	}
	return nil
}

// Resume implements Kind. JobSet lets the templates change in the very request
// that ends the suspension, because it was suspended before.
func (jobSetKind) Resume(ctx context.Context, c client.Client, obj client.Object, infos []PodSetInfo) error {
	js, err := asJobSet(obj)
	if err != nil {
		return err
	}
	if err := resumeJobSet(ctx, c, js, infos); err != nil {
		return fmt.Errorf("resuming JobSet %s/%s: %w", js.Namespace, js.Name, err)
	}
	return nil
}

func resumeJobSet(ctx context.Context, c client.Client, js *jobset.JobSet, infos []PodSetInfo) error {
	want := js.DeepCopy()
	jobs, _, no := authored(js)
	if no != nil {
		return no
	}
	injections, err := injectionsFor(jobs, infos)
	if err != nil {
		return err
	}
	for i := range jobs {
		if err := injections[i].inject(&jobs[i].Template.Spec.Template); err != nil {
			return err
		}
	}
	want.Spec.ReplicatedJobs = jobs
	if !ptr.Deref(js.Spec.Suspend, false) {
		if !equality.Semantic.DeepEqual(js.Spec.ReplicatedJobs, want.Spec.ReplicatedJobs) {
			return ErrNotSuspended
		}
		return nil
	}
	want.Spec.Suspend = new(false)
	return patchJobSet(ctx, c, js, want)
}

// injectionsFor is the injection of each replicated job, whose templates are
// the author's. Every info must have its replicated job.
func injectionsFor(jobs []jobset.ReplicatedJob, infos []PodSetInfo) ([]*injection, error) {
	injections := make([]*injection, len(jobs))
	found := 0
	for i := range jobs {
		injections[i] = &injection{}
		for n := range infos {
			if infos[n].Name != jobs[i].Name {
				continue
			}
			in, err := injectionOf(&infos[n], &jobs[i].Template.Spec.Template)
			if err != nil {
				return nil, err
			}
			injections[i] = in
			found++
		}
	}
	if found != len(infos) {
		return nil, fmt.Errorf("%d pod sets are to be injected, of which %d are its replicated jobs: it has changed", len(infos), found)
	}
	return injections, nil
}

func asJobSet(obj client.Object) (*jobset.JobSet, error) {
	js, ok := obj.(*jobset.JobSet)
	if !ok {
		return nil, fmt.Errorf("a %T was given where a JobSet is read", obj)
	}
	return js, nil
}
