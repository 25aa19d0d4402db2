package scheduling

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
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

func TestAFlavorOfTwoGroupsIsListedOnceInTheStatus(t *testing.T) {
	group := func(resources ...corev1.ResourceName) kueue.ResourceGroup {
		f := kueue.FlavorQuotas{Name: "gpu"}
		for _, name := range resources {
			f.Resources = append(f.Resources, kueue.ResourceQuota{Name: name, NominalQuota: resource.MustParse("8")})
		}
		return kueue.ResourceGroup{CoveredResources: resources, Flavors: []kueue.FlavorQuotas{f}}
	}
	cq := &kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{ResourceGroups: []kueue.ResourceGroup{group(gpuResource), group("example.com/licence", gpuResource)}}}
	got := taken{"gpu": map[corev1.ResourceName]int64{gpuResource: 3, "example.com/licence": 1}}.of(cq)
	want := []kueue.FlavorUsage{{Name: "gpu", Resources: []kueue.ResourceUsage{
		{Name: gpuResource, Total: resource.MustParse("3")},
		{Name: "example.com/licence", Total: resource.MustParse("1")},
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
}

func TestTheFirstStatusOfAQueueSaysItsZeros(t *testing.T) {
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "research"}}
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "nlp"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "research"}}
	scheme := runtime.NewScheme()
	if err := kueue.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	written := map[string]any{}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cq, lq).WithStatusSubresource(cq, lq).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
				data, err := patch.Data(obj)
				if err != nil {
					return err
				}
				body := map[string]any{}
				if err := json.Unmarshal(data, &body); err != nil {
					return err
				}
				written[obj.GetName()] = body["status"]
				return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
			},
		}).Build()
	r := &reporter{Jobs: &Jobs{reader: c, client: c}}
	n := &count{reserved: taken{}, used: taken{}, known: true, active: metav1.Condition{Type: "Active", Status: "True", Reason: "Ready"}}
	report := func() {
		if err := r.writeClusterQueue(t.Context(), "research", n); err != nil {
			t.Fatal(err)
		}
		if err := r.writeLocalQueue(t.Context(), client.ObjectKeyFromObject(lq), n); err != nil {
			t.Fatal(err)
		}
	}
	report()
	for _, queue := range []string{"research", "nlp"} {
		status, _ := written[queue].(map[string]any)
		for _, name := range []string{"pendingWorkloads", "reservingWorkloads", "admittedWorkloads"} {
			if status[name] != 0.0 {
				t.Errorf("%s of %s is written as %v, want 0", name, queue, status[name])
			}
		}
	}
	clear(written)
	n.pending = 3
	report()
	want := map[string]any{"pendingWorkloads": 3.0}
	if diff := cmp.Diff(map[string]any{"research": want, "nlp": want}, written); diff != "" {
		t.Errorf("the second status (-want +got):\n%s", diff)
	}
}
