package show

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/inquiry"
	"github.com/muster-gpu/muster/api/v1alpha1"
)

// Explanation is all that is known of one job.
type Explanation struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Job        Job    `json:"job"`
	// Owners lead from the job to its pods, as "TrainJob llm", "JobSet llm", "Job
	// llm-node-0"; of siblings the first one stands for all.
	Owners []string `json:"owners,omitempty"`
	// AllPositions is how many jobs wait in its LocalQueue.
	AllPositions int `json:"allPositions,omitempty"`
	// Scheduler is what the scheduler says at this moment, where it could be asked.
	Scheduler *inquiry.Standing `json:"scheduler,omitempty"`
	// NotAsked is why Scheduler is missing although it was to be asked.
	NotAsked string `json:"notAsked,omitempty"`
	// InTheWay are the jobs of its ClusterQueue that hold quota, those first that are
	// expected to free it first. Hidden: there may be more in namespaces that may not
	// be read.
	InTheWay []Obstacle `json:"inTheWay,omitempty"`
	Hidden   bool       `json:"hidden,omitempty"`
	// Nodes are where the job is.
	Nodes []NodeShare `json:"nodes,omitempty"`
	// Conditions are what else its Workload says that matters.
	Conditions []string `json:"conditions,omitempty"`
}

// Obstacle is a job that holds what another one waits for.
type Obstacle struct {
	Job Job `json:"job"`
	// Ends is when it will have ended by its time limit, zero if it has none.
	Ends metav1.Time `json:"ends,omitzero"`
}

// NodeShare is what of a job is on one node.
type NodeShare struct {
	Node string `json:"node"`
	Pods int    `json:"pods"`
	GPUs []GPU  `json:"gpus,omitempty"`
}

// mostObstacles is how many jobs in the way are named.
const mostObstacles = 10

// ShowExplanation shows all that is known of a job.
func (c *Cluster) ShowExplanation(ctx context.Context, o Output, namespace, name string, scheduler *Scheduler) error {
	e, err := c.Explain(ctx, namespace, name, scheduler)
	switch {
	case err != nil:
		return err
	case o.structured():
		return o.encode(e)
	case o.Format == "name":
		return o.names([]string{e.Job.id()})
	}
	return e.write(o.Out, c.now())
}

// Explain reads what is known of a job. scheduler is nil if it is not to be asked.
func (c *Cluster) Explain(ctx context.Context, namespace, name string, scheduler *Scheduler) (*Explanation, error) {
	f, err := c.find(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	e := &Explanation{APIVersion: outputVersion, Kind: "Explanation", Job: f.job}
	for i := range f.all {
		if j := &f.all[i]; j.State == "Pending" && j.Queue == f.job.Queue {
			e.AllPositions++
		}
	}
	if f.job.Phase == pending && scheduler != nil {
		if e.Scheduler, err = scheduler.Explain(ctx, namespace, f.job.Workload); err != nil {
			e.Scheduler, e.NotAsked = nil, err.Error()
		}
	}
	switch f.job.Phase {
	case pending:
		err = c.obstacles(ctx, e)
	case running:
		err = c.placement(ctx, e)
	}
	e.conditions(f.workload)
	return e, err
}

// obstacles finds the jobs that hold quota in the ClusterQueue.
func (c *Cluster) obstacles(ctx context.Context, e *Explanation) error {
	queue := &kueue.LocalQueue{}
	if err := c.client.Get(ctx, client.ObjectKey{Namespace: e.Job.Namespace, Name: e.Job.Queue}, queue); err != nil {
		// That there is none is the reason that the job gives.
		return client.IgnoreNotFound(err)
	}
	e.Job.ClusterQueue = string(queue.Spec.ClusterQueue)
	in := ""
	err := c.admittedIn(ctx, e, in)
	if apierrors.IsForbidden(err) {
		e.Hidden = true
		err = c.admittedIn(ctx, e, e.Job.Namespace)
	}
	slices.SortStableFunc(e.InTheWay, func(a, b Obstacle) int { return a.before(&b) })
	return err
}

func (c *Cluster) admittedIn(ctx context.Context, e *Explanation, namespace string) error {
	return c.workloads(ctx, func(wl *kueue.Workload) {
		if j := jobOf(wl); j.Phase == running && j.ClusterQueue == e.Job.ClusterQueue {
			e.InTheWay = append(e.InTheWay, Obstacle{Job: j, Ends: metav1.NewTime(endOf(wl))})
		}
	}, client.InNamespace(namespace))
}

// before is the order in which quota is expected back: of those that are stopping first,
// then by their time limits; of the rest nothing says when.
func (o *Obstacle) before(p *Obstacle) int {
	stays := func(o *Obstacle) int {
		switch {
		case o.Job.State == "Stopping":
			return 0
		case !o.Ends.IsZero():
			return 1
		}
		return 2
	}
	return cmp.Or(cmp.Compare(stays(o), stays(p)), o.Ends.Compare(p.Ends.Time), o.Job.Since.Compare(p.Job.Since.Time))
}

// endOf is when the job's time limit ends it, zero if it has none.
func endOf(wl *kueue.Workload) time.Time {
	limit := wl.Spec.MaximumExecutionTimeSeconds
	admitted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted)
	if limit == nil || admitted == nil {
		return time.Time{}
	}
	left := *limit
	if past := wl.Status.AccumulatedPastExecutionTimeSeconds; past != nil {
		left -= *past
	}
	return admitted.LastTransitionTime.Add(time.Duration(left) * time.Second)
}

