package rendering

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload"
)

// exactly asks for n devices of a class.
func exactly(class string, n int64) resourceapi.DeviceRequest {
	return resourceapi.DeviceRequest{Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: n}}
}

func claimOf(requests ...resourceapi.DeviceRequest) resourceapi.ResourceClaimSpec {
	return resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: requests}}
}

// counting knows templates of claims, and claims.
func counting(t *testing.T, templates, claims map[string]resourceapi.ResourceClaimSpec) *Claims {
	t.Helper()
	f := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Resource().V1()
	for name, spec := range templates {
		object := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: resourceapi.ResourceClaimTemplateSpec{Spec: spec}}
		if err := f.ResourceClaimTemplates().Informer().GetIndexer().Add(object); err != nil {
			t.Fatal(err)
		}
	}
	for name, spec := range claims {
		if err := f.ResourceClaims().Informer().GetIndexer().Add(&resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec}); err != nil {
			t.Fatal(err)
		}
	}
	return &Claims{
		Template: func(namespace, name string) (*resourceapi.ResourceClaimTemplate, error) {
			return f.ResourceClaimTemplates().Lister().ResourceClaimTemplates(namespace).Get(name)
		},
		Claim: func(namespace, name string) (*resourceapi.ResourceClaim, error) {
			return f.ResourceClaims().Lister().ResourceClaims(namespace).Get(name)
		},
		Classes: map[string]corev1.ResourceName{"gpu.nvidia.com": "nvidia.com/gpu", "old.example.com": "nvidia.com/gpu", "mig.nvidia.com": "nvidia.com/mig"},
	}
}

func fromTemplate(name string) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) {
		s.ResourceClaims = append(s.ResourceClaims, corev1.PodResourceClaim{Name: name, ResourceClaimTemplateName: &name})
	}
}

func naming(name string) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) {
		s.ResourceClaims = append(s.ResourceClaims, corev1.PodResourceClaim{Name: name, ResourceClaimName: &name})
	}
}

