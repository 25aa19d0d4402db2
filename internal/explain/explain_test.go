package explain

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"sigs.k8s.io/yaml"

	"github.com/muster-gpu/muster/admission/defaults"
)

const gpuDefaults = `
apiVersion: muster.dev/v1alpha1
kind: RuntimeDefaults
metadata: {name: gpu, generation: 3}
spec:
  match: {kinds: [Pod, JobSet]}
  pod: {schedulerName: muster, priorityClassName: high}
  containers: {env: [{name: NCCL_DEBUG, value: WARN}, {name: NCCL_IB_HCA, value: mlx5}, {name: OMP_NUM_THREADS, value: "8"}]}
---
apiVersion: muster.dev/v1alpha1
kind: RuntimeDefaults
metadata: {name: later, generation: 1}
spec:
  class: required
  match: {podSelector: {matchLabels: {strict: "yes"}}}
  pod: {schedulerName: volcano}
---
apiVersion: muster.dev/v1alpha1
kind: RuntimeDefaults
metadata: {name: queued, generation: 1}
spec:
  match: {queues: [q]}
  pod: {terminationGracePeriodSeconds: 60}
---
apiVersion: muster.dev/v1alpha1
kind: RuntimeDefaults
metadata: {name: fabric, generation: 1}
spec:
  weight: 5
  match: {podSelector: {matchLabels: {fabric: roce}}}
  containers: {env: [{name: NCCL_IB_HCA, value: bnxt}]}
`

const aPod = `
apiVersion: v1
kind: Pod
metadata:
  namespace: nlp
  name: old
  uid: u
  annotations: {muster.dev/runtime-defaults: '{"applied":["gpu@2"]}'}
spec:
  schedulerName: muster
  containers:
  - name: c
    env: [{name: NCCL_DEBUG, value: INFO}, {name: NCCL_IB_HCA, value: mlx5}]
    resources: {limits: {nvidia.com/gpu: 1}}
`

const member = `
apiVersion: v1
kind: Pod
metadata:
  namespace: nlp
  name: llm-node-0-0
  uid: u
  labels: {jobset.sigs.k8s.io/jobset-name: llm}
  ownerReferences: [{apiVersion: batch/v1, kind: Job, name: llm-node-0, uid: j, controller: true}]
spec:
  containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]
`

const jobSet = `
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {namespace: nlp, name: llm, labels: {kueue.x-k8s.io/queue-name: q}}
spec:
  replicatedJobs:
  - name: prepare
    template: {spec: {template: {spec: {containers: [{name: c}]}}}}
  - name: node
    template:
      spec:
        template:
          metadata: {labels: {strict: "yes"}}
          spec:
            schedulerName: mine
            containers: [{name: c, envFrom: [{secretRef: {name: s, prefix: OMP_}}], resources: {limits: {nvidia.com/gpu: 1}}}]
`

// onFabric is a pod that was created before there were the RuntimeDefaults of its fabric,
// and fresh is one that is not created yet.
const (
	onFabric = `
apiVersion: v1
kind: Pod
metadata:
  namespace: nlp
  name: roce
  uid: u
  labels: {fabric: roce}
  annotations: {muster.dev/runtime-defaults: '{"applied":["gpu@3"]}'}
spec:
  schedulerName: muster
  containers:
  - name: c
    env: [{name: NCCL_DEBUG, value: WARN}, {name: NCCL_IB_HCA, value: mlx5}, {name: OMP_NUM_THREADS, value: "8"}]
    resources: {limits: {nvidia.com/gpu: 1}}
`
	fresh = `
apiVersion: v1
kind: Pod
metadata: {namespace: nlp, name: new, labels: {fabric: roce}}
spec:
  containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]
`
)

func objects(t *testing.T, documents string) []runtime.Object {
	t.Helper()
	var all []runtime.Object
	for _, document := range strings.Split(documents, "\n---") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
			t.Fatal(err)
		}
		all = append(all, u)
	}
	return all
}

