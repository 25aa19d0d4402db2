package facts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/workload"
)

var _ policy.Describer = &Reader{}

// cluster is what is around: runtimes and owners by "kind/name".
type cluster struct {
	runtimes map[string]*unstructured.Unstructured
	owners   map[string]*metav1.PartialObjectMetadata
	// groups are what they belong to, by "API group/name".
	groups map[string]*metav1.PartialObjectMetadata
}

func (c *cluster) Runtime(_ context.Context, _, kind, name string) (*unstructured.Unstructured, error) {
	return c.runtimes[kind+"/"+name], nil
}

func (c *cluster) Owner(_ context.Context, _ string, ref metav1.OwnerReference) (*metav1.PartialObjectMetadata, error) {
	return c.owners[ref.Kind+"/"+ref.Name], nil
}

func (c *cluster) Group(_ context.Context, _ string, gvk schema.GroupVersionKind, name string) (*metav1.PartialObjectMetadata, error) {
	if name == "secret" {
		return nil, errors.New("no")
	}
	return c.groups[gvk.Group+"/"+name], nil
}

func parse(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	body, err := u.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := u.UnmarshalJSON(body); err != nil {
		t.Fatal(err)
	}
	return u
}

// torch is a runtime whose image no TrainJob names.
const torch = `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: torch, labels: {trainer.kubeflow.org/framework: torch}}
spec:
  mlPolicy: {numNodes: 2}
  template: {spec: {replicatedJobs: [
    {name: model-initializer, template: {metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: model-initializer}},
      spec: {template: {spec: {containers: [{name: model-initializer, image: "init:latest"}]}}}}},
    {name: node, template: {metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}},
      spec: {template: {spec: {containers: [{name: node, image: "torch:2", resources: {limits: {nvidia.com/gpu: 1, cpu: 2}}}, {name: log, image: log}]}}}}}]}}
`

const mpi = `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: mpi}
spec:
  mlPolicy: {numNodes: 1, mpi: {runLauncherAsNode: true}}
  template: {spec: {replicatedJobs: [
    {name: launcher, template: {metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}},
      spec: {template: {spec: {containers: [{name: node, image: m}]}}}}},
    {name: node, template: {spec: {template: {spec: {containers: [{name: node, image: m}]}}}}}]}}
`

const gpuPod = `{containers: [{name: main, image: a, resources: {limits: {nvidia.com/gpu: 2}}}]}`

// summary is what a description comes to: pod sets, GPUs and images.
func summary(w *Workload) string {
	var sets []string
	for _, s := range w.PodSets {
		sets = append(sets, fmt.Sprintf("%s %dx%d", s.Name, s.Count, s.GPUsPerPod))
	}
	return fmt.Sprintf("%s = %d; %s", strings.Join(sets, ", "), w.GPUs, strings.Join(w.Images, " "))
}

