package defaults

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4" // what the API server applies patches with
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/muster-gpu/muster/api/v1alpha1"
)

// named reads the specification of RuntimeDefaults from YAML.
func named(t testing.TB, name, spec string) *v1alpha1.RuntimeDefaults {
	t.Helper()
	d := &v1alpha1.RuntimeDefaults{}
	d.Name, d.Generation = name, 1
	if err := yaml.UnmarshalStrict([]byte(spec), &d.Spec); err != nil {
		t.Fatal(err)
	}
	return d
}

// asJSON is YAML as the API server sends it.
func asJSON(t testing.TB, object string) []byte {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(object))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// stampPod stamps a pod and returns the patch, one operation a line, and the
// outcome. The patch must apply, and a second run must change nothing.
func stampPod(t testing.TB, pod string, around Around, all ...*v1alpha1.RuntimeDefaults) ([]string, Outcome) {
	t.Helper()
	raw := asJSON(t, pod)
	lines, out := stampOnce(t, raw, around, all)
	if len(out.Refusals) == 0 {
		if again, _ := stampOnce(t, applied(t, raw, lines), around, all); len(again) > 0 {
			t.Errorf("a second run changes: %v", again)
		}
	}
	return lines, out
}

func stampOnce(t testing.TB, raw []byte, around Around, all []*v1alpha1.RuntimeDefaults) ([]string, Outcome) {
	t.Helper()
	d, err := Read(raw)
	if err != nil {
		t.Fatal(err)
	}
	template, err := d.Pod()
	if err != nil {
		t.Fatal(err)
	}
	out := d.Stamp(template, Choose(all, Subject{Kind: "Pod"}, template.Pod.Labels), around)
	return lines(t, d), out
}

// lines are the operations of a patch.
func lines(t testing.TB, d *Document) []string {
	t.Helper()
	var all []string
	for _, op := range d.Patch() {
		data, err := json.Marshal(op)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(data))
	}
	return all
}

// applied is the object with the patch applied, as the API server does it.
func applied(t testing.TB, raw []byte, lines []string) []byte {
	t.Helper()
	list := "["
	for i, line := range lines {
		if i > 0 {
			list += ","
		}
		list += line
	}
	patch, err := jsonpatch.DecodePatch([]byte(list + "]"))
	if err != nil {
		t.Fatal(err)
	}
	after, err := patch.Apply(raw)
	if err != nil {
		t.Fatalf("the patch %s does not apply to %s: %v", list, raw, err)
	}
	return after
}

// note is the operation that records what was applied, where the pod has no
// annotations.
func note(value string) string {
	data, _ := json.Marshal(value)
	return `{"op":"add","path":"/metadata/annotations","value":{"muster.dev/runtime-defaults":` + string(data) + `}}`
}

const (
	header  = "metadata: {name: p}\n"
	gpuNode = `{name: node, resources: {limits: {nvidia.com/gpu: 8, memory: 100Gi}}}`
	// onePod asks for GPUs and has nothing else.
	onePod = header + `spec: {containers: [` + gpuNode + `]}`
)