// placement finds the job's pods, their owners and their GPUs.
func (c *Cluster) placement(ctx context.Context, e *Explanation) error {
	on := map[string]*NodeShare{}
	share := func(node string) *NodeShare {
		if on[node] == nil {
			on[node] = &NodeShare{Node: node}
		}
		return on[node]
	}
	for _, node := range e.Job.nodes {
		share(node).Pods++
	}
	pods := map[[2]string]bool{}
	var first *corev1.Pod
	err := c.pods(ctx, func(p *corev1.Pod) {
		of := membersOf(p)
		if !slices.ContainsFunc(e.Job.members(), func(m member) bool { return slices.Contains(of, m) }) {
			return
		}
		pods[[2]string{p.Namespace, p.Name}] = true
		if ready(p) {
			e.Job.Ready++
		}
		if first == nil || p.Name < first.Name {
			first = p
		}
		if len(e.Job.nodes) == 0 && p.Spec.NodeName != "" {
			share(p.Spec.NodeName).Pods++
		}
	}, client.InNamespace(e.Job.Namespace))
	if err != nil {
		return err
	}
	e.Job.Ready = min(e.Job.Ready, e.Job.Pods)
	if e.Owners, err = c.owners(ctx, first); err != nil {
		return err
	}
	var gpus GPUReport
	err = pages(ctx, c, "GPUNodes", func() *v1alpha1.GPUNodeList { return &v1alpha1.GPUNodeList{} }, func(l *v1alpha1.GPUNodeList) {
		for i := range l.Items {
			if on[l.Items[i].Name] != nil {
				gpus.add(&l.Items[i], GPUOptions{}, c.now())
			}
		}
	})
	// Without agents, or the right to read what they say, nothing is said of GPUs.
	if err != nil && !absent(err) && !apierrors.IsForbidden(err) {
		return err
	}
	for _, g := range gpus.GPUs {
		if pods[[2]string{g.Namespace, g.Pod}] {
			on[g.Node].GPUs = append(on[g.Node].GPUs, g)
		}
	}
	for _, s := range on {
		e.Nodes = append(e.Nodes, *s)
	}
	slices.SortFunc(e.Nodes, func(a, b NodeShare) int { return strings.Compare(a.Node, b.Node) })
	return nil
}

// mostOwners bounds a chain of owners.
const mostOwners = 8

// owners leads from the topmost owner of a pod to it.
func (c *Cluster) owners(ctx context.Context, pod *corev1.Pod) ([]string, error) {
	if pod == nil {
		return nil, nil
	}
	chain := []string{"Pod " + pod.Name}
	ref := metav1.GetControllerOfNoCopy(pod)
	for ref != nil && len(chain) < mostOwners {
		chain = append(chain, ref.Kind+" "+ref.Name)
		owner := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: ref.APIVersion, Kind: ref.Kind}}
		if err := c.client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: ref.Name}, owner); err != nil {
			// The chain ends where it may not be read.
			break
		}
		ref = metav1.GetControllerOfNoCopy(owner)
	}
	slices.Reverse(chain)
	return chain, nil
}

// conditions are what of a Workload's conditions the job's state does not say.
func (e *Explanation) conditions(wl *kueue.Workload) {
	for _, kind := range []string{kueue.WorkloadEvicted, kueue.WorkloadPreempted, kueue.WorkloadPodsReady, "muster.dev/Idle"} {
		c := apimeta.FindStatusCondition(wl.Status.Conditions, kind)
		if c == nil || (kind == kueue.WorkloadPodsReady) == (c.Status == metav1.ConditionTrue) {
			continue
		}
		e.Conditions = append(e.Conditions, fmt.Sprintf("%s=%s (%s): %s", kind, c.Status, c.Reason, c.Message))
	}
	if r := wl.Status.RequeueState; r != nil && r.RequeueAt != nil && e.Job.State == "Pending" {
		e.Conditions = append(e.Conditions, "tried again at "+r.RequeueAt.UTC().Format(time.RFC3339))
	}
}