func TestWhatPodsAnObjectWillHave(t *testing.T) {
	tests := []struct{ name, object, want, unknown string }{
		{name: "a pod", want: "pod 1x8 = 8; e i main s", object: `
apiVersion: v1
kind: Pod
spec:
  initContainers: [{name: i, image: i, resources: {limits: {nvidia.com/gpu: 8}}}, {name: s, image: s, restartPolicy: Always, resources: {limits: {nvidia.com/gpu: 1}}}]
  containers: [{name: m, image: main, resources: {limits: {nvidia.com/gpu: 4}}}]
  ephemeralContainers: [{name: e, image: e}]`},
		{name: "a pod with slices", want: "pod 1x3 = 3; a", object: `
apiVersion: v1
kind: Pod
spec: {containers: [{name: m, image: a, resources: {limits: {nvidia.com/mig-1g.10gb: 3, nvidia.com/gpumem: 3000}}}]}`},
		{name: "a Job", want: "main 3x2 = 6; a", object: `
apiVersion: batch/v1
kind: Job
spec: {parallelism: 4, completions: 3, template: {spec: ` + gpuPod + `}}`},
		{name: "a Job of a JobSet, which another cluster runs", want: "main 1x2 = 2; a", object: `
apiVersion: batch/v1
kind: Job
metadata: {ownerReferences: [{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, name: j, uid: u, controller: true}]}
spec: {managedBy: elsewhere, template: {spec: ` + gpuPod + `}}`},
		{name: "a CronJob", want: "main 2x2 = 4; a", object: `
apiVersion: batch/v1
kind: CronJob
spec: {jobTemplate: {spec: {parallelism: 2, template: {spec: ` + gpuPod + `}}}}`},
		{name: "a JobSet", want: "a 6x2, b 1x0 = 12; a b", object: `
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
spec: {replicatedJobs: [
  {name: a, replicas: 2, template: {spec: {parallelism: 3, completions: 3, template: {spec: ` + gpuPod + `}}}},
  {name: b, replicas: 1, template: {spec: {template: {spec: {containers: [{name: b, image: b}]}}}}}]}`},
		{name: "a PyTorchJob", want: "master 1x2, worker 3x2 = 8; a", object: `
apiVersion: kubeflow.org/v1
kind: PyTorchJob
spec: {pytorchReplicaSpecs: {Master: {template: {spec: ` + gpuPod + `}}, Worker: {replicas: 3, template: {spec: ` + gpuPod + `}}}}`},
		{name: "an MPIJob of the MPI Operator", want: "launcher 1x0, worker 2x2 = 4; a l", object: `
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
spec: {mpiReplicaSpecs: {Launcher: {template: {spec: {containers: [{name: l, image: l}]}}}, Worker: {replicas: 2, template: {spec: ` + gpuPod + `}}}}`},
		{name: "a Notebook", want: "main 1x2 = 2; a", object: `
apiVersion: kubeflow.org/v1beta1
kind: Notebook
spec: {template: {spec: ` + gpuPod + `}}`},
		{name: "a Deployment", want: "main 5x2 = 10; a", object: `
apiVersion: apps/v1
kind: Deployment
spec: {replicas: 5, template: {spec: ` + gpuPod + `}}`},
		{name: "a LeaderWorkerSet", want: "leader 2x2, worker 6x2 = 16; a", object: `
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
spec: {replicas: 2, leaderWorkerTemplate: {size: 4, workerTemplate: {spec: ` + gpuPod + `}}}`},
		{name: "a RayCluster", want: "head 1x0, w 3x2 = 6; a h", object: `
apiVersion: ray.io/v1
kind: RayCluster
spec: {headGroupSpec: {template: {spec: {containers: [{name: h, image: h}]}}}, workerGroupSpecs: [{groupName: w, replicas: 3, minReplicas: 0, maxReplicas: 3, template: {spec: ` + gpuPod + `}}]}`},
		{name: "a TrainJob that names only a runtime", want: "model-initializer 1x0, node 2x1 = 2; init:latest log torch:2", object: `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
spec: {runtimeRef: {name: torch}}`},
		{name: "a TrainJob with its own numbers, over a patch", want: "model-initializer 1x0, node 4x8 = 32; init:latest log mine sidecar", object: `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
spec:
  runtimeRef: {name: torch}
  trainer: {image: mine, numNodes: 4, resourcesPerNode: {limits: {nvidia.com/gpu: 8}}}
  runtimePatches:
  - manager: a.example/b
    trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {initContainers: [{name: s, image: sidecar}]}}}}}]}}}`},
		{name: "a TrainJob of MPI whose launcher is a node", want: "launcher 1x4, node 2x4 = 12; m", object: `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
spec: {runtimeRef: {name: mpi, kind: TrainingRuntime}, trainer: {numNodes: 3, resourcesPerNode: {limits: {nvidia.com/gpu: 4}}}}`},
		{name: "a TrainJob of a runtime that is not there", want: "node 4x8 = 32; mine", unknown: "ClusterTrainingRuntime none does not exist", object: `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
spec: {runtimeRef: {name: none}, trainer: {image: mine, numNodes: 4, resourcesPerNode: {limits: {nvidia.com/gpu: 8}}}}`},
		{name: "a runtime", want: "model-initializer 1x0, node 2x1 = 2; init:latest log torch:2", object: torch},
		{name: "an Experiment of Jobs", want: "main 1x2 = 4; a", object: `
apiVersion: kubeflow.org/v1beta1
kind: Experiment
spec: {parallelTrialCount: 3, maxTrialCount: 2, trialTemplate: {trialSpec: {apiVersion: batch/v1, kind: Job, spec: {template: {spec: ` + gpuPod + `}}}}}`},
		{name: "an Experiment of TrainJobs whose GPUs only the runtime says", want: "model-initializer 1x0, node 2x1 = 6; init:latest log torch:2", object: `
apiVersion: kubeflow.org/v1beta1
kind: Experiment
spec: {trialTemplate: {trialSpec: {apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, spec: {runtimeRef: {name: torch}}}}}`},
		{name: "an Experiment whose GPUs are a parameter", want: ".spec.template.spec 1x0 = 0; a", unknown: "Job cannot be read", object: `
apiVersion: kubeflow.org/v1beta1
kind: Experiment
spec: {parallelTrialCount: 3, trialTemplate: {trialSpec: {apiVersion: batch/v1, kind: Job, spec: {template: {spec: {containers: [{name: a, image: a, resources: {limits: {nvidia.com/gpu: "${trialParameters.gpus}"}}}]}}}}}}`},
		{name: "a kind that is not known", want: ".spec.predictor 1x2 = 2; a", unknown: "how many pods a InferenceService has is not known", object: `
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
spec: {predictor: ` + gpuPod + `}`},
		{name: "a pod that claims devices", want: "pod 1x0 = 0; a", unknown: "what its pods claim is not counted here", object: `
apiVersion: v1
kind: Pod
spec: {resourceClaims: [{name: g, resourceClaimTemplateName: g}], containers: [{name: a, image: a}]}`},
	}
	around := &cluster{runtimes: map[string]*unstructured.Unstructured{"ClusterTrainingRuntime/torch": parse(t, torch), "TrainingRuntime/mpi": parse(t, mpi)}}
	r := NewReader(around, nil)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u := parse(t, tt.object)
			before := u.DeepCopy()
			w := r.Read(context.Background(), u)
			if got := summary(w); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if !strings.HasPrefix(w.Unknown, tt.unknown) || (tt.unknown == "" && w.Unknown != "") {
				t.Errorf("unknown is %q", w.Unknown)
			}
			if diff := cmp.Diff(before, u); diff != "" {
				t.Errorf("the object was changed:\n%s", diff)
			}
		})
	}
}

