package workload

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/api/reason"
)

// trainingKind is a kind of job of Kubeflow's Training Operator, version 1:
// a PyTorchJob, TFJob, XGBoostJob, PaddleJob or JAXJob. They differ in the names
// of their replicas only. The operator creates the pods of all replicas at once,
// and each pod belongs to the job itself.
//
// PodGroups that the operator makes where it is told to schedule gangs are left
// alone: the job says which pods it has.
type trainingKind struct {
	Options
	kind string
	// specs is the field of spec that holds the replicas, by their type.
	specs string
	// types are the types of replicas that the operator knows, in the order in
	// which Kueue writes them into a Workload.
	types []string
}

var _ Kind = trainingKind{}

func trainingKinds(o Options) []Kind {
	return []Kind{
		trainingKind{o, "PyTorchJob", "pytorchReplicaSpecs", []string{"Master", "Worker"}},
		trainingKind{o, "TFJob", "tfReplicaSpecs", []string{"Chief", "Master", "PS", "Worker", "Evaluator"}},
		trainingKind{o, "XGBoostJob", "xgbReplicaSpecs", []string{"Master", "Worker"}},
		trainingKind{o, "PaddleJob", "paddleReplicaSpecs", []string{"Master", "Worker"}},
		trainingKind{o, "JAXJob", "jaxReplicaSpecs", []string{"Worker"}},
	}
}

func (k trainingKind) GroupVersionKind() schema.GroupVersionKind {
	return trainingVersion.WithKind(k.kind)
}

func (k trainingKind) New() client.Object { return emptyOf(k.GroupVersionKind()) }

func emptyOf(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u
}

// Read implements Kind.
func (k trainingKind) Read(_ context.Context, _ client.Reader, obj client.Object) (*Job, bool, *reason.Reason, error) {
	t, err := k.open(obj)
	if err != nil {
		return nil, false, nil, err
	}
	if t.GetLabels()[QueueLabel] == "" || foreignManager(t.managedBy(), trainingOperator) {
		return nil, false, nil, nil
	}
	job, no := k.read(t)
	return job, true, no, nil
}

// read is what all kinds of training jobs have in common.
func (k trainingKind) read(t *trainingJob) (*Job, *reason.Reason) {
	job := newJob(t.GroupVersionKind(), t)
	job.PodOwnerUID = t.GetUID()
	job.Suspended = t.suspended()
	job.Elastic, job.TimeLimit = k.elastic(t), t.timeLimit()
	job.Finish = finish(t.conditions(), trainingSucceeded, trainingFailed)
	replicas, no := t.authored()
	if no == nil {
		job.PodSets, no = k.podSets(t, replicas)
	}
	if no == nil {
		job.PodPriorityClass = t.priorityClass()
		if job.PodPriorityClass == "" {
			job.PodPriorityClass = podPriorityClass(job.PodSets)
		}
		no = placedAlready(job.PodSets)
	}
	if no == nil {
		no = foreignScheduler(job.PodSets, k.SchedulerNames, "", k.kind+" "+t.GetName(), "create the "+k.kind+" anew")
	}
	if job.over() {
		no = nil
	}
	return job, no
}

// elastic says that the operator gives a running job the number of workers that
// it asks for, and its framework takes them in and lets them go.
func (k trainingKind) elastic(t *trainingJob) bool {
	switch k.kind {
	case "PyTorchJob", "PaddleJob":
		policy, _, _ := unstructured.NestedFieldNoCopy(t.Object, "spec", "elasticPolicy")
		return policy != nil
	case "TFJob":
		dynamic, _, _ := unstructured.NestedBool(t.Object, "spec", "enableDynamicWorker")
		return dynamic
	}
	return false
}

// podSets are those of the replicas. A type of no replicas has no pods, and is
// left out.
func (k trainingKind) podSets(t *trainingJob, replicas []replica) ([]PodSet, *reason.Reason) {
	var sets []PodSet
	for i := range replicas {
		r := &replicas[i]
		if r.count() < 0 {
			return nil, reason.New(reason.Misconfigured, "the replicas %s are %d pods", r.kind, r.count())
		}
		if r.count() == 0 {
			continue
		}
		topology, no := replicaTopology(r)
		if no != nil {
			return nil, no
		}
		sets = append(sets, PodSet{
			Name:           r.podSet(),
			Count:          r.count(),
			Completions:    r.count(),
			PodsPerReplica: r.count(),
			Stamp:          trainingStamp(t, k.kind, r, k.masters(replicas)),
			Template:       r.Template,
			Topology:       topology,
		})
	}
	if len(sets) == 0 {
		return nil, reason.New(reason.Misconfigured, "the %s has no replicas, so no pods: spec.%s has none of %s", k.kind, k.specs, strings.Join(k.types, ", "))
	}
	return sets, nil
}

// masters are the types of replicas of which the pods are marked as the master.
// Without one, it is the first worker of a TFJob, which is not said here: that
// label alone would make its pods differ.
func (k trainingKind) masters(replicas []replica) []string {
	var out []string
	for _, r := range replicas {
		if slices.Contains([]string{"Master", "Chief", "Launcher"}, r.kind) {
			out = append(out, r.kind)
		}
	}
	return out
}

// Suspend implements Kind. The templates are restored in the same request: the
// operator does not look at them while the job is suspended.
func (k trainingKind) Suspend(ctx context.Context, c client.Client, obj client.Object) error {
	t, err := k.open(obj)
	if err != nil {
		return err
	}
	replicas := slices.Clone(t.replicas)
	for i := range replicas {
		template := replicas[i].Template.DeepCopy()
		// Suspending is not to fail for an annotation that somebody spoiled.
		_, _ = restore(template)
		replicas[i].Template = *template
	}
	if err := t.patch(ctx, c, replicas, true); err != nil {
		return fmt.Errorf("suspending %s %s/%s: %w", k.kind, t.GetNamespace(), t.GetName(), err)
	}
	return nil
}

// Resume implements Kind.
func (k trainingKind) Resume(ctx context.Context, c client.Client, obj client.Object, infos []PodSetInfo) error {
	t, err := k.open(obj)
	if err != nil {
		return err
	}
	if err := resumeTraining(ctx, c, t, infos); err != nil {
		return fmt.Errorf("resuming %s %s/%s: %w", k.kind, t.GetNamespace(), t.GetName(), err)
	}
	return nil
}

func resumeTraining(ctx context.Context, c client.Client, t *trainingJob, infos []PodSetInfo) error {
	replicas, no := t.authored()
	if no != nil {
		return no
	}
	found := 0
	for i := range replicas {
		for n := range infos {
			if infos[n].Name != replicas[i].podSet() {
				continue
			}
			in, err := injectionOf(&infos[n], &replicas[i].Template)
			if err == nil {
				err = in.inject(&replicas[i].Template)
			}
			if err != nil {
				return err
			}
			found++
		}
	}
	if found != len(infos) {
		return fmt.Errorf("%d pod sets are to be injected, of which %d are its replicas: it has changed", len(infos), found)
	}
	if !t.suspended() {
		for i := range replicas {
			if !equality.Semantic.DeepEqual(&replicas[i].Template, &t.replicas[i].Template) {
				return ErrNotSuspended
			}
		}
		return nil
	}
	return t.patch(ctx, c, replicas, false)
}
