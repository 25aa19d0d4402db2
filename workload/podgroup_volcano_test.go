package workload

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload/identity"
)

func TestVolcanoGroupIsAGangOfTheSizeThatItsPodsSay(t *testing.T) {
	rs := madeBy("apps/v1", "ReplicaSet", "rs")
	of := func(name, least string) client.Object { return volcanoPod(name, VolcanoGroupAnnotation, least) }
	for name, tc := range map[string]struct {
		objects []client.Object
		want    reading
	}{
		"fewer pods wait for the others":              {[]client.Object{of("a", "2")}, reading{true, true, "q", "", "", reason.WaitingForPods}},
		"as many start":                               {[]client.Object{of("a", "2"), of("b", "2")}, reading{true, true, "q", "2x1 ", "", ""}},
		"the largest number counts, of an older pod":  {[]client.Object{of("a", "3"), of("b", "2")}, reading{true, true, "q", "", "", reason.WaitingForPods}},
		"the largest number counts, of a younger pod": {[]client.Object{of("a", "2"), of("b", "3")}, reading{true, true, "q", "", "", reason.WaitingForPods}},
		"one that says none is not of it": {
			[]client.Object{of("a", "2"), of("b", "")}, reading{true, true, "q", "", "", reason.WaitingForPods}},
		"its controller says how many pods it has": {
			[]client.Object{volcanoPod("a", VolcanoGroupAnnotation, "1", rs), replicaSet("rs", new(int32(2)))}, reading{true, true, "q", "", "", reason.WaitingForPods}},
	} {
		t.Run(name, func(t *testing.T) {
			c := fakeClient(t, tc.objects...)
			k := podGroupKind{options(UnqueuedRun), identity.VolcanoGroupGVK, ""}
			g, err := k.Assemble(t.Context(), c, types.NamespacedName{Namespace: "team", Name: "g"})
			if err != nil {
				t.Fatal(err)
			}
			job, managed, no, err := k.Read(t.Context(), c, g)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, readingOf(job, managed, no)); diff != "" {
				t.Errorf("(-want +got):\n%s\nreason: %v", diff, no)
			}
		})
	}
}

func TestPodOfAVolcanoGroupWithoutASizeSaysWhatIsMissing(t *testing.T) {
	want := `the pod names group "g" in an annotation of Volcano, and scheduling.volcano.sh/group-min-member is "", which is not how many pods of it start together`
	if got := HintsOf(volcanoPod("p", VolcanoOldGroupAnnotation, "")).Invalid; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	for name, pod := range map[string]client.Object{
		"one of a size":         volcanoPod("p", VolcanoGroupAnnotation, "2"),
		"one of Kueue's groups": member("p", "1", 2, annotatedWith(VolcanoGroupAnnotation, "g")),
		"one of no group":       alonePod("p", "1"),
	} {
		if got := HintsOf(pod).Invalid; got != "" {
			t.Errorf("%s says %q", name, got)
		}
	}
}