// TestDevicesThatPodSetsShareAreCountedWhereThereArePods: a set without any is not
// charged for what it shares.
func TestDevicesThatPodSetsShareAreCountedWhereThereArePods(t *testing.T) {
	c := counting(t, nil, map[string]resourceapi.ResourceClaimSpec{"node": claimOf(exactly("gpu.nvidia.com", 8))})
	for name, test := range map[string]struct{ counts, want []int64 }{
		"the first has none": {[]int64{0, 2, 2}, []int64{0, 8, 0}},
		"all have some":      {[]int64{1, 2, 2}, []int64{8, 0, 0}},
		"none has any yet":   {[]int64{0, 0, 0}, []int64{8, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			job := &workload.Job{}
			job.Owner.Namespace = namespace
			for _, n := range test.counts {
				job.PodSets = append(job.PodSets, workload.PodSet{Count: int32(n), Template: *template(naming("node"))})
			}
			if err := c.Count(job); err != nil {
				t.Fatal(err)
			}
			var got []int64
			for i := range job.PodSets {
				got = append(got, workload.GPUs(job.PodSets[i].Claimed.Shared))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("GPUs that each set shares (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDevicesAreCounted(t *testing.T) {
	const gpus = "nvidia.com/gpu"
	admin, all := exactly("gpu.nvidia.com", 8), exactly("gpu.nvidia.com", 0)
	admin.Exactly.AdminAccess = new(true)
	all.Exactly.AllocationMode = resourceapi.DeviceAllocationModeAll
	c := counting(t,
		map[string]resourceapi.ResourceClaimSpec{
			"four":   claimOf(exactly("gpu.nvidia.com", 4)),
			"three":  claimOf(exactly("gpu.nvidia.com", 2), exactly("old.example.com", 1)),
			"one":    claimOf(exactly("gpu.nvidia.com", 0)),
			"nic":    claimOf(exactly("nics.example.com", 2)),
			"watch":  claimOf(admin),
			"all":    claimOf(all),
			"either": claimOf(resourceapi.DeviceRequest{FirstAvailable: []resourceapi.DeviceSubRequest{{DeviceClassName: "gpu.nvidia.com", Count: 2}, {DeviceClassName: "gpu.nvidia.com", Count: 3}, {DeviceClassName: "mig.nvidia.com", Count: 7}}}),
		},
		map[string]resourceapi.ResourceClaimSpec{"node": claimOf(exactly("gpu.nvidia.com", 8))},
	)
	limits := func(pairs ...string) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) { s.Containers[0].Resources.Limits = amountsOf(pairs...) }
	}
	type set = []func(*corev1.PodSpec)
	tests := []struct {
		name string
		sets []set
		// want is, for each pod set, what each pod is charged, and all together.
		want []string
		no   string
	}{
		{name: "a claim for each pod", sets: []set{{fromTemplate("four")}}, want: []string{"4", "0"}},
		{name: "several claims, of several classes that count as one resource", sets: []set{{fromTemplate("four"), fromTemplate("three")}}, want: []string{"7", "0"}},
		{name: "beside GPUs that the node advertises", sets: []set{{fromTemplate("four"), limits(gpus, "1")}}, want: []string{"5", "0"}},
		{name: "no number is one", sets: []set{{fromTemplate("one")}}, want: []string{"1", "0"}},
		{name: "a shared claim counts once", sets: []set{{naming("node")}}, want: []string{"0", "8"}},
		{name: "also if several pod sets share it", sets: []set{{naming("node")}, {naming("node"), fromTemplate("one")}}, want: []string{"0", "8", "1", "0"}},
		{name: "devices of other classes do not count", sets: []set{{fromTemplate("nic")}}, want: []string{"0", "0"}},
		{name: "nor does looking at devices that others use", sets: []set{{fromTemplate("watch")}}, want: []string{"0", "0"}},
		{name: "of alternatives the most", sets: []set{{fromTemplate("either")}}, want: []string{"3", "0"}},
		{name: "the name of a class stands for its resource", sets: []set{{limits("deviceclass.resource.kubernetes.io/gpu.nvidia.com", "2", gpus, "1")}}, want: []string{"3", "0"}},
		{name: "a number that is not known", sets: []set{{fromTemplate("all")}}, no: "ResourceClaimTemplate all, which its pods name, asks for all devices of class gpu.nvidia.com, whose number is not known"},
		{name: "no such template", sets: []set{{fromTemplate("none")}}, no: "ResourceClaimTemplate none, which its pods name, does not exist"},
		{name: "no such claim", sets: []set{{naming("none")}}, no: "ResourceClaim none, which its pods name, does not exist"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			job := &workload.Job{}
			job.Owner.Namespace = namespace
			for _, change := range tt.sets {
				job.PodSets = append(job.PodSets, workload.PodSet{Count: 2, Template: *template(change...)})
			}
			err := c.Count(job)
			var no *reason.Reason
			if got := ""; errors.As(err, &no) || tt.no != "" {
				if no != nil {
					got = no.Message
				}
				if diff := cmp.Diff(tt.no, got); diff != "" {
					t.Errorf("refused (-want +got):\n%s", diff)
				}
				return
			}
			var got []string
			for i := range job.PodSets {
				one, shared := job.PodSets[i].PerPod()[gpus], job.PodSets[i].Claimed.Shared[gpus]
				got = append(got, one.String(), shared.String())
				if want := 2*one.Value() + shared.Value(); job.PodSets[i].GPUs() != want {
					t.Errorf("pod set %d has %d GPUs, want %d", i, job.PodSets[i].GPUs(), want)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("GPUs of a pod, and shared (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGPUsThatPodsClaim(t *testing.T) {
	gpus, all, either := exactly("gpu.nvidia.com", 4), exactly("gpu.nvidia.com", 0), resourceapi.DeviceRequest{FirstAvailable: []resourceapi.DeviceSubRequest{
		{DeviceClassName: "gpu.nvidia.com", Count: 2}, {DeviceClassName: "nic.example.com", Count: 8},
	}}
	all.Exactly.AllocationMode = resourceapi.DeviceAllocationModeAll
	watching := exactly("gpu.nvidia.com", 4)
	watching.Exactly.AdminAccess = new(true)
	r := &Renderer{claims: counting(t,
		map[string]resourceapi.ResourceClaimSpec{"four": claimOf(gpus), "nic": claimOf(exactly("nic.example.com", 1)), "all": claimOf(all), "either": claimOf(either), "watching": claimOf(watching)},
		map[string]resourceapi.ResourceClaimSpec{"shared": claimOf(gpus, gpus), "made": claimOf(gpus)})}
	tests := []struct {
		name   string
		claims []func(*corev1.PodSpec)
		asks   bool
		want   int64
	}{
		{"nothing", nil, false, 0},
		{"GPUs of its own", []func(*corev1.PodSpec){fromTemplate("four")}, true, 8},
		{"GPUs that pods share", []func(*corev1.PodSpec){naming("shared")}, true, 8},
		{"other devices", []func(*corev1.PodSpec){fromTemplate("nic")}, false, 0},
		{"a GPU beside another device", []func(*corev1.PodSpec){fromTemplate("nic"), fromTemplate("four")}, true, 8},
		{"alternatives", []func(*corev1.PodSpec){fromTemplate("either")}, true, 4},
		{"all GPUs of a node, of which the number is not known", []func(*corev1.PodSpec){fromTemplate("all")}, true, 2},
		{"a look at GPUs that others have", []func(*corev1.PodSpec){fromTemplate("watching")}, false, 0},
		{"something that has not come", []func(*corev1.PodSpec){fromTemplate("absent")}, true, 0},
		{"other devices, by a claim that was made and has not come", []func(*corev1.PodSpec){fromTemplate("nic")}, false, 0},
		{"GPUs, by a claim that was made and has not come", []func(*corev1.PodSpec){fromTemplate("four")}, true, 8},
		{"a claim that was made of a template which is gone", []func(*corev1.PodSpec){fromTemplate("absent-and-made")}, true, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var pods []*corev1.Pod
			for _, name := range []string{"a", "b"} {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Status: corev1.PodStatus{ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: "absent-and-made", ResourceClaimName: new("made")}}}}
				for _, claim := range tt.claims {
					claim(&pod.Spec)
				}
				if strings.HasSuffix(tt.name, "has not come") {
					for _, claim := range pod.Spec.ResourceClaims {
						pod.Status.ResourceClaimStatuses = append(pod.Status.ResourceClaimStatuses, corev1.PodResourceClaimStatus{Name: claim.Name, ResourceClaimName: new(name + "-" + claim.Name)})
					}
				}
				pods = append(pods, pod)
			}
			if got := r.ClaimsGPU(pods[0]); got != tt.asks {
				t.Errorf("it may claim GPUs: %v, want %v", got, tt.asks)
			}
			if got := r.ClaimedGPUs(pods); got != tt.want {
				t.Errorf("two such pods claim %d GPUs, want %d", got, tt.want)
			}
		})
	}
}
