package quota

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// clusterQueue is what the decisions need of a ClusterQueue, and what its jobs
// take.
type clusterQueue struct {
	*node
	// exists is false before the object is known, and after it is deleted: one
	// that is deleted under its jobs keeps its quota, and its place in the
	// cohort, until the last of them has left, as Kueue's finalizer has it.
	exists bool
	spec   queueSpec
	// jobs have a charge here.
	jobs map[types.UID]*taking
	// takings counts charges, claims and what is withheld.
	takings int
}

type queueSpec struct {
	// selector is nil where the object's selector cannot be parsed;
	// selectorErr says why.
	selector    labels.Selector
	selectorErr error
	stopPolicy  kueue.StopPolicy
	strict      bool
	terminating bool
	checks      []string
	groups      []resourceGroup
	// groupOf says which of groups covers a resource.
	groupOf     map[corev1.ResourceName]int
	fungibility fungibility
	preemption  preemptionPolicies
}

// resourceGroup is a set of resources that a pod set takes from one flavor.
type resourceGroup struct {
	// flavors are in the order in which they are tried.
	flavors []string
}

// SetClusterQueue adds a ClusterQueue or replaces its specification; charges
// stay, and go with it where it names another cohort. An object that is being
// deleted is kept, and admits nothing.
func (t *Tree) SetClusterQueue(obj *kueue.ClusterQueue) {
	defer t.forgetKeepers()
	t.changes++
	q := t.clusterQueue(obj.Name)
	q.exists = true
	q.spec = specOf(obj)
	q.weight = weightOf(obj.Spec.FairSharing)
	q.findings = queueFindings(&obj.Spec)
	q.setLimits(limitsOf(obj.Spec.ResourceGroups))
	if cohort := string(obj.Spec.CohortName); q.parentName != cohort {
		old := q.parent
		q.part()
		q.parentName = cohort
		if cohort != "" {
			q.join(t.cohort(cohort))
		}
		t.tidyCohort(old)
	}
}

// DeleteClusterQueue forgets a ClusterQueue. The charges in it stay until they
// are released, and count again if it comes back; until then its quota stays
// with them, so that a cohort does not fall into debt by it.
func (t *Tree) DeleteClusterQueue(name string) {
	defer t.forgetKeepers()
	if q := t.clusterQueues[name]; q != nil {
		t.changes++
		q.exists = false
		t.tidyQueue(q)
	}
}

// clusterQueue returns the node of a ClusterQueue, and makes it for takings of
// one that is not known yet.
func (t *Tree) clusterQueue(name string) *clusterQueue {
	q := t.clusterQueues[name]
	if q == nil {
		q = &clusterQueue{node: newNode(name), jobs: map[types.UID]*taking{}}
		q.queue = q
		t.clusterQueues[name] = q
	}
	return q
}

// existing returns the node of a ClusterQueue whose object exists, or nil.
func (t *Tree) existing(name string) *clusterQueue {
	if q := t.clusterQueues[name]; q != nil && q.exists {
		return q
	}
	return nil
}

func (t *Tree) tidyQueue(q *clusterQueue) {
	if q.exists || q.takings > 0 {
		return
	}
	cohort := q.parent
	q.part()
	delete(t.clusterQueues, q.name)
	t.tidyCohort(cohort)
}

func specOf(obj *kueue.ClusterQueue) queueSpec {
	s := queueSpec{
		stopPolicy:  stopPolicyOf(obj.Spec.StopPolicy),
		terminating: obj.DeletionTimestamp != nil,
		strict:      obj.Spec.QueueingStrategy == kueue.StrictFIFO,
		groupOf:     map[corev1.ResourceName]int{},
		fungibility: fungibilityOf(obj.Spec.FlavorFungibility),
		preemption:  policiesOf(obj.Spec.Preemption),
	}
	// A null selector selects nothing, as metav1 has it.
	s.selector, s.selectorErr = metav1.LabelSelectorAsSelector(obj.Spec.NamespaceSelector)
	if c := obj.Spec.AdmissionChecksStrategy; c != nil {
		for _, check := range c.AdmissionChecks {
			s.checks = append(s.checks, string(check.Name))
		}
	}
	for i, group := range obj.Spec.ResourceGroups {
		var g resourceGroup
		for _, name := range group.CoveredResources {
			if _, twice := s.groupOf[name]; !twice {
				s.groupOf[name] = i
			}
		}
		for _, f := range group.Flavors {
			g.flavors = append(g.flavors, string(f.Name))
		}
		s.groups = append(s.groups, g)
	}
	return s
}

// limitsOf reads the cells of a ClusterQueue or a Cohort. Negative quantities
// count as zero.
func limitsOf(groups []kueue.ResourceGroup) map[FlavorResource]limits {
	all := map[FlavorResource]limits{}
	for _, g := range groups {
		for _, f := range g.Flavors {
			for _, r := range f.Resources {
				l := limits{nominal: max(0, valueOf(r.Name, r.NominalQuota)), borrowing: noLimit, lending: noLimit}
				if r.BorrowingLimit != nil {
					l.borrowing = max(0, valueOf(r.Name, *r.BorrowingLimit))
				}
				if r.LendingLimit != nil {
					l.lending = max(0, valueOf(r.Name, *r.LendingLimit))
				}
				all[FlavorResource{string(f.Name), r.Name}] = l
			}
		}
	}
	return all
}

// HasChoice says whether a ClusterQueue lists more than one flavor for a
// resource: then more as well as less use of it can change the flavors that
// Assign finds for a job.
func (t *Tree) HasChoice(cq string) bool {
	q := t.existing(cq)
	return q != nil && slices.ContainsFunc(q.spec.groups, func(g resourceGroup) bool { return len(g.flavors) > 1 })
}

// Strict says whether the queueingStrategy of a ClusterQueue is StrictFIFO: its
// jobs are admitted in their order, and one that has to wait has those behind it
// wait as well.
func (t *Tree) Strict(cq string) bool {
	q := t.existing(cq)
	return q != nil && q.spec.strict
}

// ClusterQueues are the names of the ClusterQueues that exist.
func (t *Tree) ClusterQueues() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(t.clusterQueues)), func(name string) bool {
		return !t.clusterQueues[name].exists
	})
}

// Nominal returns a copy of the nominal quota of a ClusterQueue, with every
// cell that it lists; it is empty for a ClusterQueue that does not exist.
func (t *Tree) Nominal(cq string) Usage {
	u := Usage{}
	if q := t.existing(cq); q != nil {
		for fr, c := range q.cells {
			if c.listed {
				u[fr] = c.limits.nominal
			}
		}
	}
	return u
}
