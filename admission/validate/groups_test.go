package validate

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/muster-gpu/muster/workload"
)

func TestAGroupDoesNotBelongToAnOwnerThatHasGone(t *testing.T) {
	const job, trainJob = "batch/v1 Job train", "trainer.kubeflow.org/v1alpha1 TrainJob train"
	anew := func(what string) *metav1.PartialObjectMetadata {
		m := of(what, "")
		m.UID = types.UID("anew")
		return m
	}
	deleted := func(finalizer string) *metav1.PartialObjectMetadata {
		m := of(job, "")
		m.DeletionTimestamp, m.Finalizers = new(metav1.Now()), []string{finalizer}
		return m
	}
	labels := map[string]string{workload.KueueGroupLabel: "g"}
	kueues, _ := workload.GroupOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: labels}})
	for name, tt := range map[string]struct {
		owner     *metav1.PartialObjectMetadata
		unread    bool
		podGroup  bool
		belonging bool
	}{
		"the Job of its pods is there":                {owner: of(job, ""), belonging: true},
		"it has gone":                                 {},
		"it was made anew":                            {owner: anew(job)},
		"it goes once its pods have":                  {owner: deleted(metav1.FinalizerDeleteDependents)},
		"it goes and leaves its pods":                 {owner: deleted(metav1.FinalizerOrphanDependents), belonging: true},
		"it cannot be read":                           {owner: of(job, ""), unread: true, belonging: true},
		"the TrainJob of its PodGroup is there":       {owner: of(trainJob, ""), podGroup: true, belonging: true},
		"the TrainJob of its PodGroup has gone":       {podGroup: true},
		"the TrainJob of its PodGroup was made anew":  {owner: anew(trainJob), podGroup: true},
		"the TrainJob of its PodGroup cannot be read": {owner: of(trainJob, ""), unread: true, podGroup: true, belonging: true},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := metadatafake.NewTestScheme()
			if err := metav1.AddMetaToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			gvk, member := kueues, of("v1 Pod p", job)
			member.Labels = labels
			if tt.podGroup {
				gvk, member = workload.PodGroupGVK, of("scheduling.x-k8s.io/v1alpha1 PodGroup g", trainJob)
			}
			objects := []runtime.Object{member}
			if tt.owner != nil {
				objects = append(objects, tt.owner)
			}
			reader := metadatafake.NewSimpleMetadataClient(scheme, objects...)
			reader.PrependReactor("get", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				if resource := action.GetResource(); tt.unread && resource.Resource != "podgroups" {
					return true, nil, apierrors.NewForbidden(resource.GroupResource(), "train", nil)
				}
				return false, nil, nil
			})
			c := NewCluster(nil, reader, clocktesting.NewFakeClock(time.Now()))
			of, err := c.Group(t.Context(), "nlp", gvk, "g")
			if err != nil {
				t.Fatal(err)
			}
			if (of != nil) != tt.belonging {
				t.Errorf("it belongs to %v", of)
			}
		})
	}
}
