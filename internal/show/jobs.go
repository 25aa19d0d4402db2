package show

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// JobOptions say which jobs are shown.
type JobOptions struct {
	// Namespace of the jobs; all if empty.
	Namespace string
	// Queue is a LocalQueue, or the ClusterQueue of some; all if empty.
	Queue string
	// State is one of States; all but those that have finished if empty.
	State string
}

// ShowJobs shows jobs.
func (c *Cluster) ShowJobs(ctx context.Context, o Output, q JobOptions) error {
	jobs, err := c.Jobs(ctx, q)
	switch {
	case err != nil:
		return err
	case o.structured():
		return o.encode(listOf("Job", jobs))
	case o.Format == "name":
		return o.names(namesOf(jobs, func(j Job) string { return j.id() }))
	}
	if len(jobs) == 0 {
		_, err := fmt.Fprintln(o.Out, q.nothing())
		return err
	}
	return o.table(jobTable(jobs, q.Namespace == "", c.now()))
}

func (q JobOptions) nothing() string {
	out := "No queued jobs"
	if q.State != "" {
		out += " that are " + q.State
	}
	if q.Queue != "" {
		out += " in queue " + q.Queue
	}
	if q.Namespace != "" {
		out += " in namespace " + q.Namespace
	}
	return out + "."
}

// Jobs reads jobs: those that run first, then those that wait in queue order.
func (c *Cluster) Jobs(ctx context.Context, q JobOptions) ([]Job, error) {
	if q.State != "" && !slices.Contains(States, q.State) {
		return nil, fmt.Errorf("unknown state %q: it is one of %s", q.State, strings.Join(States, ", "))
	}
	in, err := c.localQueuesNamed(ctx, q)
	if err != nil {
		return nil, err
	}
	var all []Job
	err = c.workloads(ctx, func(wl *kueue.Workload) {
		if j := jobOf(wl); in == nil || in[[2]string{j.Namespace, j.Queue}] {
			all = append(all, j)
		}
	}, client.InNamespace(q.Namespace))
	if err != nil {
		return nil, err
	}
	sortJobs(all)
	rank(all)
	all = slices.DeleteFunc(all, func(j Job) bool {
		return j.Phase != q.State && (q.State != "" || j.Phase == finished)
	})
	if !slices.ContainsFunc(all, func(j Job) bool { return j.Phase == running }) {
		return all, nil
	}
	pods := tally{}
	if err := c.pods(ctx, pods.add, client.InNamespace(q.Namespace)); err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Phase == running {
			all[i].Ready = pods.of(&all[i])
		}
	}
	return all, nil
}

// localQueuesNamed are the LocalQueues that are called so, and those of the ClusterQueue
// that is; nil if all are meant.
func (c *Cluster) localQueuesNamed(ctx context.Context, q JobOptions) (map[[2]string]bool, error) {
	if q.Queue == "" {
		return nil, nil
	}
	in := map[[2]string]bool{}
	var names []string
	err := c.localQueues(ctx, func(lq *kueue.LocalQueue) {
		names = append(names, lq.Name, string(lq.Spec.ClusterQueue))
		if lq.Name == q.Queue || string(lq.Spec.ClusterQueue) == q.Queue {
			in[[2]string{lq.Namespace, lq.Name}] = true
		}
	}, client.InNamespace(q.Namespace))
	if err == nil && len(in) == 0 {
		err = notFound("queue", q.Queue, names)
	}
	return in, err
}

func jobTable(jobs []Job, namespaces bool, now time.Time) *table {
	columns := []string{"Name", "Kind", "Queue", "Priority", "GPUs", "Pods", "State", "Position", "For", "Why", "|", "Cluster-Queue", "Workload", "Message"}
	if namespaces {
		columns = slices.Insert(columns, 0, "Namespace")
	}
	t := newTable(columns...)
	for i := range jobs {
		j := &jobs[i]
		pods := fmt.Sprintf("%d/%d", j.Ready, j.Pods)
		if j.Phase != running {
			pods = fmt.Sprintf("-/%d", j.Pods)
		}
		position := ""
		if j.Position > 0 {
			position = strconv.Itoa(j.Position)
		}
		cells := []string{
			j.Name, j.Kind, j.Queue, strconv.Itoa(int(j.Priority)), strconv.FormatInt(j.GPUs, 10), pods, j.State, position,
			since(j.Since.Time, now), j.Reason, orNone(j.ClusterQueue), j.Workload, j.Message,
		}
		if namespaces {
			cells = slices.Insert(cells, 0, j.Namespace)
		}
		t.add(j.tone(), cells...)
	}
	return t
}

func (j *Job) tone() tone {
	switch {
	case j.State == "Failed":
		return bad
	case j.State == "Stopping" || j.State == "Deactivated" || (j.Phase == running && j.Reason != ""):
		return warning
	case j.Phase == running:
		return good
	}
	return plain
}

// since is how long ago t was, as kubectl writes ages.
func since(t, now time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(t))
}
