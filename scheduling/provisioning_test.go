package scheduling

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/workload"
)

// TestRequestsOfASchedulerBeforeAreKeptUntilTheirJobsAreRead: an autoscaler is at work
// for them, and would begin again.
func TestRequestsOfASchedulerBeforeAreKeptUntilTheirJobsAreRead(t *testing.T) {
	s := testScene(t, 16, 8)
	wl := workload.NewWorkload(job("a", set("node", 0, 2, 8)), 0, nil)
	wl.UID = "wl"
	request := &unstructured.Unstructured{Object: map[string]any{}}
	request.SetGroupVersionKind(provisioningGVK)
	request.SetNamespace(wl.Namespace)
	request.SetName(wl.Name)
	request.SetLabels(map[string]string{provisioningHash: "x"})
	request.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(wl, kueue.SchemeGroupVersion.WithKind("Workload"))})
	var unreadable error
	j := s.jobsOn(t, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, of := obj.(*kueue.Workload); of && unreadable != nil {
				return unreadable
			}
			return c.Get(ctx, key, obj, opts...)
		},
	}, wl, request)
	p := &provisioner{Jobs: j, unwanted: map[types.UID]time.Time{}}
	look := func(what string, kept bool) {
		t.Helper()
		if err := p.provision(t.Context()); err != nil && !errors.Is(err, unreadable) {
			t.Fatal(err)
		}
		err := j.client.Get(t.Context(), client.ObjectKeyFromObject(request), request.DeepCopy())
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		if there := !apierrors.IsNotFound(err); there != kept {
			t.Errorf("%s: the request is there: %v", what, there)
		}
	}
	s.reading()
	look("while jobs are read", true)
	s.allRead()
	unreadable = errors.New("no answer")
	look("while its Workload cannot be read", true)
	unreadable = nil
	look("when its job is not among them", false)
}