func TestStamp(t *testing.T) {
	const c0 = `/spec/containers/0`
	gpu1 := note(`{"applied":["gpu@1"]}`)
	tests := map[string]struct {
		pod    string
		spec   string
		around Around
		want   []string
		// refused and warned are what the author hears.
		refused, warned []string
	}{
		"a pod without devices is left alone": {
			pod: header + `spec: {containers: [{name: c}]}`, spec: `{pod: {schedulerName: muster}, containers: {env: [{name: A, value: b}]}}`,
		},
		"GPUs in a request of an init container are seen": {
			pod:  header + `spec: {initContainers: [{name: check, resources: {requests: {amd.com/gpu: 1}}}], containers: [{name: c}]}`,
			spec: `{containers: {env: [{name: A, value: b}]}}`,
			want: []string{`{"op":"add","path":"/spec/initContainers/0/env","value":[{"name":"A","value":"b"}]}`, gpu1},
		},
		"a container that uses a claim is one that asks for GPUs": {
			pod:  header + `spec: {containers: [{name: c, resources: {claims: [{name: gpu}]}}]}`,
			spec: `{containers: {env: [{name: A, value: b}]}}`,
			want: []string{`{"op":"add","path":"` + c0 + `/env","value":[{"name":"A","value":"b"}]}`, gpu1},
		},
		"so is one with a resource that stands for devices": {
			pod:  header + `spec: {containers: [{name: c, resources: {limits: {deviceclass.resource.kubernetes.io/gpu.nvidia.com: 1}}}]}`,
			spec: `{containers: {env: [{name: A, value: b}]}}`,
			want: []string{`{"op":"add","path":"` + c0 + `/env","value":[{"name":"A","value":"b"}]}`, gpu1},
		},
		"a sidecar gets nothing": {
			pod:  header + `spec: {containers: [{name: sidecar}, ` + gpuNode + `], volumes: [{name: v}]}`,
			spec: `{containers: {env: [{name: A, value: b}], sharedMemory: {sizeLimit: 1Gi}}}`,
			want: []string{
				`{"op":"add","path":"/spec/containers/1/env","value":[{"name":"A","value":"b"}]}`,
				`{"op":"add","path":"/spec/volumes/-","value":{"emptyDir":{"medium":"Memory","sizeLimit":"1Gi"},"name":"muster-shm"}}`,
				`{"op":"add","path":"/spec/containers/1/volumeMounts","value":[{"mountPath":"/dev/shm","name":"muster-shm"}]}`, gpu1,
			},
		},
		"unless it is named": {
			pod:  header + `spec: {containers: [{name: sidecar}, ` + gpuNode + `]}`,
			spec: `{containers: {names: [sidecar], env: [{name: A, value: b}]}}`,
			want: []string{`{"op":"add","path":"/spec/containers/0/env","value":[{"name":"A","value":"b"}]}`, gpu1},
		},
		"variables that are there are kept, whatever they hold": {
			pod:  header + `spec: {containers: [{name: node, env: [{name: A, value: mine}, {name: B}, {name: C, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}], resources: {limits: {nvidia.com/gpu: 1}}}]}`,
			spec: `{containers: {env: [{name: A, value: a}, {name: B, value: b}, {name: C, value: c}, {name: D, value: d}, {name: E}]}}`,
			want: []string{
				`{"op":"add","path":"` + c0 + `/env/-","value":{"name":"D","value":"d"}}`,
				`{"op":"add","path":"` + c0 + `/env/-","value":{"name":"E"}}`, gpu1,
			},
		},
		"a variable that may come from a ConfigMap is kept, and its author hears of it": {
			pod:  header + `spec: {containers: [{name: node, envFrom: [{prefix: NCCL_, configMapRef: {name: fabric}}], resources: {limits: {nvidia.com/gpu: 1}}}]}`,
			spec: `{containers: {env: [{name: NCCL_DEBUG, value: WARN}, {name: OMP_NUM_THREADS, value: "8"}]}}`,
			want: []string{`{"op":"add","path":"` + c0 + `/env","value":[{"name":"OMP_NUM_THREADS","value":"8"}]}`, gpu1},
			warned: []string{
				`RuntimeDefaults gpu: env NCCL_DEBUG of container node is not set to "WARN": it may come from ConfigMap fabric`},
		},
		"a required variable that may come from a Secret refuses the pod": {
			pod:  header + `spec: {containers: [{name: node, envFrom: [{secretRef: {name: keys}}], resources: {limits: {nvidia.com/gpu: 1}}}]}`,
			spec: `{class: required, containers: {env: [{name: A, value: b}]}}`,
			refused: []string{
				`RuntimeDefaults gpu: env A of container node must be "b", and may come from Secret keys; write it out`},
			warned: []string{`RuntimeDefaults gpu: env A of container node is not set to "b": it may come from Secret keys`},
		},
		"what is required is added": {
			pod: onePod, spec: `{class: required, containers: {env: [{name: A, value: b}]}}`,
			want: []string{`{"op":"add","path":"` + c0 + `/env","value":[{"name":"A","value":"b"}]}`, gpu1},
		},
		"what is required and there is accepted": {
			pod:  header + `spec: {schedulerName: muster, containers: [` + gpuNode + `]}`,
			spec: `{class: required, pod: {schedulerName: muster}}`,
		},
		"what is required and is not what is there refuses the pod": {
			pod:     header + `spec: {schedulerName: volcano, terminationGracePeriodSeconds: 5, containers: [` + gpuNode + `]}`,
			spec:    `{class: required, pod: {schedulerName: muster, terminationGracePeriodSeconds: 60}}`,
			refused: []string{`RuntimeDefaults gpu: schedulerName must be "muster", and is "volcano"`, `RuntimeDefaults gpu: terminationGracePeriodSeconds must be "60", and is "5"`},
		},
		"half of the container's memory is shared": {
			pod: onePod, spec: `{containers: {sharedMemory: {memoryPercent: 50}}}`,
			want: []string{
				`{"op":"add","path":"/spec/volumes","value":[{"emptyDir":{"medium":"Memory","sizeLimit":"50Gi"},"name":"muster-shm"}]}`,
				`{"op":"add","path":"` + c0 + `/volumeMounts","value":[{"mountPath":"/dev/shm","name":"muster-shm"}]}`, gpu1,
			},
		},
		"and no more than the limit": {
			pod: onePod, spec: `{containers: {sharedMemory: {memoryPercent: 50, sizeLimit: 32Gi}}}`,
			want: []string{
				`{"op":"add","path":"/spec/volumes","value":[{"emptyDir":{"medium":"Memory","sizeLimit":"32Gi"},"name":"muster-shm"}]}`,
				`{"op":"add","path":"` + c0 + `/volumeMounts","value":[{"mountPath":"/dev/shm","name":"muster-shm"}]}`, gpu1,
			},
		},
		"without a memory limit nothing but the limit counts": {
			pod:  header + `spec: {containers: [{name: node, resources: {limits: {nvidia.com/gpu: 1}}}]}`,
			spec: `{containers: {sharedMemory: {memoryPercent: 50}}}`,
			want: []string{
				`{"op":"add","path":"/spec/volumes","value":[{"emptyDir":{"medium":"Memory"},"name":"muster-shm"}]}`,
				`{"op":"add","path":"` + c0 + `/volumeMounts","value":[{"mountPath":"/dev/shm","name":"muster-shm"}]}`, gpu1,
			},
		},
		"containers share one volume, of the size that suits the largest": {
			pod:  header + `spec: {containers: [{name: a, resources: {limits: {nvidia.com/gpu: 1, memory: 10Gi}}}, {name: b, volumeMounts: [{name: w, mountPath: /w}], resources: {limits: {nvidia.com/gpu: 1, memory: 20Gi}}}], volumes: [{name: w}]}`,
			spec: `{containers: {sharedMemory: {memoryPercent: 10}}}`,
			want: []string{
				`{"op":"add","path":"/spec/volumes/-","value":{"emptyDir":{"medium":"Memory","sizeLimit":"2Gi"},"name":"muster-shm"}}`,
				`{"op":"add","path":"` + c0 + `/volumeMounts","value":[{"mountPath":"/dev/shm","name":"muster-shm"}]}`,
				`{"op":"add","path":"/spec/containers/1/volumeMounts/-","value":{"mountPath":"/dev/shm","name":"muster-shm"}}`, gpu1,
			},
		},
		"a mount at /dev/shm/ is kept under any name": {
			pod:  header + `spec: {containers: [{name: node, volumeMounts: [{name: dshm, mountPath: /dev/shm/}], resources: {limits: {nvidia.com/gpu: 1}}}], volumes: [{name: dshm, emptyDir: {}}]}`,
			spec: `{containers: {sharedMemory: {sizeLimit: 1Gi}}}`,
		},
		"a required one that is no memory refuses the pod": {
			pod:     header + `spec: {containers: [{name: node, volumeMounts: [{name: dshm, mountPath: /dev/shm/}], resources: {limits: {nvidia.com/gpu: 1}}}], volumes: [{name: dshm, emptyDir: {}}]}`,
			spec:    `{class: required, containers: {sharedMemory: {sizeLimit: 1Gi}}}`,
			refused: []string{`RuntimeDefaults gpu: /dev/shm of container node must be "memory", and is "volume dshm"`},
		},
		"the node's shared memory is kept": {
			pod: header + `spec: {hostIPC: true, containers: [` + gpuNode + `]}`, spec: `{containers: {sharedMemory: {sizeLimit: 1Gi}}}`,
		},
		"an author's volume that has the name by chance is left": {
			pod:  header + `spec: {containers: [` + gpuNode + `], volumes: [{name: muster-shm, hostPath: {path: /data}}]}`,
			spec: `{containers: {sharedMemory: {sizeLimit: 1Gi}}}`,
			want: []string{
				`{"op":"add","path":"/spec/volumes/-","value":{"emptyDir":{"medium":"Memory","sizeLimit":"1Gi"},"name":"muster-shm-2"}}`,
				`{"op":"add","path":"` + c0 + `/volumeMounts","value":[{"mountPath":"/dev/shm","name":"muster-shm-2"}]}`, gpu1,
			},
		},
		"tolerations are united, and one that is covered is not added": {
			pod: header + `spec: {containers: [` + gpuNode + `], tolerations: [{key: a, operator: Exists}, {key: b, value: x, effect: NoSchedule}]}`,
			spec: `{pod: {tolerations: [{key: a, operator: Equal, value: y, effect: NoSchedule}, {key: b, operator: Equal, value: x, effect: NoSchedule},
				{key: b, operator: Exists, effect: NoSchedule}, {key: b, value: x, effect: NoExecute}]}}`,
			want: []string{
				`{"op":"add","path":"/spec/tolerations/-","value":{"effect":"NoSchedule","key":"b","operator":"Exists"}}`,
				`{"op":"add","path":"/spec/tolerations/-","value":{"effect":"NoExecute","key":"b","value":"x"}}`,
				note(`{"applied":["gpu@1"],"tolerations":[{"key":"b","operator":"Exists","effect":"NoSchedule"},{"key":"b","value":"x","effect":"NoExecute"}]}`),
			},
		},
		"one that tolerates everything covers all of its effect": {
			pod:  header + `spec: {containers: [` + gpuNode + `], tolerations: [{operator: Exists, effect: NoSchedule}]}`,
			spec: `{pod: {tolerations: [{key: a, operator: Exists, effect: NoSchedule}]}}`,
		},
		"labels and annotations are added beside those that are there": {
			pod:  `{metadata: {labels: {a: mine}}, spec: {containers: [` + gpuNode + `]}}`,
			spec: `{pod: {labels: {a: b, x/y: z}, annotations: {note: ""}}}`,
			want: []string{
				`{"op":"add","path":"/metadata/labels/x~1y","value":"z"}`,
				`{"op":"add","path":"/metadata/annotations","value":{"note":""}}`,
				`{"op":"add","path":"/metadata/annotations/muster.dev~1runtime-defaults","value":"{\"applied\":[\"gpu@1\"],\"labels\":{\"x/y\":\"z\"},\"annotations\":{\"note\":\"\"}}"}`,
			},
		},
		"a pod without metadata gets it": {
			pod: `{spec: {containers: [` + gpuNode + `]}}`, spec: `{pod: {schedulerName: muster}}`,
			want: []string{`{"op":"add","path":"/spec/schedulerName","value":"muster"}`, `{"op":"add","path":"/metadata","value":{"annotations":{"muster.dev/runtime-defaults":"{\"applied\":[\"gpu@1\"]}"}}}`},
		},
		"the API server's own scheduler, grace period and pull policy are no author's choice": {
			pod: header + `spec: {schedulerName: default-scheduler, terminationGracePeriodSeconds: 30, containers: [
				{name: node, image: "train:latest", imagePullPolicy: Always, resources: {limits: {nvidia.com/gpu: 1}}}]}`,
			spec:   `{class: required, pod: {schedulerName: muster, terminationGracePeriodSeconds: 60}, containers: {imagePullPolicy: IfNotPresent}}`,
			around: Around{Defaulted: true},
			want: []string{
				`{"op":"add","path":"` + c0 + `/imagePullPolicy","value":"IfNotPresent"}`,
				`{"op":"add","path":"/spec/schedulerName","value":"muster"}`, `{"op":"add","path":"/spec/terminationGracePeriodSeconds","value":60}`, gpu1,
			},
		},
		"in a template of a JobSet they are": {
			pod: header + `spec: {schedulerName: default-scheduler, terminationGracePeriodSeconds: 30, containers: [
				{name: node, image: "train:latest", imagePullPolicy: Always, resources: {limits: {nvidia.com/gpu: 1}}}]}`,
			spec: `{pod: {schedulerName: muster, terminationGracePeriodSeconds: 60}, containers: {imagePullPolicy: IfNotPresent}}`,
		},
		"a pull policy that is not the image's own is an author's choice": {
			pod:    header + `spec: {containers: [{name: node, image: "train:v1", imagePullPolicy: Always, resources: {limits: {nvidia.com/gpu: 1}}}]}`,
			spec:   `{containers: {imagePullPolicy: Never}}`,
			around: Around{Defaulted: true},
		},
		"a priority class takes the numbers of the other one away": {
			pod:    header + `spec: {priority: 0, preemptionPolicy: PreemptLowerPriority, containers: [` + gpuNode + `]}`,
			spec:   `{pod: {priorityClassName: high}}`,
			around: Around{Defaulted: true, PriorityClasses: sets.New("high")},
			want: []string{
				`{"op":"add","path":"/spec/priorityClassName","value":"high"}`, `{"op":"remove","path":"/spec/priority"}`, `{"op":"remove","path":"/spec/preemptionPolicy"}`, gpu1,
			},
		},
		"the cluster's default priority is no author's choice": {
			pod:    header + `spec: {priorityClassName: usual, priority: 7, containers: [` + gpuNode + `]}`,
			spec:   `{pod: {priorityClassName: high}}`,
			around: Around{Defaulted: true, PriorityClasses: sets.New("high", "usual"), DefaultPriorityClass: "usual"},
			want:   []string{`{"op":"add","path":"/spec/priorityClassName","value":"high"}`, `{"op":"remove","path":"/spec/priority"}`, gpu1},
		},
		"an author's priority class is kept with its numbers": {
			pod:    header + `spec: {priorityClassName: mine, priority: 7, containers: [` + gpuNode + `]}`,
			spec:   `{pod: {priorityClassName: high}}`,
			around: Around{Defaulted: true, PriorityClasses: sets.New("high", "mine")},
		},
		"classes that do not exist are left out, though they are required": {
			pod: onePod, spec: `{class: required, pod: {priorityClassName: high, runtimeClassName: nvidia}}`,
			warned: []string{
				`RuntimeDefaults gpu: priorityClassName is not set to "high": there is no such PriorityClass`,
				`RuntimeDefaults gpu: runtimeClassName is not set to "nvidia": there is no such RuntimeClass`,
			},
		},
		"a runtime class": {
			pod: onePod, spec: `{pod: {runtimeClassName: nvidia}}`, around: Around{RuntimeClasses: sets.New("nvidia")},
			want: []string{`{"op":"add","path":"/spec/runtimeClassName","value":"nvidia"}`, gpu1},
		},
		"a capability is added to those that are there": {
			pod:  header + `spec: {containers: [{name: node, securityContext: {capabilities: {add: [SYS_NICE], drop: [CHOWN]}}, resources: {limits: {nvidia.com/gpu: 1}}}]}`,
			spec: `{containers: {capabilities: [SYS_NICE, IPC_LOCK]}}`,
			want: []string{`{"op":"add","path":"` + c0 + `/securityContext/capabilities/add/-","value":"IPC_LOCK"}`, gpu1},
		},
		"a capability where there is no security context": {
			pod: onePod, spec: `{containers: {capabilities: [IPC_LOCK]}}`,
			want: []string{`{"op":"add","path":"` + c0 + `/securityContext","value":{"capabilities":{"add":["IPC_LOCK"]}}}`, gpu1},
		},
		"a capability that the container drops is not added": {
			pod:  header + `spec: {containers: [{name: node, securityContext: {capabilities: {drop: [ALL]}}, resources: {limits: {nvidia.com/gpu: 1}}}]}`,
			spec: `{containers: {capabilities: [IPC_LOCK]}}`,
		},
		"a privileged container has every capability": {
			pod:  header + `spec: {containers: [{name: node, securityContext: {privileged: true}, resources: {limits: {nvidia.com/gpu: 1}}}]}`,
			spec: `{class: required, containers: {capabilities: [IPC_LOCK]}}`,
		},
		"a capability that would have the pod refused is left out": {
			pod: onePod, spec: `{class: required, containers: {capabilities: [IPC_LOCK]}}`, around: Around{Baseline: true},
			warned: []string{`RuntimeDefaults gpu: capability IPC_LOCK of container node is not set to "added": the Pod Security level of the namespace does not allow it`},
		},
		"devices for each GPU, and for each container": {
			pod: onePod, spec: `{containers: {resources: [{name: rdma/hca, count: 2, perGPU: true}, {name: example.com/port, count: 1}]}}`,
			want: []string{`{"op":"add","path":"` + c0 + `/resources/limits/rdma~1hca","value":"16"}`, `{"op":"add","path":"` + c0 + `/resources/limits/example.com~1port","value":"1"}`, gpu1},
		},
		"devices that the author asks for are kept": {
			pod:  header + `spec: {containers: [{name: node, resources: {limits: {nvidia.com/gpu: 1, rdma/hca: 0}}}]}`,
			spec: `{containers: {resources: [{name: rdma/hca, count: 1}]}}`,
		},
		"the container that starts MPI's ranks gets the variables and passes them on, with its author's values": {
			pod: header + `spec: {containers: [{name: node, env: [{name: OMPI_MCA_orte_default_hostfile, value: /h}, {name: NCCL_DEBUG, value: INFO}]}]}`,
			spec: `{pod: {schedulerName: muster}, containers: {env: [{name: NCCL_DEBUG, value: WARN}, {name: NCCL_IB_HCA, value: mlx5}],
				sharedMemory: {sizeLimit: 1Gi}}}`,
			want: []string{
				`{"op":"add","path":"` + c0 + `/env/-","value":{"name":"NCCL_IB_HCA","value":"mlx5"}}`,
				`{"op":"add","path":"` + c0 + `/env/-","value":{"name":"OMPI_MCA_mca_base_env_list","value":"NCCL_DEBUG;NCCL_IB_HCA"}}`, gpu1,
			},
		},
		"a list of the author's own is left, and the author hears of it": {
			pod: header + `spec: {containers: [{name: node, env: [{name: OMPI_MCA_orte_default_hostfile, value: /h}, {name: OMPI_MCA_mca_base_env_list, value: X}, {name: NCCL_DEBUG}]}]}`, spec: `{containers: {env: [{name: NCCL_DEBUG, value: WARN}]}}`,
			warned: []string{`RuntimeDefaults gpu: env OMPI_MCA_mca_base_env_list of container node is not set to "NCCL_DEBUG": it is "X"`},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, out := stampPod(t, tc.pod, tc.around, named(t, "gpu", tc.spec))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.refused, out.Refusals); diff != "" {
				t.Errorf("refusals (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.warned, out.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOfSeveralRuntimeDefaultsTheFirstDecides(t *testing.T) {
	env := func(name, value, rest string) *v1alpha1.RuntimeDefaults {
		return named(t, name, `{`+rest+`containers: {env: [{name: A, value: `+value+`}, {name: `+name+`, value: x}]}}`)
	}
	for name, tc := range map[string]struct {
		all  []*v1alpha1.RuntimeDefaults
		want string // the value of A
		by   []string
	}{
		"the heavier":                          {[]*v1alpha1.RuntimeDefaults{env("a", "light", ""), env("b", "heavy", "weight: 1, ")}, "heavy", []string{"b@1", "a@1"}},
		"the required one, whatever it weighs": {[]*v1alpha1.RuntimeDefaults{env("a", "heavy", "weight: 9, "), env("b", "must", "class: required, ")}, "must", []string{"b@1", "a@1"}},
		"of equals the first in the alphabet":  {[]*v1alpha1.RuntimeDefaults{env("b", "second", ""), env("a", "first", "")}, "first", []string{"a@1", "b@1"}},
		"of two required ones too":             {[]*v1alpha1.RuntimeDefaults{env("b", "second", "class: required, "), env("a", "first", "class: required, ")}, "first", []string{"a@1", "b@1"}},
	} {
		t.Run(name, func(t *testing.T) {
			lines, out := stampPod(t, onePod, Around{}, tc.all...)
			if len(out.Refusals) > 0 {
				t.Errorf("refused: %v", out.Refusals)
			}
			pod := corev1.PodTemplateSpec{}
			if err := json.Unmarshal(applied(t, asJSON(t, onePod), lines), &pod); err != nil {
				t.Fatal(err)
			}
			if got := pod.Spec.Containers[0].Env[0]; got.Name != "A" || got.Value != tc.want {
				t.Errorf("%s=%s, want A=%s", got.Name, got.Value, tc.want)
			}
			if diff := cmp.Diff(tc.by, Applied(&pod)); diff != "" {
				t.Errorf("applied (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatSeveralRuntimeDefaultsAddIsAllPassedOnToRanks(t *testing.T) {
	const launcher = header + `spec: {containers: [{name: node, env: [{name: OMPI_MCA_orte_default_hostfile, value: /h}]}]}`
	lines, _ := stampPod(t, launcher, Around{},
		named(t, "a", `{containers: {env: [{name: A, value: a}]}}`), named(t, "b", `{containers: {env: [{name: B, value: b}, {name: A, value: c}]}}`))
	pod := corev1.PodTemplateSpec{}
	if err := json.Unmarshal(applied(t, asJSON(t, launcher), lines), &pod); err != nil {
		t.Fatal(err)
	}
	want := []corev1.EnvVar{{Name: "OMPI_MCA_orte_default_hostfile", Value: "/h"}, {Name: "A", Value: "a"}, {Name: "OMPI_MCA_mca_base_env_list", Value: "A;B"}, {Name: "B", Value: "b"}}
	if diff := cmp.Diff(want, pod.Spec.Containers[0].Env); diff != "" {
		t.Errorf("env (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a@1", "b@1"}, Applied(&pod)); diff != "" {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
}

func TestChoose(t *testing.T) {
	subject := Subject{
		Namespace: map[string]string{"team": "nlp"}, Kind: "TrainJob", Queue: "q",
		Runtime: &v1alpha1.RuntimeReference{Kind: "ClusterTrainingRuntime", Name: "torch"},
	}
	for name, tc := range map[string]struct {
		match   string
		subject *Subject
		want    bool
	}{
		"everything":                        {match: `{}`, want: true},
		"the namespace's label":             {match: `{namespaceSelector: {matchLabels: {team: nlp}}}`, want: true},
		"another namespace's":               {match: `{namespaceSelector: {matchLabels: {team: vision}}}`},
		"the kind":                          {match: `{kinds: [Job, TrainJob]}`, want: true},
		"another kind":                      {match: `{kinds: [JobSet]}`},
		"the queue":                         {match: `{queues: [q]}`, want: true},
		"another queue":                     {match: `{queues: [p]}`},
		"any queue, of a job that has none": {match: `{queues: [q]}`, subject: &Subject{}},
		"the runtime":                       {match: `{runtimes: [{kind: ClusterTrainingRuntime, name: torch}]}`, want: true},
		"a namespace's runtime of its name": {match: `{runtimes: [{kind: TrainingRuntime, name: torch}]}`},
		"a runtime, of a job that has none": {match: `{runtimes: [{kind: TrainingRuntime, name: torch}]}`, subject: &Subject{}},
		"the pod's label":                   {match: `{podSelector: {matchLabels: {app: train}}}`, want: true},
		"another pod's":                     {match: `{podSelector: {matchLabels: {app: serve}}}`},
		"all but one part":                  {match: `{kinds: [TrainJob], queues: [q], podSelector: {matchLabels: {app: serve}}}`},
		"a selector that cannot be read":    {match: `{podSelector: {matchExpressions: [{key: app, operator: Odd}]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := subject
			if tc.subject != nil {
				s = *tc.subject
			}
			got := Choose([]*v1alpha1.RuntimeDefaults{named(t, "d", `{match: `+tc.match+`}`)}, s, map[string]string{"app": "train"})
			if (len(got) == 1) != tc.want {
				t.Errorf("selected: %v", got)
			}
		})
	}
}

func TestAValueThatIsTheAPIServersOwnCanBeWanted(t *testing.T) {
	const pod = header + `spec: {terminationGracePeriodSeconds: 30, containers: [` + gpuNode + `]}`
	got, out := stampPod(t, pod, Around{Defaulted: true},
		named(t, "a", `{pod: {terminationGracePeriodSeconds: 30}}`), named(t, "b", `{pod: {terminationGracePeriodSeconds: 60}}`))
	if len(got) > 0 {
		t.Errorf("changes: %v", got)
	}
	want := []Value{
		{Field: "terminationGracePeriodSeconds", Value: "30", From: "a", Wanted: "30", By: "a"},
		{Field: "terminationGracePeriodSeconds", Value: "30", From: "a", Wanted: "60", By: "b", Why: "RuntimeDefaults a come first"},
	}
	if diff := cmp.Diff(want, out.Values); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}

func TestTheRecordOfAnEarlierRunIsKept(t *testing.T) {
	a := named(t, "a", `{pod: {tolerations: [{key: a, operator: Exists}]}}`)
	b := named(t, "b", `{pod: {tolerations: [{key: b, operator: Exists}], labels: {b: x}}}`)
	first, _ := stampPod(t, onePod, Around{}, a)
	raw := applied(t, asJSON(t, onePod), first)
	second, _ := stampOnce(t, raw, Around{}, []*v1alpha1.RuntimeDefaults{a, b})
	pod := corev1.PodTemplateSpec{}
	if err := json.Unmarshal(applied(t, raw, second), &pod); err != nil {
		t.Fatal(err)
	}
	want := `{"applied":["a@1","b@1"],"tolerations":[{"key":"a","operator":"Exists"},{"key":"b","operator":"Exists"}],"labels":{"b":"x"}}`
	if diff := cmp.Diff(want, pod.Annotations[Annotation]); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}