// counting counts four devices for each pod.
type counting struct{}

func (counting) Count(_ context.Context, job *workload.Job) error {
	for i := range job.PodSets {
		job.PodSets[i].Claimed.PerPod = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("4")}
	}
	return nil
}

func TestClaimedDevicesAreGPUs(t *testing.T) {
	w := NewReader(nil, counting{}).Read(context.Background(), parse(t, `
apiVersion: batch/v1
kind: Job
spec: {parallelism: 3, template: {spec: {resourceClaims: [{name: g, resourceClaimTemplateName: g}], containers: [{name: a, image: a}]}}}`))
	if w.GPUs != 12 || w.GPUsPerPod != 4 || w.Unknown != "" {
		t.Errorf("%+v", w)
	}
}

func TestOwnersAreFollowedAsFarAsTheyExist(t *testing.T) {
	controller := func(kind, name, uid string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "x/v1", Kind: kind, Name: name, UID: types.UID(uid), Controller: new(true)}}
	}
	meta := func(uid string, owners []metav1.OwnerReference, queue string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), OwnerReferences: owners, Labels: map[string]string{workload.QueueLabel: queue}}}
	}
	around := &cluster{owners: map[string]*metav1.PartialObjectMetadata{
		"Job/j":    meta("1", controller("JobSet", "s", "2"), ""),
		"JobSet/s": meta("2", controller("TrainJob", "t", "3"), "main"),
	}}
	u := parse(t, "{apiVersion: v1, kind: Pod, metadata: {generateName: p-, ownerReferences: [{apiVersion: x/v1, kind: Job, name: j, uid: '1', controller: true}]}, spec: "+gpuPod+"}")
	w := NewReader(around, nil).Describe(context.Background(), &admissionv1.AdmissionRequest{Namespace: "a"}, u.Object).(*Workload)
	want := []Owner{
		{APIVersion: "x/v1", Kind: "Job", Name: "j", UID: "1", Exists: true},
		{APIVersion: "x/v1", Kind: "JobSet", Name: "s", UID: "2", Exists: true, Queue: "main"},
		{APIVersion: "x/v1", Kind: "TrainJob", Name: "t", UID: "3"},
	}
	if diff := cmp.Diff(want, w.Owners); diff != "" {
		t.Error(diff)
	}
	if w.Name != "p-*" || w.Namespace != "a" {
		t.Errorf("named %s/%s", w.Namespace, w.Name)
	}
	around.owners["Job/j"].UID = "another"
	if w := NewReader(around, nil).Read(context.Background(), u); len(w.Owners) != 1 || w.Owners[0].Exists {
		t.Errorf("an owner of another UID is believed: %+v", w.Owners)
	}
}

func TestDirectoriesThatGoWithThePod(t *testing.T) {
	w := NewReader(nil, nil).Read(t.Context(), parse(t, `
apiVersion: v1
kind: Pod
spec:
  volumes: [{name: a, emptyDir: {medium: Memory}}, {name: b, persistentVolumeClaim: {claimName: b}}, {name: c, emptyDir: {}}]
  initContainers: [{name: i, image: x, volumeMounts: [{name: b, mountPath: /b}, {name: c, mountPath: /c}]}]
  containers: [{name: m, image: x, volumeMounts: [{name: a, mountPath: /dev/shm}, {name: c, mountPath: /c}]}, {name: other, image: x}]
  ephemeralContainers: [{name: e, image: x, volumeMounts: [{name: a, mountPath: /a/}]}]`))
	got := map[string][]string{}
	for _, c := range w.Containers {
		got[c.Name] = c.Scratch
	}
	if diff := cmp.Diff(map[string][]string{"i": {"/c"}, "m": {"/dev/shm", "/c"}, "other": {}, "e": {"/a/"}}, got); diff != "" {
		t.Error(diff)
	}
}
