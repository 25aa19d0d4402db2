package library

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/muster-gpu/muster/policy"
	"github.com/muster-gpu/muster/policy/facts"
)

// runtimes is a cluster with one runtime, by name.
type runtimes map[string]*unstructured.Unstructured

func (r runtimes) Runtime(_ context.Context, _, _, name string) (*unstructured.Unstructured, error) {
	return r[name], nil
}

func (runtimes) Owner(context.Context, string, metav1.OwnerReference) (*metav1.PartialObjectMetadata, error) {
	return nil, nil
}

func (runtimes) Group(context.Context, string, schema.GroupVersionKind, string) (*metav1.PartialObjectMetadata, error) {
	return nil, nil
}

func request(t testing.TB, operation admissionv1.Operation, before, after string) *admissionv1.AdmissionRequest {
	t.Helper()
	r := &admissionv1.AdmissionRequest{
		UID: "u", Operation: operation, Namespace: "team-a", UserInfo: authenticationv1.UserInfo{Username: "ann"},
	}
	for text, into := range map[string]*k8sruntime.RawExtension{before: &r.OldObject, after: &r.Object} {
		if text == "" {
			continue
		}
		body, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		into.Raw = body
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(r.Object.Raw); err != nil {
		t.Fatal(err)
	}
	gvk := u.GroupVersionKind()
	r.Name, r.Kind = u.GetName(), metav1.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind}
	return r
}

// withLibrary is an Engine with the whole library, in which every policy refuses.
func withLibrary(t testing.TB, around facts.Around, inventory *policy.Inventory) *policy.Engine {
	t.Helper()
	all, err := List()
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]Setting{}
	for _, info := range all {
		settings[info.Name] = Setting{Level: Deny}
	}
	policies, err := Policies(settings)
	if err != nil {
		t.Fatal(err)
	}
	// A loaded machine is slow, and no reason to fail.
	e := policy.New(policy.Options{Describer: facts.NewReader(around, nil), PolicyTime: time.Minute, ReviewTime: time.Minute})
	e.SetPolicies(context.Background(), policies)
	if err := e.SetInventory(inventory); err != nil {
		t.Fatal(err)
	}
	return e
}

func says(t testing.TB, e *policy.Engine, r *admissionv1.AdmissionRequest) string {
	t.Helper()
	d, err := e.Review(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Failures) > 0 {
		t.Errorf("policies failed: %+v", d.Failures)
	}
	return d.Message() + strings.Join(d.WarningLines(), "\n")
}

func TestTheLibraryOnObjectsAsTheyCome(t *testing.T) {
	training := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(`
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: torch-1}
spec:
  mlPolicy: {numNodes: 2}
  template: {spec: {replicatedJobs: [{name: node, template: {metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}},
    spec: {template: {spec: {containers: [{name: node, image: "runtime/x:latest", resources: {limits: {nvidia.com/gpu: "8"}}}]}}}}}]}}`), &training.Object); err != nil {
		t.Fatal(err)
	}
	e := withLibrary(t, runtimes{"torch-1": training}, &policy.Inventory{
		Queues: map[string]map[string]policy.Queue{"team-a": {"main": {Reach: 32}}},
	})
	notebook := func(gpus int, label string) string {
		return fmt.Sprintf(`
apiVersion: kubeflow.org/v1
kind: Notebook
metadata: {name: nb, labels: {kueue.x-k8s.io/queue-name: main, l: %s}}
spec: {template: {spec: {containers: [{name: nb, image: kubeflow/x, resources: {limits: {nvidia.com/gpu: "%d"}}}]}}}`, label, gpus)
	}
	pod := func(extra string) string {
		return `
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {kueue.x-k8s.io/queue-name: main}}
spec:
  containers: [{name: c, image: kubeflow/x}]
  ` + extra
	}
	tests := []struct {
		name      string
		operation admissionv1.Operation
		before    string
		after     string
		says      []string
	}{
		{"an init container of latest", "CREATE", "", pod(`initContainers: [{name: i, image: "repo/x:latest"}]`), []string{`initContainer i of pod has the image "repo/x:latest"`}},
		{"an ephemeral container of latest", "UPDATE", pod(""), pod(`ephemeralContainers: [{name: e, image: "repo/x:latest"}]`), []string{`ephemeralContainer e of pod has the image "repo/x:latest"`}},
		{"a runtime of latest, without a queue", "CREATE", "", `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: t}
spec: {runtimeRef: {name: torch-1}}`, []string{`container node of node has the image "runtime/x:latest"`, "TrainJob t asks for 16 GPUs and names no queue"}},
		{"three parallel trials of 16 GPUs and a reach of 32", "CREATE", "", `
apiVersion: kubeflow.org/v1beta1
kind: Experiment
metadata: {name: x}
spec:
  maxFailedTrialCount: 1
  trialTemplate: {trialSpec: {apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {labels: {kueue.x-k8s.io/queue-name: main}},
    spec: {runtimeRef: {name: torch-1}, trainer: {image: "kubeflow/x"}}}}`, []string{"3 parallel trials of 16 GPUs are 48 GPUs, and queue main reaches 32"}},
		{"a notebook with too many GPUs", "CREATE", "", notebook(4, "a"), []string{"the notebook asks for 4 GPUs, and may have 1"}},
		{"a label of an old notebook with too many GPUs", "UPDATE", notebook(4, "a"), notebook(4, "b"), []string{"(it was so before this change)"}},
		{"fewer GPUs of an old notebook", "UPDATE", notebook(4, "a"), notebook(2, "a"), []string{"may have 1 (it was so before this change)"}},
		{"more GPUs of an old notebook", "UPDATE", notebook(4, "a"), notebook(8, "a"), []string{"[muster-notebook-gpus] the notebook asks for 8 GPUs, and may have 1"}},
		{"a pod that is well", "CREATE", "", pod(""), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := says(t, e, request(t, tt.operation, tt.before, tt.after))
			for _, want := range tt.says {
				if !strings.Contains(got, want) {
					t.Errorf("it says %q, not %q", got, want)
				}
			}
			if len(tt.says) == 0 && got != "" {
				t.Errorf("it says %q", got)
			}
		})
	}
}

