package scheduling

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestWhatIsTakenAboveTheNominalQuotaIsBorrowedFromTheCohort(t *testing.T) {
	for name, tc := range map[string]struct {
		cohort              string
		taken               int64
		wantTotal, borrowed string
	}{
		"within the nominal quota":   {cohort: "all", taken: 7, wantTotal: "7", borrowed: "0"},
		"all of it":                  {cohort: "all", taken: 8, wantTotal: "8", borrowed: "0"},
		"above it":                   {cohort: "all", taken: 11, wantTotal: "11", borrowed: "3"},
		"above it, without a cohort": {taken: 11, wantTotal: "11", borrowed: "0"},
		"nothing":                    {cohort: "all", wantTotal: "0", borrowed: "0"},
	} {
		t.Run(name, func(t *testing.T) {
			cq := &kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{
				CohortName: kueue.CohortReference(tc.cohort),
				ResourceGroups: []kueue.ResourceGroup{{Flavors: []kueue.FlavorQuotas{{
					Name: "gpu", Resources: []kueue.ResourceQuota{{Name: gpuResource, NominalQuota: resource.MustParse("8")}},
				}}}},
			}}
			got := taken{"gpu": map[corev1.ResourceName]int64{gpuResource: tc.taken}}.of(cq)
			want := []kueue.FlavorUsage{{Name: "gpu", Resources: []kueue.ResourceUsage{
				{Name: gpuResource, Total: resource.MustParse(tc.wantTotal), Borrowed: resource.MustParse(tc.borrowed)},
			}}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("usage (-want +got):\n%s", diff)
			}
		})
	}
}
