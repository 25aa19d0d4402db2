package scheduling

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testclock "k8s.io/utils/clock/testing"
)

// fakeDiscovery answers with the kinds of each group and version; a nil error
// and no kinds is a group that does not exist.
type fakeDiscovery struct {
	kinds map[string][]string
	err   error
	asked int
}

func (d *fakeDiscovery) ServerResourcesForGroupVersionWithContext(_ context.Context, gv string) (*metav1.APIResourceList, error) {
	d.asked++
	if d.err != nil {
		return nil, d.err
	}
	kinds, found := d.kinds[gv]
	if !found {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, gv)
	}
	list := &metav1.APIResourceList{GroupVersion: gv}
	for _, k := range kinds {
		list.APIResources = append(list.APIResources, metav1.APIResource{Kind: k})
	}
	return list, nil
}

func TestKindIsServedWhenTheAPISaysSo(t *testing.T) {
	const gv = "kubeflow.org/v1"
	pyTorch := schema.FromAPIVersionAndKind(gv, "PyTorchJob")
	type answer struct{ Served, Known bool }
	for name, tc := range map[string]struct {
		api  fakeDiscovery
		want answer
	}{
		"it is in the document of its group": {fakeDiscovery{kinds: map[string][]string{gv: {"TFJob", "PyTorchJob"}}}, answer{true, true}},
		"it is not":                          {fakeDiscovery{kinds: map[string][]string{gv: {"TFJob"}}}, answer{false, true}},
		"there is no such group":             {fakeDiscovery{}, answer{false, true}},
		"the API is away":                    {fakeDiscovery{err: errors.New("away")}, answer{false, false}},
		"the API does not know it yet":       {fakeDiscovery{err: apierrors.NewServiceUnavailable("starting")}, answer{false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			served, err := newAPIKinds(&tc.api, testclock.NewFakeClock(epoch0)).serves(t.Context(), pyTorch)
			if diff := cmp.Diff(tc.want, answer{served, err == nil}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestKindsOfOneGroupShareAnAnswerForAWhile(t *testing.T) {
	api := &fakeDiscovery{kinds: map[string][]string{"kubeflow.org/v1": {"TFJob", "PyTorchJob"}}}
	clock := testclock.NewFakeClock(epoch0)
	k := newAPIKinds(api, clock)
	for range 3 {
		for _, kind := range []string{"TFJob", "PyTorchJob", "JAXJob"} {
			if _, err := k.serves(t.Context(), schema.FromAPIVersionAndKind("kubeflow.org/v1", kind)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if api.asked != 1 {
		t.Errorf("the API was asked %d times", api.asked)
	}
	clock.Step(discoverEvery)
	delete(api.kinds, "kubeflow.org/v1")
	if served, err := k.serves(t.Context(), schema.FromAPIVersionAndKind("kubeflow.org/v1", "TFJob")); served || err != nil {
		t.Errorf("it is served for ever: %v, %v", served, err)
	}
}
