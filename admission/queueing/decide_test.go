package queueing

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4" // what the API server applies patches with
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"
)

const scheduler = "muster"

// The templates of the shipped DeepSpeed runtime: two replicated jobs.
const mpiJobs = `"replicatedJobs":[
	{"name":"launcher","template":{"spec":{"template":{"spec":{"containers":[{"name":"node"}]}}}}},
	{"name":"node","replicas":1,"template":{"spec":{"parallelism":4,"template":{"spec":{"containers":[{"name":"node"}]}}}}}]`

const ownedByTrainJob = `"ownerReferences":[
	{"apiVersion":"v1","kind":"ConfigMap","name":"snapshot","uid":"u0"},
	{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob","name":"llm","uid":"u1","controller":true}]`

const ownedByMPIJob = `"ownerReferences":[{"apiVersion":"kubeflow.org/v2beta1","kind":"MPIJob","name":"llm","uid":"u1","controller":true}]`

var pyTorchJob = schema.GroupKind{Group: "kubeflow.org", Kind: "PyTorchJob"}

const ownedByJobSet = `"ownerReferences":[{"apiVersion":"jobset.x-k8s.io/v1alpha2","kind":"JobSet","name":"llm","uid":"u1","controller":true}]`

// podOf is a Job's template with the scheduler's name that is given.
func podOf(scheduler string) string {
	return `"template":{"spec":{"schedulerName":` + scheduler + `,"containers":[{"name":"node"}]}}`
}

const queued = `"labels":{"kueue.x-k8s.io/queue-name":"team-nlp"}`

