package workload

import (
	"cmp"
	"math"
	"regexp"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-gpu/muster/api/reason"
)

// podSetName is what the Workload API takes as the name of a pod set.
var podSetName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// authored are the replicated jobs of a JobSet with their pod templates as
// their author wrote them, in copies that may be changed, and what was taken
// out of each.
func authored(js *jobset.JobSet) ([]jobset.ReplicatedJob, []*injection, *reason.Reason) {
	jobs := js.DeepCopy().Spec.ReplicatedJobs
	taken := make([]*injection, len(jobs))
	for i := range jobs {
		in, err := restore(&jobs[i].Template.Spec.Template)
		if err != nil {
			return nil, nil, reason.New(reason.Misconfigured, "pod template of replicated job %q: %v", jobs[i].Name, err)
		}
		taken[i] = in
	}
	return jobs, taken, nil
}

// podSets turns replicated jobs into pod sets, one each.
func podSets(jobs []jobset.ReplicatedJob, startup *jobset.StartupPolicy) ([]PodSet, *reason.Reason) {
	if len(jobs) == 0 {
		return nil, reason.New(reason.Misconfigured, "the JobSet has no replicated jobs, so no pods")
	}
	if len(jobs) > maxPodSets {
		return nil, reason.New(reason.Misconfigured, "the JobSet has %d replicated jobs, and a Workload holds at most %d pod sets",
			len(jobs), maxPodSets)
	}
	phase, no := phases(jobs, startup)
	if no != nil {
		return nil, no
	}
	podSets := make([]PodSet, 0, len(jobs))
	for i := range jobs {
		rj := &jobs[i]
		if !podSetName.MatchString(rj.Name) {
			return nil, reason.New(reason.Misconfigured,
				"replicated job %q has %d characters of which a pod set's name may have 63: lower-case letters, digits and inner '-'",
				rj.Name, len(rj.Name))
		}
		perReplica := podsAtOnce(&rj.Template.Spec)
		count := int64(rj.Replicas) * int64(perReplica)
		if rj.Replicas <= 0 || perReplica <= 0 || count > math.MaxInt32 {
			return nil, reason.New(reason.Misconfigured, "replicated job %q asks for %d pods: %d replicas of %d pods",
				rj.Name, count, rj.Replicas, perReplica)
		}
		topology, no := topologyRequest(rj)
		if no != nil {
			return nil, no
		}
		podSets = append(podSets, PodSet{
			Name:           rj.Name,
			Count:          int32(count),
			Completions:    completions(rj, int32(count)),
			PodsPerReplica: perReplica,
			Phase:          phase[rj.Name],
			Template:       rj.Template.Spec.Template,
			Deadline:       rj.Template.Spec.ActiveDeadlineSeconds,
			Topology:       topology,
		})
	}
	return podSets, nil
}

// podsAtOnce is how many pods a Job runs at a time. The API server defaults
// parallelism to 1; a Job without completions runs as many as parallelism says.
func podsAtOnce(spec *batchv1.JobSpec) int32 {
	parallelism := ptr.Deref(spec.Parallelism, 1)
	return min(parallelism, ptr.Deref(spec.Completions, parallelism))
}

// completions is how many pods of the replicated job must succeed: the Jobs'
// own number where it is above the pods that they run at a time.
func completions(rj *jobset.ReplicatedJob, count int32) int32 {
	each := int64(ptr.Deref(rj.Template.Spec.Completions, 0))
	return max(count, int32(min(each*int64(rj.Replicas), math.MaxInt32)))
}

// phases numbers replicated jobs by when they start: in their order in the list
// where the startup policy says InOrder, else by the longest chain of dependsOn
// before each. Of one length, only those that depend on the same start
// together: one may wait for hours for what the other does not need. Names must
// be unique, and every dependency listed earlier, which is what makes a circle
// impossible.
func phases(jobs []jobset.ReplicatedJob, startup *jobset.StartupPolicy) (map[string]int, *reason.Reason) {
	inOrder := startup != nil && startup.StartupPolicyOrder == jobset.InOrder
	type start struct {
		chain int
		after string
	}
	starts := make([]start, len(jobs))
	chain := make(map[string]int, len(jobs))
	for i := range jobs {
		rj := &jobs[i]
		if _, twice := chain[rj.Name]; twice {
			return nil, reason.New(reason.Misconfigured, "the JobSet has more than one replicated job %q", rj.Name)
		}
		at := 0
		var after []string
		for _, dependency := range rj.DependsOn {
			before, found := chain[dependency.Name]
			if !found {
				return nil, reason.New(reason.Misconfigured, "replicated job %q depends on %q, which is not listed before it",
					rj.Name, dependency.Name)
			}
			at = max(at, before+1)
			after = append(after, dependency.Name+" "+string(dependency.Status))
		}
		if inOrder {
			at = i
		}
		slices.Sort(after)
		chain[rj.Name] = at
		starts[i] = start{at, strings.Join(after, ",")}
	}
	order := slices.Clone(starts)
	slices.SortStableFunc(order, func(a, b start) int { return cmp.Compare(a.chain, b.chain) })
	number := make(map[start]int, len(jobs))
	for _, s := range order {
		if _, found := number[s]; !found {
			number[s] = len(number)
		}
	}
	phase := make(map[string]int, len(jobs))
	for i := range jobs {
		phase[jobs[i].Name] = number[starts[i]]
	}
	return phase, nil
}

// podPriorityClass is the PriorityClass of a job's pods: Kueue takes the first
// one that a template names.
func podPriorityClass(podSets []PodSet) string {
	for i := range podSets {
		if class := podSets[i].Template.Spec.PriorityClassName; class != "" {
			return class
		}
	}
	return ""
}

// placedAlready is the reason why pods that name their node cannot be placed.
func placedAlready(podSets []PodSet) *reason.Reason {
	for i := range podSets {
		if node := podSets[i].Template.Spec.NodeName; node != "" {
			return reason.New(reason.Misconfigured,
				"pod template %q names the node %s in spec.nodeName, so no scheduler places its pods; use a nodeSelector", podSets[i].Name, node)
		}
	}
	return nil
}

// foreignScheduler is the reason why a pod set cannot be placed by a scheduler
// with the given profiles. unset is the name that stands in templates of this
// kind where their author wrote none; owner is whose templates they are, and
// remedy what to do where one is unset.
func foreignScheduler(podSets []PodSet, ours sets.Set[string], unset, owner, remedy string) *reason.Reason {
	for i := range podSets {
		name := podSets[i].Template.Spec.SchedulerName
		switch {
		case name == unset && !ours.Has(corev1.DefaultSchedulerName):
			return reason.New(reason.ForeignScheduler,
				"pod template %q names no scheduler, so %s would take its pods: the webhook did not see %s when it was created; %s",
				podSets[i].Name, corev1.DefaultSchedulerName, owner, remedy)
		case name != unset && !ours.Has(name):
			return reason.New(reason.ForeignScheduler, "pod template %q names the scheduler %s, not one of Muster's (%s)",
				podSets[i].Name, name, profiles(ours))
		}
	}
	return nil
}

func profiles(names sets.Set[string]) string {
	return strings.Join(slices.Sorted(slices.Values(names.UnsortedList())), ", ")
}
