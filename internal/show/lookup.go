package show

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// found is a job, its Workload, and all jobs of its namespace.
type found struct {
	job      Job
	workload *kueue.Workload
	all      []Job
}

// find looks a job up by name, kind/name, or the name of its Workload or one of its pods.
func (c *Cluster) find(ctx context.Context, namespace, name string) (*found, error) {
	kind, plain, named := strings.Cut(name, "/")
	if !named {
		kind, plain = "", name
	}
	var names []string
	var jobs []Job
	var of []*kueue.Workload
	err := c.workloads(ctx, func(wl *kueue.Workload) {
		j := jobOf(wl)
		jobs, names = append(jobs, j), append(names, j.id())
		of = append(of, wl)
	}, client.InNamespace(namespace))
	if err != nil {
		return nil, err
	}
	pick := func(is func(*Job) bool) []int {
		var at []int
		for i := range jobs {
			if is(&jobs[i]) {
				at = append(at, i)
			}
		}
		return at
	}
	at := pick(func(j *Job) bool { return j.Name == plain && j.isKind(kind) })
	if len(at) == 0 && (kind == "" || isWorkload(kind)) {
		at = pick(func(j *Job) bool { return j.Workload == plain })
	}
	if len(at) == 0 && (kind == "" || isPod(kind)) {
		if at, err = c.ofPod(ctx, client.ObjectKey{Namespace: namespace, Name: plain}, kind == "", pick); err != nil {
			return nil, err
		}
	}
	switch len(at) {
	case 0:
		return nil, notFound("job with a Workload in namespace "+namespace, name, names)
	case 1:
		sortJobs(jobs)
		rank(jobs)
		wl := of[at[0]]
		i := slices.IndexFunc(jobs, func(j Job) bool { return j.Workload == wl.Name })
		return &found{job: jobs[i], workload: wl, all: jobs}, nil
	}
	var ids []string
	for _, i := range at {
		ids = append(ids, jobs[i].id())
	}
	return nil, fmt.Errorf("%q may be %s: name its kind too", name, strings.Join(ids, " or "))
}

// ofPod finds the jobs that a pod may be of. A pod that does not exist is no error if it
// was only guessed that there might be one.
func (c *Cluster) ofPod(ctx context.Context, key client.ObjectKey, guessed bool, pick func(func(*Job) bool) []int) ([]int, error) {
	pod := &corev1.Pod{}
	if err := c.client.Get(ctx, key, pod); err != nil {
		if guessed {
			return nil, nil
		}
		return nil, cannotRead("pod "+key.String(), err)
	}
	of := membersOf(pod)
	return pick(func(j *Job) bool {
		return slices.ContainsFunc(j.members(), func(m member) bool { return slices.Contains(of, m) })
	}), nil
}

// isKind says that a job is of a kind as users write it: "trainjob", "TrainJobs",
// "job.batch", "" for any.
func (j *Job) isKind(as string) bool {
	name, group, qualified := strings.Cut(strings.ToLower(as), ".")
	if as == "" {
		return true
	}
	kind := strings.ToLower(j.Kind)
	return (name == kind || name == kind+"s") && (!qualified || group == j.Group)
}

func isWorkload(kind string) bool {
	name, _, _ := strings.Cut(strings.ToLower(kind), ".")
	return slices.Contains([]string{"wl", "workload", "workloads"}, name)
}

func isPod(kind string) bool {
	return slices.Contains([]string{"po", "pod", "pods"}, strings.ToLower(kind))
}
