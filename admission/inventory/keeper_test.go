package inventory

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/api/v1alpha1"
)

// namespaces is a Catalog of one namespace.
type namespaces struct{}

func (namespaces) Ready() error                      { return nil }
func (namespaces) Namespaces() map[string]labels.Set { return map[string]labels.Set{"nlp": nil} }
func (namespaces) All() []*v1alpha1.RuntimeDefaults  { return nil }
func (namespaces) OnChange(func())                   {}

func TestQueuesThatCannotBeReadDoNotKeepTheWebhookFromAnswering(t *testing.T) {
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		kueue.SchemeGroupVersion.WithResource(localQueues): "LocalQueueList", kueue.SchemeGroupVersion.WithResource(clusterQueues): "ClusterQueueList",
		kueue.SchemeGroupVersion.WithResource(cohorts): "CohortList", v1alpha1.GroupVersion.WithResource(gpuNodes): "GPUNodeList",
	})
	var asked atomic.Int32
	client.PrependReactor("list", localQueues, func(clienttesting.Action) (bool, runtime.Object, error) {
		asked.Add(1)
		return true, nil, apierrors.NewInternalError(errors.New("conversion webhook failed"))
	})
	clock := clocktesting.NewFakeClock(noon)
	keeper := NewKeeper(namespaces{}, client, func(any) error { return nil }, clock)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { keeper.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	until := func(what string, met func() bool) {
		t.Helper()
		if wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) { return met(), nil }) != nil {
			t.Fatal(what)
		}
	}
	until("nothing is read a second time", func() bool { return asked.Load() > 1 })
	if keeper.Ready() == nil {
		t.Error("one failure is enough to do without the queues")
	}
	clock.Step(unreadAfter)
	until("it is not ready", func() bool { return keeper.Ready() == nil })
}
