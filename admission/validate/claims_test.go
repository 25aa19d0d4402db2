package validate

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/muster-gpu/muster/policy/facts"
)

func TestClaimedDevicesAreGPUsBesideThoseThatContainersName(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := resourceapi.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	two := resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
		Name: "gpus", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu.nvidia.com", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 2},
	}}}}
	template := &resourceapi.ResourceClaimTemplate{
		TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaimTemplate"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "nlp", Name: "two"},
		Spec:       resourceapi.ResourceClaimTemplateSpec{Spec: two},
	}
	shared := &resourceapi.ResourceClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "nlp", Name: "shared"},
		Spec:       two,
	}
	around := NewCluster(dynamicfake.NewSimpleDynamicClient(scheme, template, shared), nil, clocktesting.NewFakeClock(time.Now()))
	reader := facts.NewReader(around, around.Claims(map[string]corev1.ResourceName{"gpu.nvidia.com": "nvidia.com/gpu"}))
	tests := map[string]struct {
		kind    string
		claim   map[string]any
		gpus    int64
		unknown string
	}{
		"each pod's own claim":             {"batch/v1 Job", map[string]any{"resourceClaimTemplateName": "two"}, 6, ""},
		"a claim that all pods share":      {"batch/v1 Job", map[string]any{"resourceClaimName": "shared"}, 4, ""},
		"a notebook's, which is no job":    {"kubeflow.org/v1 Notebook", map[string]any{"resourceClaimTemplateName": "two"}, 3, ""},
		"a template that is not there":     {"batch/v1 Job", map[string]any{"resourceClaimTemplateName": "three"}, 2, "what its pods claim: ResourceClaimTemplate three, which its pods name, does not exist"},
		"a shared claim that is not there": {"batch/v1 Job", map[string]any{"resourceClaimName": "two"}, 2, "what its pods claim: ResourceClaim two, which its pods name, does not exist"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			apiVersion, kind, _ := strings.Cut(tt.kind, " ")
			tt.claim["name"] = "gpus"
			w := reader.Read(t.Context(), &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"namespace": "nlp", "name": "claims"},
				"spec": map[string]any{"parallelism": int64(2), "template": map[string]any{"spec": map[string]any{
					"resourceClaims": []any{tt.claim},
					"containers":     []any{map[string]any{"name": "c", "resources": map[string]any{"limits": map[string]any{"nvidia.com/gpu": int64(1)}}}},
				}}},
			}})
			if w.GPUs != tt.gpus || w.Unknown != tt.unknown {
				t.Errorf("it has %d GPUs, want %d; unknown is %q, want %q", w.GPUs, tt.gpus, w.Unknown, tt.unknown)
			}
		})
	}
}