func TestDecide(t *testing.T) {
	suspend := `{"op":"add","path":"/spec/suspend","value":true}`
	stamp := func(i int) string {
		return fmt.Sprintf(`{"op":"add","path":"/spec/replicatedJobs/%d/template/spec/template/spec/schedulerName","value":"muster"}`, i)
	}
	stampPod := `{"op":"add","path":"/spec/schedulerName","value":"muster"}`
	stampJob := `{"op":"add","path":"/spec/template/spec/schedulerName","value":"muster"}`
	suspendTraining := `{"op":"add","path":"/spec/runPolicy/suspend","value":true}`
	stampReplicas := func(path string) string {
		return `{"op":"add","path":"/spec/` + path + `/template/spec/schedulerName","value":"muster"}`
	}
	const pyTorch = `"pytorchReplicaSpecs":{"Worker":{"template":{"spec":{"schedulerName":""}}},"Master":{"template":{"spec":{}}}}`
	tests := map[string]struct {
		kind        schema.GroupKind
		object      string
		ownerQueued bool
		want        []string
	}{
		"a PyTorchJob is suspended and all its templates are stamped": {
			kind: pyTorchJob, object: `{"metadata":{` + queued + `},"spec":{"runPolicy":{"suspend":false},` + pyTorch + `}}`,
			want: []string{suspendTraining, stampReplicas("pytorchReplicaSpecs/Master"), stampReplicas("pytorchReplicaSpecs/Worker")},
		},
		"a training job without a run policy is given one": {
			kind: pyTorchJob, object: `{"metadata":{` + queued + `},"spec":{}}`,
			want: []string{`{"op":"add","path":"/spec/runPolicy","value":{"suspend":true}}`},
		},
		"a suspended training job is stamped, unless it names a scheduler": {
			kind: MPIJob, object: `{"metadata":{` + queued + `},"spec":{"suspend":false,"runPolicy":{"suspend":true},"mpiReplicaSpecs":{
				"Launcher":{"template":{"spec":{"schedulerName":"default-scheduler"}}},"Worker":{"template":{"spec":{}}},"odd/~":{"template":{"spec":{}}},"none":null}}}`,
			want: []string{stampReplicas("mpiReplicaSpecs/Worker"), stampReplicas("mpiReplicaSpecs/odd~1~0")},
		},
		"a training job that another controller manages is left": {
			kind: pyTorchJob, object: `{"metadata":{` + queued + `},"spec":{"runPolicy":{"managedBy":"kueue.x-k8s.io/multikueue"},` + pyTorch + `}}`,
		},
		"an MPIJob of the MPI Operator is suspended": {
			kind: MPIJob, object: `{"metadata":{` + queued + `},"spec":{"runPolicy":{"managedBy":"kubeflow.org/mpi-operator"}}}`, want: []string{suspendTraining},
		},
		"a training job without a queue is left": {
			kind: pyTorchJob, object: `{"metadata":{},"spec":{` + pyTorch + `}}`,
		},
		"a Job of an MPIJob is left, whatever its labels say": {
			kind: Job, object: `{"metadata":{` + queued + `,` + ownedByMPIJob + `},"spec":{` + podOf(`"default-scheduler"`) + `}}`,
		},
		"a Job with a queue is suspended, and the default that the API server wrote is replaced": {
			kind: Job, object: `{"metadata":{` + queued + `},"spec":{"suspend":false,` + podOf(`"default-scheduler"`) + `}}`,
			want: []string{suspend, stampJob},
		},
		"a suspended Job that names no scheduler is stamped": {
			kind: Job, object: `{"metadata":{` + queued + `},"spec":{"suspend":true,` + podOf(`null`) + `}}`,
			want: []string{stampJob},
		},
		"a Job that names another scheduler keeps it": {
			kind: Job, object: `{"metadata":{` + queued + `},"spec":{"suspend":true,` + podOf(`"volcano"`) + `}}`,
		},
		"a suspended Job that names Muster is left": {
			kind: Job, object: `{"metadata":{` + queued + `},"spec":{"suspend":true,` + podOf(`"muster"`) + `}}`,
		},
		"a Job without a queue is left": {
			kind: Job, object: `{"metadata":{},"spec":{` + podOf(`"default-scheduler"`) + `}}`,
		},
		"a Job of a JobSet is left, whatever its labels say": {
			kind: Job, object: `{"metadata":{` + queued + `,` + ownedByJobSet + `},"spec":{` + podOf(`"default-scheduler"`) + `}}`,
		},
		"a Job of a CronJob is a job of its own": {
			kind: Job, object: `{"metadata":{` + queued + `,"ownerReferences":[{"apiVersion":"batch/v1","kind":"CronJob","name":"x","uid":"u","controller":true}]},"spec":{` + podOf(`"default-scheduler"`) + `}}`,
			want: []string{suspend, stampJob},
		},
		"a Job that another controller manages is left": {
			kind: Job, object: `{"metadata":{` + queued + `},"spec":{"managedBy":"kueue.x-k8s.io/multikueue",` + podOf(`"default-scheduler"`) + `}}`,
		},
		"a Job that its own controller manages by name is queued": {
			kind: Job, object: `{"metadata":{` + queued + `},"spec":{"managedBy":"kubernetes.io/job-controller","suspend":true,` + podOf(`"default-scheduler"`) + `}}`,
			want: []string{stampJob},
		},
		"a Job without a template is suspended only": {
			kind: Job, object: `{"metadata":{` + queued + `},"spec":{}}`,
			want: []string{suspend},
		},
		"a queued pod is stamped in place of the API server's default": {
			kind: Pod, object: `{"metadata":{` + queued + `},"spec":{"schedulerName":"default-scheduler"}}`,
			want: []string{stampPod},
		},
		"a queued pod without a scheduler is stamped": {
			kind: Pod, object: `{"metadata":{` + queued + `},"spec":{}}`,
			want: []string{stampPod},
		},
		"a queued pod of a ReplicaSet is stamped": {
			kind: Pod, object: `{"metadata":{` + queued + `,"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"x","uid":"u","controller":true}]},"spec":{}}`,
			want: []string{stampPod},
		},
		"a queued pod that names another scheduler keeps it": {
			kind: Pod, object: `{"metadata":{` + queued + `},"spec":{"schedulerName":"volcano"}}`,
		},
		"a queued pod that names Muster is left": {
			kind: Pod, object: `{"metadata":{` + queued + `},"spec":{"schedulerName":"muster"}}`,
		},
		"a queued pod that was made for a node is left": {
			kind: Pod, object: `{"metadata":{` + queued + `},"spec":{"schedulerName":"default-scheduler","nodeName":"n0"}}`,
		},
		"a pod without a queue is left": {
			kind: Pod, object: `{"metadata":{},"spec":{` + gpus("nvidia.com/gpu", `8`) + `}}`,
		},
		"a pod without a spec is left": {
			kind: Pod, object: `{"metadata":{` + queued + `}}`,
		},
		"a JobSet's explicit default scheduler is its author's own": {
			kind: JobSet, object: `{"metadata":{` + queued + `},"spec":{"suspend":true,"replicatedJobs":[{"template":{"spec":{"template":{"spec":{"schedulerName":"default-scheduler"}}}}}]}}`,
		},
		"a TrainJob with a queue is suspended": {
			kind: TrainJob, object: `{"metadata":{` + queued + `},"spec":{"runtimeRef":{"name":"torch"}}}`,
			want: []string{suspend},
		},
		"a TrainJob that says suspend: false is suspended": {
			kind: TrainJob, object: `{"metadata":{` + queued + `},"spec":{"suspend":false}}`,
			want: []string{suspend},
		},
		"a TrainJob that says suspend: null is suspended": {
			kind: TrainJob, object: `{"metadata":{` + queued + `},"spec":{"suspend":null}}`,
			want: []string{suspend},
		},
		"a suspended TrainJob is left": {
			kind: TrainJob, object: `{"metadata":{` + queued + `},"spec":{"suspend":true}}`,
		},
		"a TrainJob made by server-side apply is suspended": {
			kind: TrainJob, object: `{"metadata":{` + queued + `,"managedFields":[{"manager":"ci","operation":"Apply","fieldsV1":{"f:spec":{"f:suspend":{}}}}]},"spec":{"suspend":false}}`,
			want: []string{suspend},
		},
		"a TrainJob that the Trainer manages by name is suspended": {
			kind: TrainJob, object: `{"metadata":{` + queued + `},"spec":{"managedBy":"trainer.kubeflow.org/trainjob-controller"}}`,
			want: []string{suspend},
		},
		"a TrainJob that another controller manages is left": {
			kind: TrainJob, object: `{"metadata":{` + queued + `},"spec":{"managedBy":"kueue.x-k8s.io/multikueue"}}`,
		},
		"a TrainJob without a spec is left": {
			kind: TrainJob, object: `{"metadata":{` + queued + `}}`,
		},
		"replicated jobs mean nothing in a TrainJob": {
			kind: TrainJob, object: `{"metadata":{` + queued + `},"spec":{"suspend":true,` + mpiJobs + `}}`,
		},
		"a JobSet with a queue is suspended and both its templates are stamped": {
			kind: JobSet, object: `{"metadata":{` + queued + `},"spec":{` + mpiJobs + `}}`,
			want: []string{suspend, stamp(0), stamp(1)},
		},
		"a JobSet of a queued TrainJob is stamped and not suspended": {
			kind: JobSet, object: `{"metadata":{` + ownedByTrainJob + `},"spec":{` + mpiJobs + `}}`, ownerQueued: true,
			want: []string{stamp(0), stamp(1)},
		},
		"a JobSet with a queue that a TrainJob controls is stamped and not suspended": {
			kind: JobSet, object: `{"metadata":{` + queued + `,` + ownedByTrainJob + `},"spec":{` + mpiJobs + `}}`,
			want: []string{stamp(0), stamp(1)},
		},
		"a JobSet of a TrainJob without a queue is left": {
			kind: JobSet, object: `{"metadata":{` + ownedByTrainJob + `},"spec":{` + mpiJobs + `}}`,
		},
		"an explicit scheduler is kept and an empty one is filled": {
			kind: JobSet, object: `{"metadata":{` + queued + `},"spec":{"suspend":true,"replicatedJobs":[
				{"template":{"spec":{"template":{"spec":{"schedulerName":"volcano"}}}}},
				{"template":{"spec":{"template":{"spec":{"schedulerName":""}}}}},
				{"template":{"spec":{"template":{"spec":{"schedulerName":null}}}}},
				{"template":{"spec":{"template":{"spec":{"schedulerName":"muster"}}}}}]}}`,
			want: []string{stamp(1), stamp(2)},
		},
		"templates with parts missing are passed over": {
			kind: JobSet, object: `{"metadata":{` + queued + `},"spec":{"suspend":true,"replicatedJobs":[
				null, {}, {"template":null}, {"template":{}}, {"template":{"spec":{}}}, {"template":{"spec":{"template":{}}}},
				{"template":{"spec":{"template":{"spec":{}}}}}]}}`,
			want: []string{stamp(6)},
		},
		"a JobSet that another controller manages is left": {
			kind: JobSet, object: `{"metadata":{` + queued + `},"spec":{"managedBy":"kueue.x-k8s.io/multikueue",` + mpiJobs + `}}`,
		},
		"a JobSet that its own controller manages by name is queued": {
			kind: JobSet, object: `{"metadata":{` + queued + `},"spec":{"suspend":true,"managedBy":"jobset.sigs.k8s.io/jobset-controller",` + mpiJobs + `}}`,
			want: []string{stamp(0), stamp(1)},
		},
		"a JobSet that some other kind controls is a job of its own": {
			kind: JobSet, object: `{"metadata":{` + queued + `,"ownerReferences":[{"apiVersion":"example.com/v1","kind":"TrainJob","name":"x","uid":"u","controller":true}]},"spec":{}}`,
			want: []string{suspend},
		},
		"a JobSet that a TrainJob owns without controlling it is a job of its own": {
			kind: JobSet, object: `{"metadata":{` + queued + `,"ownerReferences":[{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob","name":"x","uid":"u"}]},"spec":{}}`,
			want: []string{suspend},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			object, err := Parse(tc.kind, []byte(tc.object))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, op := range Decide(object, Surroundings{SchedulerName: scheduler, OwnerQueued: tc.ownerQueued}) {
				got = append(got, op.Json())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNeedsOwnerOnlyWhereTheOwnerDecides(t *testing.T) {
	tests := map[string]struct {
		kind   schema.GroupKind
		object string
		want   bool
	}{
		"a JobSet of a TrainJob":                              {JobSet, `{"metadata":{` + ownedByTrainJob + `},"spec":{` + mpiJobs + `}}`, true},
		"a JobSet without an owner":                           {JobSet, `{"metadata":{},"spec":{` + mpiJobs + `}}`, false},
		"a JobSet with a queue of its own":                    {JobSet, `{"metadata":{` + queued + `,` + ownedByTrainJob + `},"spec":{` + mpiJobs + `}}`, false},
		"a JobSet whose templates all name a scheduler":       {JobSet, `{"metadata":{` + ownedByTrainJob + `},"spec":{"replicatedJobs":[{"template":{"spec":{"template":{"spec":{"schedulerName":"x"}}}}}]}}`, false},
		"a JobSet that another controller manages":            {JobSet, `{"metadata":{` + ownedByTrainJob + `},"spec":{"managedBy":"example.com/x",` + mpiJobs + `}}`, false},
		"a TrainJob that, oddly, another TrainJob controls":   {TrainJob, `{"metadata":{` + ownedByTrainJob + `},"spec":{}}`, false},
		"a JobSet whose owner is named without an API group":  {JobSet, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"TrainJob","name":"x","uid":"u","controller":true}]},"spec":{` + mpiJobs + `}}`, false},
		"a JobSet without a spec, whatever its owner may say": {JobSet, `{"metadata":{` + ownedByTrainJob + `}}`, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			object, err := Parse(tc.kind, []byte(tc.object))
			if err != nil {
				t.Fatal(err)
			}
			if got := NeedsOwner(object); got != tc.want {
				t.Errorf("NeedsOwner = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestParseFailsOnWhatItCannotRead(t *testing.T) {
	tests := map[string]struct {
		kind   schema.GroupKind
		object string
	}{
		"no document":                       {TrainJob, ``},
		"half a document":                   {TrainJob, `{"metadata":{`},
		"a list":                            {JobSet, `[]`},
		"labels that are a list":            {TrainJob, `{"metadata":{"labels":["a"]}}`},
		"suspend that is a string":          {TrainJob, `{"metadata":{` + queued + `},"spec":{"suspend":"no"}}`},
		"a spec that is a string":           {JobSet, `{"metadata":{` + queued + `},"spec":"x"}`},
		"replicated jobs that are a map":    {JobSet, `{"metadata":{` + queued + `},"spec":{"replicatedJobs":{}}}`},
		"a scheduler that is a number":      {JobSet, `{"metadata":{` + queued + `},"spec":{"replicatedJobs":[{"template":{"spec":{"template":{"spec":{"schedulerName":1}}}}}]}}`},
		"a kind that is not queued here":    {schema.GroupKind{Group: "batch", Kind: "CronJob"}, `{}`},
		"a TrainJob of another API's group": {schema.GroupKind{Group: "example.com", Kind: "TrainJob"}, `{}`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse(tc.kind, []byte(tc.object)); err == nil {
				t.Error("no error")
			}
		})
	}
}

func TestFieldsOfAnotherCaseAreNotTakenForTheRealOnes(t *testing.T) {
	object, err := Parse(TrainJob, []byte(`{"metadata":{`+queued+`},"Spec":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	if patch := Decide(object, Surroundings{SchedulerName: scheduler, DefaultQueue: "default"}); len(patch) != 0 {
		t.Errorf("patch %v would fail for want of its parent", patch)
	}
}

// gpuContainers ask for a GPU.
var gpuContainers = []any{map[string]any{"name": "c", "resources": map[string]any{"limits": map[string]any{"nvidia.com/gpu": "1"}}}}

// genObject draws objects that are right, odd and half empty, with fields that
// this program has never heard of.
func genObject(kind schema.GroupKind) *rapid.Generator[map[string]any] {
	maybe := func(t *rapid.T, into map[string]any, key string, values ...any) {
		if v := rapid.SampledFrom(append(values, "absent")).Draw(t, key); v != "absent" {
			into[key] = v
		}
	}
	return rapid.Custom(func(t *rapid.T) map[string]any {
		meta := map[string]any{"name": "x", "future": map[string]any{"a": 1.0}}
		maybe(t, meta, "labels", nil, map[string]any{QueueLabel: "q", "l": "v"}, map[string]any{QueueLabel: ""}, map[string]any{})
		maybe(t, meta, "ownerReferences", []any{map[string]any{
			"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "o", "uid": "u", "controller": true}})
		object := map[string]any{"novel": []any{1.0, "two"}}
		maybe(t, object, "metadata", nil, meta, meta, meta)
		if rapid.Bool().Draw(t, "spec") {
			s := map[string]any{"novel": "kept"}
			maybe(t, s, "suspend", nil, true, false)
			builtIn := any(nil)
			if len(builtInControllers[kind]) > 0 {
				builtIn = builtInControllers[kind][0]
			}
			maybe(t, s, "managedBy", nil, "", builtIn, "example.com/other")
			policy := map[string]any{"novel": "kept"}
			maybe(t, policy, "suspend", nil, true, false)
			maybe(t, policy, "managedBy", nil, "", builtIn, "example.com/other")
			maybe(t, s, "runPolicy", policy, nil)
			jobs := []any{}
			for range rapid.IntRange(0, 4).Draw(t, "jobs") {
				pod := map[string]any{"hostNetwork": true, "novel": []any{"x"}}
				maybe(t, pod, "schedulerName", nil, "", "volcano", scheduler)
				maybe(t, pod, "containers", nil, gpuContainers)
				jobs = append(jobs, rapid.SampledFrom([]any{
					map[string]any{"name": "n", "template": map[string]any{"spec": map[string]any{"template": map[string]any{"spec": pod}}}},
					map[string]any{"name": "n", "template": map[string]any{"spec": map[string]any{"template": map[string]any{}}}},
					map[string]any{"name": "n", "template": nil},
					nil,
				}).Draw(t, "job"))
			}
			maybe(t, s, "replicatedJobs", jobs, nil)
			pod := map[string]any{"novel": true}
			maybe(t, pod, "schedulerName", nil, "", "default-scheduler", "volcano", scheduler)
			maybe(t, pod, "containers", nil, gpuContainers)
			if kind == Pod {
				maps.Copy(s, pod)
				maybe(t, s, "nodeName", "", "n0")
			}
			template := map[string]any{"spec": pod}
			maybe(t, s, "template", nil, map[string]any{}, template)
			for _, field := range []string{"pytorchReplicaSpecs", "mpiReplicaSpecs"} {
				maybe(t, s, field, nil, map[string]any{}, map[string]any{"Worker": map[string]any{"template": template}, "a/b": nil, "c": map[string]any{}})
			}
			object["spec"] = s
		}
		return object
	})
}

// TestPatchProperties: for every object, the patch applies; it changes nothing
// but the queue label, spec.suspend and schedulerName; what it writes was not so before (it is
// minimal); and a second pass finds nothing to do.
func TestPatchProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]schema.GroupKind{TrainJob, JobSet, Job, Pod, MPIJob, pyTorchJob}).Draw(t, "kind")
		before := genObject(kind).Draw(t, "object")
		around := Surroundings{
			SchedulerName: scheduler,
			OwnerQueued:   rapid.Bool().Draw(t, "ownerQueued"),
			DefaultQueue:  rapid.SampledFrom([]string{"", "default", "other"}).Draw(t, "defaultQueue"),
		}
		raw, err := json.Marshal(before)
		if err != nil {
			t.Fatal(err)
		}
		object, err := Parse(kind, raw)
		if err != nil {
			t.Fatal(err)
		}
		operations := Decide(object, around)
		encoded, err := json.Marshal(operations)
		if err != nil {
			t.Fatal(err)
		}
		patch, err := jsonpatch.DecodePatch(encoded)
		if err != nil {
			t.Fatal(err)
		}
		patched := raw
		for i := range patch {
			next, err := patch[i : i+1].Apply(patched)
			if err != nil {
				t.Fatalf("patch %s does not apply to %s: %v", encoded, raw, err)
			}
			if cmp.Equal(parsed(next), parsed(patched)) {
				t.Fatalf("operation %d of %s changes nothing in %s", i, encoded, raw)
			}
			patched = next
		}

		again, err := Parse(kind, patched)
		if err != nil {
			t.Fatal(err)
		}
		if rest := Decide(again, around); len(rest) != 0 {
			t.Fatalf("second pass over %s gives %v", patched, rest)
		}

		if diff := cmp.Diff(blanked(raw), blanked(patched)); diff != "" {
			t.Fatalf("changed elsewhere (-before +after):\n%s", diff)
		}
	})
}

func parsed(raw []byte) map[string]any {
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		panic(err)
	}
	return m
}

// blanked is the object without the fields that may change. Labels that are
// empty then are as good as none.
func blanked(raw []byte) map[string]any {
	c := parsed(raw)
	if meta, ok := c["metadata"].(map[string]any); ok {
		labels, _ := meta["labels"].(map[string]any)
		delete(labels, QueueLabel)
		if len(labels) == 0 {
			delete(meta, "labels")
		}
	}
	s, _ := c["spec"].(map[string]any)
	delete(s, "suspend")
	policy, _ := s["runPolicy"].(map[string]any)
	delete(policy, "suspend")
	if len(policy) == 0 {
		delete(s, "runPolicy")
	}
	blank := func(v any, path ...string) {
		for _, key := range path {
			m, _ := v.(map[string]any)
			v = m[key]
		}
		if pod, ok := v.(map[string]any); ok {
			delete(pod, "schedulerName")
		}
	}
	jobs, _ := s["replicatedJobs"].([]any)
	for _, j := range jobs {
		blank(j, "template", "spec", "template", "spec")
	}
	for _, field := range []string{"pytorchReplicaSpecs", "mpiReplicaSpecs"} {
		blank(s[field], "Worker", "template", "spec")
	}
	blank(c, "spec", "template", "spec")
	blank(c, "spec")
	return c
}

// BenchmarkDecide is one TrainJob's JobSet of the size that the Trainer makes
// (two replicated jobs, about 10 KiB), read and decided: it is on the way of
// every job's creation.
func BenchmarkDecide(b *testing.B) {
	env := make([]map[string]string, 60)
	for i := range env {
		env[i] = map[string]string{"name": fmt.Sprintf("NCCL_SETTING_%d", i), "value": "some/value/of/usual/length"}
	}
	job := func(name string) map[string]any {
		return map[string]any{"name": name, "replicas": 1, "template": map[string]any{"spec": map[string]any{"parallelism": 4, "template": map[string]any{
			"spec": map[string]any{"containers": []any{map[string]any{"name": "node", "image": "registry/train:1", "env": env}}}}}}}
	}
	raw, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"name": "llm", "ownerReferences": []any{map[string]any{
			"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "llm", "uid": "u", "controller": true}}},
		"spec": map[string]any{"replicatedJobs": []any{job("launcher"), job("node")}},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		object, err := Parse(JobSet, raw)
		if err != nil {
			b.Fatal(err)
		}
		if len(Decide(object, Surroundings{SchedulerName: scheduler, OwnerQueued: true})) != 2 {
			b.Fatal("not stamped")
		}
	}
}
