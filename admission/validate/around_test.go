package validate

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/policy/facts"
	"github.com/muster-gpu/muster/policy/library"
)

// of is an object with a controller, if that is not empty: "apiVersion Kind name".
func of(what, controller string) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	parts := strings.Fields(what)
	m.APIVersion, m.Kind, m.Name, m.Namespace, m.UID = parts[0], parts[1], parts[2], "nlp", types.UID(parts[2])
	if controller != "" {
		by := of(controller, "")
		m.OwnerReferences = []metav1.OwnerReference{{APIVersion: by.APIVersion, Kind: by.Kind, Name: by.Name, UID: by.UID, Controller: new(true)}}
	}
	return m
}

func TestAPodIsRefusedAnotherOwnersGroupAndNotItsOwn(t *testing.T) {
	const trainJob, jobSet, job, group = "trainer.kubeflow.org/v1alpha1 TrainJob llm", "jobset.x-k8s.io/v1alpha2 JobSet set", "batch/v1 Job node-0", "scheduling.x-k8s.io/v1alpha1 PodGroup g"
	trouble := apierrors.NewInternalError(context.DeadlineExceeded)
	foreign := apierrors.NewForbidden(schema.GroupResource{Group: "example.com", Resource: "things"}, "x", nil)
	for name, tt := range map[string]struct {
		controller string
		fails      map[string]error
		refused    bool
	}{
		"a pod of the group's job":                                     {controller: job},
		"the API server does not answer about its owners":              {controller: job, fails: map[string]error{"jobs": trouble}},
		"the API server does not answer about the owners of its owner": {controller: job, fails: map[string]error{"jobsets": trouble}},
		"a pod of another Job":                                         {controller: "batch/v1 Job other", refused: true},
		"a pod whose owner is of a kind that nobody may read": {
			controller: "example.com/v1 Thing x", fails: map[string]error{"things": foreign}, refused: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := metadatafake.NewTestScheme()
			if err := metav1.AddMetaToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			reader := metadatafake.NewSimpleMetadataClient(scheme, of(trainJob, ""), of(jobSet, trainJob), of(job, jobSet), of(group, trainJob), of("batch/v1 Job other", ""))
			reader.PrependReactor("get", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				err := tt.fails[action.GetResource().Resource]
				return err != nil, nil, err
			})
			all, err := library.Policies(nil)
			if err != nil {
				t.Fatal(err)
			}
			around := NewCluster(nil, reader, clocktesting.NewFakeClock(time.Now()))
			engine := policy.New(policy.Options{PolicyTime: time.Minute, ReviewTime: time.Minute, Describer: facts.NewReader(around, nil)})
			engine.SetPolicies(t.Context(), all)
			pod := of("v1 Pod p", tt.controller)
			pod.Labels = map[string]string{"scheduling.x-k8s.io/pod-group": "g"}
			body, err := json.Marshal(pod)
			if err != nil {
				t.Fatal(err)
			}
			body = append(body[:len(body)-1], `,"spec":{"containers":[{"name":"c","image":"x","resources":{"limits":{"nvidia.com/gpu":"1"}}}]}}`...)
			response, err := NewHandler(engine, func() error { return nil }, nil).Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Create, Namespace: "nlp", Name: "p", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Object: runtime.RawExtension{Raw: body},
			}})
			if err != nil {
				t.Fatal(err)
			}
			if response.Allowed == tt.refused {
				t.Errorf("allowed is %v: %s", response.Allowed, response.Result.Message)
			}
		})
	}
}