// write writes an Explanation for people.
func (e *Explanation) write(out io.Writer, now time.Time) error {
	w := &page{out: out}
	j := &e.Job
	w.line("%s %s", j.String(), e.headline(now))
	queue := j.Queue
	if j.ClusterQueue != "" {
		queue += ", ClusterQueue " + j.ClusterQueue
	}
	w.field("Queue", "%s", queue)
	w.field("Size", "%d GPUs, %d pods, priority %d", j.GPUs, j.Pods, j.Priority)
	if len(e.Owners) > 0 {
		w.field("Owners", "%s", strings.Join(e.Owners, " -> "))
	}
	switch j.Phase {
	case pending:
		e.writePending(w, now)
	case running:
		w.field("Pods", "%d of %d ready", j.Ready, j.Pods)
		w.field("Placed", "%s", j.Placement)
		for _, n := range e.Nodes {
			w.line("  %s: %d pods%s", n.Node, n.Pods, n.gpus(now))
		}
	default:
		w.field("Result", "%s", j.Message)
	}
	for _, c := range e.Conditions {
		w.field("Condition", "%s", c)
	}
	return w.err
}

func (e *Explanation) headline(now time.Time) string {
	j := &e.Job
	age := since(j.Since.Time, now)
	switch j.Phase {
	case running:
		if j.State == "Stopping" {
			return "is being stopped, it ran for " + age
		}
		return "runs, for " + age
	case finished:
		return "has ended (" + strings.ToLower(j.State) + "), " + age + " ago"
	}
	if j.State == "Deactivated" {
		return "is parked, for " + age
	}
	return "waits, for " + age
}

func (e *Explanation) writePending(w *page, now time.Time) {
	j := &e.Job
	class, message := j.Reason, j.Message
	if s := e.Scheduler; s != nil {
		if s.Reason != "" {
			class, message = s.Reason, s.Message
		}
		if s.Position > 0 {
			w.field("Position", "%d of %d in ClusterQueue %s", s.Position, s.Pending, s.ClusterQueue)
		}
	} else if j.Position > 0 {
		w.field("Position", "%d of %d in LocalQueue %s", j.Position, e.AllPositions, j.Queue)
	}
	if e.NotAsked != "" {
		w.field("Note", "from the Workload alone: %s", e.NotAsked)
	}
	w.field("Why", "%s: %s", cmp.Or(class, "not tried yet"), message)
	if len(e.InTheWay) == 0 {
		return
	}
	title := "In the queue's quota, those first that are expected to free it first"
	if e.Hidden {
		title += " (of this namespace; those of others may not be read)"
	}
	w.line("%s:", title)
	for i, o := range e.InTheWay {
		if i == mostObstacles {
			w.line("  and %d more", len(e.InTheWay)-i)
			break
		}
		w.line("  %s  %d GPUs, priority %d, runs for %s%s", o.Job.String(), o.Job.GPUs, o.Job.Priority, since(o.Job.Since.Time, now), o.ends())
	}
}

func (o *Obstacle) ends() string {
	switch {
	case o.Job.State == "Stopping":
		return ", is being stopped"
	case !o.Ends.IsZero():
		return ", ends by " + o.Ends.UTC().Format(time.RFC3339)
	}
	return ", nothing says when it ends"
}

// gpus says what is done with the GPUs of a node; those of which the same is said are
// told together.
func (n *NodeShare) gpus(now time.Time) string {
	var said []string
	minors := map[string][]string{}
	for _, g := range n.GPUs {
		text := string(g.Verdict)
		if !g.Since.IsZero() {
			text += " " + since(g.Since.Time, now)
		}
		if !g.Healthy {
			text += " (unhealthy: " + strings.Join(g.Unhealthy, ", ") + ")"
		}
		if minors[text] == nil {
			said = append(said, text)
		}
		minors[text] = append(minors[text], strconv.Itoa(int(g.Minor)))
	}
	out := ""
	for _, text := range said {
		out += "; GPU " + strings.Join(minors[text], ",") + " " + text
	}
	return out
}

// page is text in which field names stand in line; it remembers the first error.
type page struct {
	out io.Writer
	err error
}

func (p *page) line(format string, args ...any) {
	if _, err := fmt.Fprintf(p.out, format+"\n", args...); p.err == nil {
		p.err = err
	}
}

func (p *page) field(name, format string, args ...any) {
	p.line("  %-11s"+format, append([]any{name}, args...)...)
}