// largeJobSet has 32 containers: eight replicated jobs of four.
func largeJobSet() string {
	var b strings.Builder
	b.WriteString("apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: j, labels: {kueue.x-k8s.io/queue-name: q0}}\nspec:\n  replicatedJobs:\n")
	for i := range 8 {
		fmt.Fprintf(&b, "  - name: r%d\n    replicas: 1\n    template: {spec: {parallelism: 4, completions: 4, template: {spec: {terminationGracePeriodSeconds: 120, volumes: [{name: shm, emptyDir: {medium: Memory}}], containers: [\n", i)
		for c := range 4 {
			fmt.Fprintf(&b, "      {name: c%d, image: \"localhost:5000/team/train:v1.2.%d\", command: [torchrun, train.py], env: [{name: NCCL_DEBUG, value: INFO}, {name: OMP_NUM_THREADS, value: \"8\"}, {name: CHECKPOINT_DIR, value: /data/x}], resources: {limits: {nvidia.com/gpu: \"2\", cpu: \"16\", memory: 64Gi}}, volumeMounts: [{name: shm, mountPath: /dev/shm}]},\n", c, c)
		}
		b.WriteString("    ]}}}}\n")
	}
	return b.String()
}

// largeInventory has 5,000 namespaces, 1,000 queues and 1,000 nodes.
func largeInventory() *policy.Inventory {
	inventory := &policy.Inventory{
		ObservedAt: time.Now(), Namespaces: map[string]policy.Namespace{}, Queues: map[string]map[string]policy.Queue{}, GPUNodes: map[string]policy.GPUNode{},
	}
	for i := range 5000 {
		name := fmt.Sprintf("team-%d", i)
		inventory.Namespaces[name] = policy.Namespace{Labels: map[string]string{"kubernetes.io/metadata.name": name, "team": name, "tier": "research"}, IdleGPUs: int64(i % 3)}
		if i < 1000 {
			inventory.Queues[name] = map[string]policy.Queue{"main": {ClusterQueue: name, Reach: 64, Used: 32, Preemptible: i%2 == 0}}
			inventory.GPUNodes[fmt.Sprintf("gpu-node-%d", i)] = policy.GPUNode{GPUs: 8, Idle: []policy.Holder{{Namespace: name, Pod: "notebook-0", GPUs: 1}}}
		}
	}
	inventory.Queues["team-a"] = map[string]policy.Queue{"q0": {Reach: 512, Preemptible: true}}
	return inventory
}

// BenchmarkReview is a review of a JobSet with 32 containers by the whole library,
// with a large inventory. It says how long the slowest of a hundred take, and, for
// machines that do other things, how much CPU time one takes, garbage collection
// included.
func BenchmarkReview(b *testing.B) {
	e := withLibrary(b, nil, largeInventory())
	r := request(b, "CREATE", "", largeJobSet())
	says(b, e, r)
	took := make([]time.Duration, 0, b.N)
	spent := cpuTime(b)
	for b.Loop() {
		began := time.Now()
		says(b, e, r)
		took = append(took, time.Since(began))
	}
	b.ReportMetric(float64((cpuTime(b)-spent).Microseconds())/1000/float64(len(took)), "cpu-ms/op")
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

// cpuTime is what the process has used so far.
func cpuTime(b *testing.B) time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkMemory says how much memory 100 policies and a large inventory keep.
func BenchmarkMemory(b *testing.B) {
	live := func() float64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / (1 << 20)
	}
	for b.Loop() {
		before := live()
		policies, err := Policies(nil)
		if err != nil {
			b.Fatal(err)
		}
		for i := 0; len(policies) < 100; i++ {
			again := policies[i]
			again.Name = fmt.Sprintf("%s-%d", again.Name, i)
			policies = append(policies, again)
		}
		e := policy.New(policy.Options{})
		e.SetPolicies(context.Background(), policies)
		if err := e.SetInventory(largeInventory()); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(live()-before, "MiB")
		for _, s := range e.Statuses() {
			if !s.Compiled {
				b.Fatal(s.Errors)
			}
		}
	}
}

// BenchmarkInventory is how long a new inventory takes.
func BenchmarkInventory(b *testing.B) {
	e := policy.New(policy.Options{})
	inventory := largeInventory()
	for b.Loop() {
		if err := e.SetInventory(inventory); err != nil {
			b.Fatal(err)
		}
	}
}
