package scheduling

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// at is an object as it is at a resource version.
func at(name, version string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: version}}
}

func TestHandlersAreBehindAListUntilTheyHaveHeardAllOfIt(t *testing.T) {
	list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "20"}}
	list.Items = append(list.Items, *at("a", "5"), *at("b", "17"))
	for name, tc := range map[string]struct {
		heard []*metav1.PartialObjectMetadata
		gone  []*metav1.PartialObjectMetadata
		// behind is part of what is missing; empty for nothing.
		behind string
	}{
		"they have heard each object as it was listed":       {heard: []*metav1.PartialObjectMetadata{at("a", "5"), at("b", "17")}},
		"they have heard of a later change":                  {heard: []*metav1.PartialObjectMetadata{at("a", "5"), at("b", "31")}},
		"versions are numbers, not words":                    {heard: []*metav1.PartialObjectMetadata{at("a", "5"), at("b", "100")}},
		"an object has not come":                             {heard: []*metav1.PartialObjectMetadata{at("a", "5")}, behind: "b at version 17"},
		"an object is older than it was listed":              {heard: []*metav1.PartialObjectMetadata{at("a", "5"), at("b", "9")}, behind: "b at version 17"},
		"an object that was not listed has not been deleted": {heard: []*metav1.PartialObjectMetadata{at("a", "5"), at("b", "17"), at("c", "12")}, behind: "that c is gone"},
		"its deletion has come": {
			heard: []*metav1.PartialObjectMetadata{at("a", "5"), at("b", "17"), at("c", "12")},
			gone:  []*metav1.PartialObjectMetadata{at("c", "19")},
		},
		"an object that was made after the list is no sign of age": {heard: []*metav1.PartialObjectMetadata{at("a", "5"), at("b", "17"), at("c", "21")}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHeard()
			told := 0
			to := h.handler(toolscache.ResourceEventHandlerFuncs{
				AddFunc:    func(any) { told++ },
				DeleteFunc: func(any) { told++ },
			})
			for _, o := range tc.heard {
				to.OnAdd(o, false)
			}
			for _, o := range tc.gone {
				to.OnDelete(toolscache.DeletedFinalStateUnknown{Key: o.Name, Obj: o})
			}
			if told != len(tc.heard)+len(tc.gone) {
				t.Errorf("the handler was told %d times", told)
			}
			got := h.behind(list)
			if (tc.behind == "") != (got == "") || !strings.Contains(got, tc.behind) {
				t.Errorf("missing is %q, want %q", got, tc.behind)
			}
		})
	}
}

func TestAnObjectIsHeardOnlyOnceTheHandlerHasDoneWithIt(t *testing.T) {
	h := newHeard()
	list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "6"}}
	list.Items = append(list.Items, *at("a", "6"))
	var within []string
	to := h.handler(toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(any, any) { within = append(within, h.behind(list)) }})
	to.OnUpdate(at("a", "5"), at("a", "6"))
	if len(within) != 1 || within[0] == "" {
		t.Errorf("within the handler it is heard already: %q", within)
	}
	if got := h.behind(list); got != "" {
		t.Errorf("after it %s is missing", got)
	}
}

func TestAPodCountsOnceTheCacheAndItsJobKnowThatItIsOnItsNode(t *testing.T) {
	s := testScene(t, 8, 8)
	mine, foreign := pod(job("a", set("node", 0, 1, 8)), "node", 0, "mine"), plainPod("foreign", "node-0", 1)
	mine.ResourceVersion, foreign.ResourceVersion, foreign.UID = "4", "7", "foreign"
	for _, p := range []*corev1.Pod{onNode(mine, "node-0"), foreign} {
		if s.counts(p) {
			t.Errorf("%s counts before anything was told", p.Name)
		}
		s.confirm(p)
		if !s.counts(p) {
			t.Errorf("%s does not count", p.Name)
		}
		newer := p.DeepCopy()
		newer.ResourceVersion = "11"
		if s.counts(newer) {
			t.Errorf("%s counts as it was at version %s, and is at 11", p.Name, p.ResourceVersion)
		}
	}
	// The cache is told first; a pod that its job does not know leaves it a
	// hold beside it.
	late := onNode(pod(job("b", set("node", 0, 1, 8)), "node", 0, "late"), "node-0")
	if err := s.plain.AddPod(s.logger, late); err != nil {
		t.Fatal(err)
	}
	if s.counts(late) {
		t.Error("a pod counts of which the Ledger was not told")
	}
}

func TestCatchingUpWaitsForWhatIsThereAndNotForWhatHasGoneSince(t *testing.T) {
	s := testScene(t, 8, 8)
	there, going := plainPod("there", "node-0", 1), plainPod("going", "node-0", 1)
	lists := 0
	j := s.jobsOn(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, into client.ObjectList, _ ...client.ListOption) error {
		list := into.(*metav1.PartialObjectMetadataList)
		if list.GroupVersionKind().Kind != "PodList" {
			return nil
		}
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: there.ObjectMeta})
		if lists++; lists == 1 {
			list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: going.ObjectMeta})
		}
		return nil
	}})
	j.clock = clock.RealClock{}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := j.catchUp(ctx); err == nil {
		t.Error("it does not wait for a pod of which nothing was told")
	}
	lists = 0
	s.confirm(there)
	if err := j.catchUp(t.Context()); err != nil {
		t.Error(err)
	}
	if lists != 2 {
		t.Errorf("the pods were listed %d times, want 2", lists)
	}
}