func TestExplain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(file, []byte(strings.Replace(jobSet, "namespace: nlp, ", "", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		options Options
		want    string
		failure string
	}{
		"a pod that exists": {options: Options{Pod: "old"}, want: `
Pod nlp/old: selected by RuntimeDefaults gpu; changed by gpu@2
FIELD                                VALUE    FROM
env NCCL_DEBUG of container c        INFO     its author or runtime, not "WARN" of RuntimeDefaults gpu
env NCCL_IB_HCA of container c       mlx5     RuntimeDefaults gpu
env OMP_NUM_THREADS of container c   8        only a new one gets it from RuntimeDefaults gpu
priorityClassName                             not set to "high" of RuntimeDefaults gpu: there is no such PriorityClass
schedulerName                        muster   RuntimeDefaults gpu
`},
		"a pod that exists, of which RuntimeDefaults that came later want something else": {options: Options{Pod: "roce"}, want: `
Pod nlp/roce: selected by RuntimeDefaults fabric, gpu; changed by gpu@3
FIELD                                VALUE    FROM
env NCCL_IB_HCA of container c       mlx5     RuntimeDefaults gpu; a new one gets "bnxt" from RuntimeDefaults fabric
env NCCL_DEBUG of container c        WARN     RuntimeDefaults gpu
env OMP_NUM_THREADS of container c   8        RuntimeDefaults gpu
priorityClassName                             not set to "high" of RuntimeDefaults gpu: there is no such PriorityClass
schedulerName                        muster   RuntimeDefaults gpu
`},
		"a pod of which two want different things": {options: Options{File: "-", In: strings.NewReader(fresh)}, want: `
Pod nlp/new: selected by RuntimeDefaults fabric, gpu
FIELD                                VALUE    FROM
env NCCL_IB_HCA of container c       bnxt     RuntimeDefaults fabric, before RuntimeDefaults gpu with "mlx5"
env NCCL_DEBUG of container c        WARN     RuntimeDefaults gpu
env OMP_NUM_THREADS of container c   8        RuntimeDefaults gpu
priorityClassName                             not set to "high" of RuntimeDefaults gpu: there is no such PriorityClass
schedulerName                        muster   RuntimeDefaults gpu
`},
		"a JobSet in a file": {options: Options{File: file}, want: `
JobSet nlp/llm, pods of prepare: selected by RuntimeDefaults gpu, queued
JobSet nlp/llm, pods of node: selected by RuntimeDefaults later, gpu, queued
FIELD                                VALUE   FROM
schedulerName                        mine    its author or runtime, not "volcano" of RuntimeDefaults later, nor "muster" of RuntimeDefaults gpu
env NCCL_DEBUG of container c                not set to "WARN" of RuntimeDefaults gpu: it may come from Secret s
env NCCL_IB_HCA of container c               not set to "mlx5" of RuntimeDefaults gpu: it may come from Secret s
env OMP_NUM_THREADS of container c           not set to "8" of RuntimeDefaults gpu: it may come from Secret s
priorityClassName                            not set to "high" of RuntimeDefaults gpu: there is no such PriorityClass
terminationGracePeriodSeconds        60      RuntimeDefaults queued
refused: RuntimeDefaults later: schedulerName must be "volcano", and is "mine"
`},
		"a pod of a JobSet is selected as the JobSet is": {options: Options{Pod: "llm-node-0-0"}, want: `
Pod nlp/llm-node-0-0: selected by RuntimeDefaults gpu, queued
FIELD                                VALUE    FROM
env NCCL_DEBUG of container c        WARN     only a new one gets it from RuntimeDefaults gpu
env NCCL_IB_HCA of container c       mlx5     only a new one gets it from RuntimeDefaults gpu
env OMP_NUM_THREADS of container c   8        only a new one gets it from RuntimeDefaults gpu
priorityClassName                             not set to "high" of RuntimeDefaults gpu: there is no such PriorityClass
schedulerName                        muster   only a new one gets it from RuntimeDefaults gpu
terminationGracePeriodSeconds        60       only a new one gets it from RuntimeDefaults queued
`},
		"a pod as kubectl names it": {options: Options{Pod: "pod/none"}, failure: `reading pod nlp/none: pods "none" not found`},
		"a pod that does not exist": {options: Options{Pod: "none"}, failure: `reading pod nlp/none: pods "none" not found`},
		"a kind that gets none":     {options: Options{File: "-", In: strings.NewReader("apiVersion: batch/v1\nkind: Job\n")}, failure: "a Job gets no RuntimeDefaults: its pods do, or its JobSet"},
		"no YAML":                   {options: Options{File: "-", In: strings.NewReader("a: b: c")}, failure: "reading -, object 1"},
		"no file":                   {options: Options{File: "/none"}, failure: "reading what is to be explained"},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := metadatafake.NewTestScheme()
			if err := metav1.AddMetaToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			lists := map[schema.GroupVersionResource]string{{Group: "muster.dev", Version: "v1alpha1", Resource: "runtimedefaults"}: "RuntimeDefaultsList"}
			client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, objects(t, aPod+"---"+onFabric+"---"+member+"---"+jobSet)...)
			for _, d := range objects(t, gpuDefaults) {
				if err := client.Tracker().Create(schema.GroupVersionResource{Group: "muster.dev", Version: "v1alpha1", Resource: "runtimedefaults"}, d, ""); err != nil {
					t.Fatal(err)
				}
			}
			catalog := defaults.NewCatalog(fake.NewClientset(), client, metadatafake.NewSimpleMetadataClient(scheme))
			var out bytes.Buffer
			tc.options.Out, tc.options.Namespace = &out, "nlp"
			err := explain(t.Context(), catalog, client, tc.options)
			if tc.failure != "" {
				if err == nil || !strings.Contains(err.Error(), tc.failure) {
					t.Fatalf("the error is %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.TrimPrefix(tc.want, "\n"), out.String()); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
			for _, action := range client.Actions() {
				if verb := action.GetVerb(); verb != "get" && verb != "list" && verb != "watch" {
					t.Errorf("it makes the call %s", verb)
				}
			}
		})
	}
}
