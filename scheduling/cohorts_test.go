package scheduling

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/quota"
)

func TestACycleOfCohortsWithoutAQueueIsTold(t *testing.T) {
	s := testScene(t, 8, 8)
	a, b := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	recorder := record.NewFakeRecorder(10)
	r := &reporter{Jobs: s.jobsOn(t, interceptor.Funcs{}, a, b)}
	r.recorder = recorder
	told := func() []string {
		t.Helper()
		if err := r.tellCohorts(t.Context()); err != nil {
			t.Fatal(err)
		}
		var out []string
		for len(recorder.Events) > 0 {
			out = append(out, <-recorder.Events)
		}
		return out
	}
	parent := func(name, parent string) { s.UpdateQuota(cohortIn(name, parent)) }

	parent("a", "b")
	if got := told(); len(got) > 0 {
		t.Errorf("without a cycle: %q", got)
	}
	parent("b", "a")
	got := told()
	if len(got) != 2 {
		t.Fatalf("told %q", got)
	}
	want := "Warning CohortCycle its parents lead back to it (a -> b -> a): no ClusterQueue below it admits jobs until that is changed"
	if got[0] != want && got[1] != want {
		t.Errorf("told %q, want also %q", got, want)
	}
	if again := told(); len(again) > 0 {
		t.Errorf("told once more: %q", again)
	}
	parent("b", "")
	if got := told(); len(got) > 0 {
		t.Errorf("with the cycle broken: %q", got)
	}
	parent("b", "a")
	if got := told(); len(got) != 2 {
		t.Errorf("closed again, %q is told", got)
	}
}

func TestACohortThatKueueWouldRefuseIsTold(t *testing.T) {
	s := testScene(t, 8, 8)
	cohort := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	recorder := record.NewFakeRecorder(10)
	r := &reporter{Jobs: s.jobsOn(t, interceptor.Funcs{}, cohort)}
	r.recorder = recorder
	set := func(nominal string) {
		t.Helper()
		limit := resource.MustParse("1")
		cohort.Spec.ResourceGroups = []kueue.ResourceGroup{{
			CoveredResources: []corev1.ResourceName{gpuResource},
			Flavors: []kueue.FlavorQuotas{{Name: "gpu", Resources: []kueue.ResourceQuota{
				{Name: gpuResource, NominalQuota: resource.MustParse(nominal), LendingLimit: &limit},
			}}},
		}}
		s.UpdateQuota(func(t *quota.Tree) { t.SetCohort(cohort) })
		for range 2 {
			if err := r.tellCohorts(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	set("-4")
	set("4")
	s.UpdateQuota(func(t *quota.Tree) { t.DeleteCohort("a") })
	if err := r.tellCohorts(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for len(recorder.Events) > 0 {
		got = append(got, <-recorder.Events)
	}
	odd := "lendingLimit of nvidia.com/gpu in flavor gpu has no effect, because it has no parent; Kueue takes no such Cohort"
	want := []string{
		"Warning CohortInvalid nominalQuota of nvidia.com/gpu in flavor gpu is negative (-4); " + odd,
		"Warning CohortInvalid " + odd,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}
