package scheduling

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestStatusTellsWhatIsBorrowed(t *testing.T) {
	for cohort, want := range map[string]string{"": "0", "team": "3"} {
		cq := &kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{
			CohortName: kueue.CohortReference(cohort),
			ResourceGroups: []kueue.ResourceGroup{{Flavors: []kueue.FlavorQuotas{
				{Name: "gpu", Resources: []kueue.ResourceQuota{{Name: gpuResource, NominalQuota: resource.MustParse("8")}}},
				{Name: "idle", Resources: []kueue.ResourceQuota{{Name: gpuResource, NominalQuota: resource.MustParse("8")}}},
			}}},
		}}
		got := map[string][2]string{}
		for _, f := range (taken{"gpu": {gpuResource: 11}}).of(cq) {
			got[string(f.Name)] = [2]string{f.Resources[0].Total.String(), f.Resources[0].Borrowed.String()}
		}
		if diff := cmp.Diff(map[string][2]string{"gpu": {"11", want}, "idle": {"0", "0"}}, got); diff != "" {
			t.Errorf("cohort %q: total and borrowed (-want +got):\n%s", cohort, diff)
		}
	}
}
