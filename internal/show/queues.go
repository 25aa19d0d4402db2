package show

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/gpu"
	"github.com/muster-gpu/muster/quota"
)

// QueueOptions say which queues are shown.
type QueueOptions struct {
	// Name of a Cohort or ClusterQueue; all if empty. What is below it is shown too.
	Name string
	// Local: the LocalQueues of Namespace are shown, or of all namespaces if that is empty.
	Local     bool
	Namespace string
}

// Queue is a Cohort, ClusterQueue or LocalQueue as it is shown.
type Queue struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Parent is the Cohort, or the ClusterQueue of a LocalQueue; Depth how far below
	// the top it is.
	Parent string `json:"parent,omitempty"`
	Depth  int    `json:"depth"`
	// State is Active, Inactive, or what the stopPolicy says: Hold or HoldAndDrain;
	// Reason says why it is not active.
	State    string `json:"state,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Strategy string `json:"strategy,omitempty"`

	Pending  int32           `json:"pending"`
	Admitted int32           `json:"admitted"`
	Quota    []QueueResource `json:"quota,omitempty"`
}

// QueueResource is the quota of one resource in one flavor, and who uses it.
type QueueResource struct {
	Flavor   string              `json:"flavor"`
	Resource corev1.ResourceName `json:"resource"`
	// Nominal is the queue's own, Used what its admitted jobs have of it and Borrowed
	// what they have beyond it. Lent is what is left of its own and cannot be used now,
	// because others of the cohort use it. A Cohort has the sums of what is below it, but
	// for Lent: members may count the same use.
	Nominal  string `json:"nominal,omitempty"`
	Used     string `json:"used"`
	Borrowed string `json:"borrowed,omitempty"`
	Lent     string `json:"lent,omitempty"`

	BorrowingLimit string `json:"borrowingLimit,omitempty"`
	LendingLimit   string `json:"lendingLimit,omitempty"`
}

// ShowQueues shows the tree of queues.
func (c *Cluster) ShowQueues(ctx context.Context, o Output, q QueueOptions) error {
	queues, err := c.Queues(ctx, q)
	switch {
	case err != nil:
		return err
	case o.structured():
		return o.encode(listOf("Queue", queues))
	case o.Format == "name":
		return o.names(namesOf(queues, Queue.id))
	}
	return o.table(queueTable(queues))
}

// id is the queue as kubectl names it.
func (q Queue) id() string {
	return strings.ToLower(q.Kind) + "." + kueue.SchemeGroupVersion.Group + "/" + q.Name
}

func namesOf[T any](all []T, name func(T) string) []string {
	var out []string
	for _, v := range all {
		out = append(out, name(v))
	}
	return out
}

// Queues reads the tree of queues: each Cohort before what is below it.
func (c *Cluster) Queues(ctx context.Context, q QueueOptions) ([]Queue, error) {
	f := newForest()
	if err := c.clusterQueues(ctx, f.addClusterQueue); err != nil {
		return nil, err
	}
	if err := c.cohorts(ctx, f.addCohort); err != nil {
		return nil, err
	}
	if q.Local {
		if err := c.localQueues(ctx, f.addLocalQueue, client.InNamespace(q.Namespace)); err != nil {
			return nil, err
		}
	}
	return f.queues(q.Name)
}

// forest is the trees of queues.
type forest struct {
	tree          *quota.Tree
	clusterQueues map[string]*kueue.ClusterQueue
	cohorts       map[string]*kueue.Cohort
	// children are the ClusterQueues and Cohorts below a Cohort, or below none, and the
	// LocalQueues of a ClusterQueue.
	queuesOf, cohortsOf map[string][]string
	localQueuesOf       map[string][]*kueue.LocalQueue
}

func newForest() *forest {
	return &forest{
		tree: quota.New(), clusterQueues: map[string]*kueue.ClusterQueue{}, cohorts: map[string]*kueue.Cohort{},
		queuesOf: map[string][]string{}, cohortsOf: map[string][]string{}, localQueuesOf: map[string][]*kueue.LocalQueue{},
	}
}

// addClusterQueue charges the queue in one with what its status says that is reserved.
func (f *forest) addClusterQueue(cq *kueue.ClusterQueue) {
	f.clusterQueues[cq.Name] = cq
	f.tree.SetClusterQueue(cq)
	parent := string(cq.Spec.CohortName)
	f.queuesOf[parent] = append(f.queuesOf[parent], cq.Name)
	used := quota.Usage{}
	for _, flavor := range cq.Status.FlavorsReservation {
		for _, r := range flavor.Resources {
			used[quota.FlavorResource{Flavor: string(flavor.Name), Resource: r.Name}] = quota.RequestsOf(corev1.ResourceList{r.Name: r.Total})[r.Name]
		}
	}
	f.tree.Charge(types.UID(cq.Name), cq.Name, used, quota.Holder{})
}

func (f *forest) addCohort(co *kueue.Cohort) {
	f.cohorts[co.Name] = co
	f.tree.SetCohort(co)
}

func (f *forest) addLocalQueue(lq *kueue.LocalQueue) {
	of := string(lq.Spec.ClusterQueue)
	f.localQueuesOf[of] = append(f.localQueuesOf[of], lq)
}

// queues are the queues below the one that is named, and itself; all if it is "".
func (f *forest) queues(name string) ([]Queue, error) {
	for parent := range f.queuesOf {
		// A Cohort may be named and have no object.
		if parent != "" && f.cohorts[parent] == nil {
			f.cohorts[parent] = &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: parent}}
		}
	}
	for _, co := range slices.Collect(maps.Values(f.cohorts)) {
		if up := string(co.Spec.ParentName); up != "" && f.cohorts[up] == nil {
			f.cohorts[up] = &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: up}}
		}
	}
	for _, of := range slices.Sorted(maps.Keys(f.cohorts)) {
		parent := string(f.cohorts[of].Spec.ParentName)
		f.cohortsOf[parent] = append(f.cohortsOf[parent], of)
	}
	w := &walk{forest: f, met: map[string]bool{}}
	switch {
	case name == "":
		w.below("", 0)
		// Cohorts that are each other's parents are below nothing.
		for _, of := range slices.Sorted(maps.Keys(f.cohorts)) {
			w.cohort(of, 0)
		}
	case f.clusterQueues[name] != nil:
		w.clusterQueue(name, 0)
	case f.cohorts[name] != nil:
		w.cohort(name, 0)
	default:
		return nil, notFound("ClusterQueue or Cohort", name, slices.Concat(slices.Collect(maps.Keys(f.clusterQueues)), slices.Collect(maps.Keys(f.cohorts))))
	}
	return w.out, nil
}

// walk goes through the trees from above.
type walk struct {
	*forest
	met map[string]bool
	out []Queue
}

func (w *walk) below(cohort string, depth int) {
	for _, name := range w.cohortsOf[cohort] {
		w.cohort(name, depth)
	}
	slices.Sort(w.queuesOf[cohort])
	for _, name := range w.queuesOf[cohort] {
		w.clusterQueue(name, depth)
	}
}

func (w *walk) cohort(name string, depth int) {
	if w.met[name] {
		return
	}
	w.met[name] = true
	q := Queue{Kind: "Cohort", Name: name, Parent: string(w.cohorts[name].Spec.ParentName), Depth: depth}
	if s, ok := w.tree.CohortStatus(name); ok && s.Cycle != "" {
		q.State, q.Reason = "Inactive", "its parents form a cycle: "+s.Cycle
	}
	at := len(w.out)
	w.out = append(w.out, q)
	w.below(name, depth+1)
	var sums sums
	sums.add(nominalOf(w.cohorts[name].Spec.ResourceGroups), nil, nil, nil)
	// Direct members bring their sums.
	for i := at + 1; i < len(w.out); i++ {
		if below := w.out[i]; below.Kind == "ClusterQueue" {
			w.out[at].Pending += below.Pending
			w.out[at].Admitted += below.Admitted
			sums.add(w.tree.Nominal(below.Name), w.tree.Used(below.Name), w.tree.Borrowed(below.Name), nil)
		} else if below.Kind == "Cohort" {
			sums.add(nominalOf(w.cohorts[below.Name].Spec.ResourceGroups), nil, nil, nil)
		}
	}
	w.out[at].Quota = sums.resources()
}

func (w *walk) clusterQueue(name string, depth int) {
	cq := w.clusterQueues[name]
	q := Queue{
		Kind: "ClusterQueue", Name: name, Parent: string(cq.Spec.CohortName), Depth: depth, Strategy: string(cq.Spec.QueueingStrategy),
		Pending: cq.Status.PendingWorkloads, Admitted: cq.Status.AdmittedWorkloads,
	}
	q.State, q.Reason = stateOf(cq.Spec.StopPolicy, cq.Status.Conditions, kueue.ClusterQueueActive)
	var sums sums
	sums.add(w.tree.Nominal(name), w.tree.Used(name), w.tree.Borrowed(name), w.tree.Lent(name))
	q.Quota = sums.resources()
	limitsInto(q.Quota, cq.Spec.ResourceGroups)
	w.out = append(w.out, q)
	for _, lq := range w.localQueuesOf[name] {
		w.out = append(w.out, localQueue(lq, depth+1))
	}
}

func localQueue(lq *kueue.LocalQueue, depth int) Queue {
	q := Queue{
		Kind: "LocalQueue", Namespace: lq.Namespace, Name: lq.Name, Parent: string(lq.Spec.ClusterQueue), Depth: depth,
		Pending: lq.Status.PendingWorkloads, Admitted: lq.Status.AdmittedWorkloads,
	}
	q.State, q.Reason = stateOf(lq.Spec.StopPolicy, lq.Status.Conditions, kueue.LocalQueueActive)
	var sums sums
	used := quota.Usage{}
	for _, flavor := range lq.Status.FlavorsReservation {
		for _, r := range flavor.Resources {
			used[quota.FlavorResource{Flavor: string(flavor.Name), Resource: r.Name}] = quota.RequestsOf(corev1.ResourceList{r.Name: r.Total})[r.Name]
		}
	}
	sums.add(nil, used, nil, nil)
	q.Quota = sums.resources()
	return q
}

// stateOf is the state of a queue, and why it is not active.
func stateOf(stop *kueue.StopPolicy, conditions []metav1.Condition, active string) (state, why string) {
	c := apimeta.FindStatusCondition(conditions, active)
	switch policy := ptr.Deref(stop, kueue.None); {
	case policy != kueue.None:
		return string(policy), "spec.stopPolicy is " + string(policy)
	case c == nil:
		return "Unknown", "its status has not been written: is the scheduler running?"
	case c.Status != metav1.ConditionTrue:
		return "Inactive", c.Message
	}
	return "Active", ""
}

func nominalOf(groups []kueue.ResourceGroup) quota.Usage {
	u := quota.Usage{}
	for _, g := range groups {
		for _, f := range g.Flavors {
			for _, r := range f.Resources {
				u[quota.FlavorResource{Flavor: string(f.Name), Resource: r.Name}] = quota.RequestsOf(corev1.ResourceList{r.Name: r.NominalQuota})[r.Name]
			}
		}
	}
	return u
}

// limitsInto adds the limits of a ClusterQueue.
func limitsInto(all []QueueResource, groups []kueue.ResourceGroup) {
	for i := range all {
		for _, g := range groups {
			for _, f := range g.Flavors {
				for _, r := range f.Resources {
					if all[i].Flavor != string(f.Name) || all[i].Resource != r.Name {
						continue
					}
					if r.BorrowingLimit != nil {
						all[i].BorrowingLimit = r.BorrowingLimit.String()
					}
					if r.LendingLimit != nil {
						all[i].LendingLimit = r.LendingLimit.String()
					}
				}
			}
		}
	}
}

// sums are amounts of some queues together.
type sums struct{ nominal, used, borrowed, lent quota.Usage }

func (s *sums) add(nominal, used, borrowed, lent quota.Usage) {
	for _, of := range []struct {
		to   *quota.Usage
		from quota.Usage
	}{{&s.nominal, nominal}, {&s.used, used}, {&s.borrowed, borrowed}, {&s.lent, lent}} {
		for fr, v := range of.from {
			if *of.to == nil {
				*of.to = quota.Usage{}
			}
			(*of.to)[fr] += v
		}
	}
}

// resources are the sums by flavor and resource, GPUs first.
func (s *sums) resources() []QueueResource {
	all := map[quota.FlavorResource]bool{}
	for _, u := range []quota.Usage{s.nominal, s.used} {
		for fr := range u {
			all[fr] = true
		}
	}
	order := slices.SortedFunc(maps.Keys(all), func(a, b quota.FlavorResource) int {
		return cmp.Or(cmp.Compare(gpusFirst(a.Resource), gpusFirst(b.Resource)), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Flavor, b.Flavor))
	})
	var out []QueueResource
	for _, fr := range order {
		r := QueueResource{Flavor: fr.Flavor, Resource: fr.Resource, Used: quota.FormatValue(fr.Resource, s.used[fr])}
		if v, ok := s.nominal[fr]; ok {
			r.Nominal = quota.FormatValue(fr.Resource, v)
		}
		if v := s.borrowed[fr]; v > 0 {
			r.Borrowed = quota.FormatValue(fr.Resource, v)
		}
		if v := s.lent[fr]; v > 0 {
			r.Lent = quota.FormatValue(fr.Resource, v)
		}
		out = append(out, r)
	}
	return out
}

func gpusFirst(name corev1.ResourceName) int {
	if gpu.Is(name) {
		return 0
	}
	return 1
}

func queueTable(queues []Queue) *table {
	t := newTable("Queue", "State", "Flavor", "Resource", "Nominal", "Used", "Borrowed", "Lent", "Pending", "Admitted", "Why", "|", "Kind", "Strategy", "Borrowing-Limit", "Lending-Limit")
	for _, q := range queues {
		name := strings.Repeat("  ", q.Depth) + q.Name
		if q.Namespace != "" {
			name = strings.Repeat("  ", q.Depth) + q.Namespace + "/" + q.Name
		}
		tone := plain
		switch q.State {
		case "Inactive":
			tone = bad
		case string(kueue.Hold), string(kueue.HoldAndDrain), "Unknown":
			tone = warning
		}
		first := []string{name, q.State, "", "", "", "", "", "", strconv.Itoa(int(q.Pending)), strconv.Itoa(int(q.Admitted)), q.Reason, q.Kind, q.Strategy, "", ""}
		if len(q.Quota) == 0 {
			t.add(tone, first...)
		}
		for i, r := range q.Quota {
			row := make([]string, len(first))
			if i == 0 {
				row = first
			}
			row[2], row[3], row[4], row[5], row[6], row[7] = r.Flavor, string(r.Resource), r.Nominal, r.Used, r.Borrowed, r.Lent
			row[13], row[14] = r.BorrowingLimit, r.LendingLimit
			t.add(tone, row...)
		}
	}
	return t
}
