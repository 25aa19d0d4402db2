package quota

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// findings are what Kueue's webhook would refuse in a ClusterQueue or a Cohort.
// Muster asks nobody before these are stored.
type findings struct {
	// faults cannot be meant: a ClusterQueue that has any is inactive. In a Cohort a
	// negative quantity counts as zero.
	faults []string
	// oddities change nothing, and are told.
	oddities []string
}

func (f *findings) fault(format string, args ...any) {
	f.faults = append(f.faults, fmt.Sprintf(format, args...))
}

func (f *findings) oddity(format string, args ...any) {
	f.oddities = append(f.oddities, fmt.Sprintf(format, args...))
}

// queueFindings and cohortFindings look at a whole object. A Cohort may lend more than
// it has itself: what is below it counts too.
func queueFindings(spec *kueue.ClusterQueueSpec) findings {
	return findingsOf(spec.ResourceGroups, spec.FairSharing, spec.CohortName != "", "it is in no cohort", true)
}

func cohortFindings(spec *kueue.CohortSpec) findings {
	return findingsOf(spec.ResourceGroups, spec.FairSharing, spec.ParentName != "", "it has no parent", false)
}

func findingsOf(groups []kueue.ResourceGroup, fair *kueue.FairSharing, isBelow bool, notBelow string, lendsOwn bool) findings {
	var out findings
	covered, listed := map[corev1.ResourceName]bool{}, map[kueue.ResourceFlavorReference]bool{}
	for _, g := range groups {
		for _, name := range g.CoveredResources {
			if covered[name] {
				out.fault("%s is in coveredResources twice", name)
			}
			covered[name] = true
		}
		for _, f := range g.Flavors {
			if listed[f.Name] {
				out.oddity("flavor %s is listed twice", f.Name)
			}
			listed[f.Name] = true
			out.resources(f, g.CoveredResources)
			for i := range f.Resources {
				out.quantities(f.Name, &f.Resources[i])
				out.limits(f.Name, &f.Resources[i], isBelow, notBelow, lendsOwn)
			}
		}
	}
	if fair != nil && fair.Weight != nil && fair.Weight.Sign() < 0 {
		out.oddity("fairSharing.weight is negative (%s), and counts as 0", fair.Weight)
	}
	return out
}

// resources compares those for which a flavor has quota with those that are covered.
func (f *findings) resources(flavor kueue.FlavorQuotas, covered []corev1.ResourceName) {
	var has []corev1.ResourceName
	for i := range flavor.Resources {
		has = append(has, flavor.Resources[i].Name)
	}
	switch {
	case slices.Equal(has, covered):
	case slices.Equal(slices.Sorted(slices.Values(has)), slices.Sorted(slices.Values(covered))):
		f.oddity("flavor %s lists its resources in another order than coveredResources", flavor.Name)
	default:
		f.fault("flavor %s has quotas of %v, while coveredResources are %v", flavor.Name, has, covered)
	}
}

// quantities looks for those that are less than zero.
func (f *findings) quantities(flavor kueue.ResourceFlavorReference, r *kueue.ResourceQuota) {
	for _, q := range []struct {
		field string
		value *resource.Quantity
	}{{"nominalQuota", &r.NominalQuota}, {"borrowingLimit", r.BorrowingLimit}, {"lendingLimit", r.LendingLimit}} {
		if q.value != nil && q.value.Sign() < 0 {
			f.fault("%s of %s in flavor %s is negative (%s)", q.field, r.Name, flavor, q.value)
		}
	}
}

// limits looks for those that limit nothing.
func (f *findings) limits(flavor kueue.ResourceFlavorReference, r *kueue.ResourceQuota, isBelow bool, notBelow string, lendsOwn bool) {
	if r.BorrowingLimit != nil && !isBelow {
		f.oddity("borrowingLimit of %s in flavor %s has no effect, because %s", r.Name, flavor, notBelow)
	}
	if r.LendingLimit != nil && !isBelow {
		f.oddity("lendingLimit of %s in flavor %s has no effect, because %s", r.Name, flavor, notBelow)
	}
	if limit := r.LendingLimit; limit != nil && isBelow && lendsOwn && limit.Cmp(r.NominalQuota) > 0 {
		f.oddity("lendingLimit of %s in flavor %s (%s) is more than its nominalQuota (%s)", r.Name, flavor, limit, &r.NominalQuota)
	}
}

// CohortFindings says of each Cohort that Kueue's webhook would refuse what is odd
// about it.
func (t *Tree) CohortFindings() map[string]string {
	out := map[string]string{}
	for name, n := range t.cohorts {
		if all := slices.Concat(n.findings.faults, n.findings.oddities); len(all) > 0 {
			out[name] = firstOf(all)
		}
	}
	return out
}

// firstOf names the first few of many.
func firstOf(all []string) string {
	const most = 5
	if more := len(all) - most; more > 0 {
		return fmt.Sprintf("%s; and %d more", strings.Join(all[:most], "; "), more)
	}
	return strings.Join(all, "; ")
}
