package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	musterv1alpha1 "github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/internal/testcluster"
	"github.com/muster-gpu/muster/internal/testobject"
)

func TestRuntimeDefaultsThatCannotBeMeantAreRefusedWhenTheyAreWritten(t *testing.T) {
	c := testcluster.Start(t)
	env := func(names ...string) musterv1alpha1.RuntimeDefaultsSpec {
		var s musterv1alpha1.RuntimeDefaultsSpec
		for _, name := range names {
			s.Containers.Env = append(s.Containers.Env, musterv1alpha1.EnvDefault{Name: name, Value: "1"})
		}
		return s
	}
	devices := func(name string, count int64) musterv1alpha1.RuntimeDefaultsSpec {
		return musterv1alpha1.RuntimeDefaultsSpec{Containers: musterv1alpha1.ContainerDefaults{
			Resources: []musterv1alpha1.ResourceDefault{{Name: name, Count: count}},
		}}
	}
	labels := func(key string) musterv1alpha1.RuntimeDefaultsSpec {
		return musterv1alpha1.RuntimeDefaultsSpec{Pod: musterv1alpha1.PodDefaults{Labels: map[string]string{key: "x"}}}
	}
	memory := func(m musterv1alpha1.SharedMemory) musterv1alpha1.RuntimeDefaultsSpec {
		return musterv1alpha1.RuntimeDefaultsSpec{Containers: musterv1alpha1.ContainerDefaults{SharedMemory: &m}}
	}
	for name, tc := range map[string]struct {
		spec musterv1alpha1.RuntimeDefaultsSpec
		// refused is a part of the message; empty means accepted.
		refused string
	}{
		"an empty one":                        {},
		"variables of NCCL":                   {spec: env("NCCL_DEBUG", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "MY_PET_NAME")},
		"a variable of torchrun":              {spec: env("NCCL_DEBUG", "PET_NNODES"), refused: "set by the Trainer"},
		"a variable of XGBoost":               {spec: env("DMLC_TASK_ID"), refused: "set by the Trainer"},
		"a variable of Open MPI":              {spec: env("OMPI_MCA_btl"), refused: "set by the Trainer"},
		"a variable that is given twice":      {spec: env("A", "A"), refused: "Duplicate value"},
		"a variable without a name":           {spec: env(""), refused: "name"},
		"a device":                            {spec: devices("rdma/hca", 8)},
		"a resource that is no device":        {spec: devices("memory", 8), refused: "only extended resources"},
		"no devices at all":                   {spec: devices("rdma/hca", 0), refused: "count"},
		"a label of a team":                   {spec: labels("sidecar.istio.io/inject")},
		"the label that puts pods in a queue": {spec: labels("kueue.x-k8s.io/queue-name"), refused: "cannot be defaults"},
		"a label of JobSet's":                 {spec: labels("jobset.sigs.k8s.io/jobset-name"), refused: "cannot be defaults"},
		"half of the memory":                  {spec: memory(musterv1alpha1.SharedMemory{MemoryPercent: 50})},
		"a size":                              {spec: memory(musterv1alpha1.SharedMemory{SizeLimit: resource.NewQuantity(1<<30, resource.BinarySI)})},
		"shared memory of no size":            {spec: memory(musterv1alpha1.SharedMemory{}), refused: "sizeLimit or memoryPercent"},
		"more than all memory":                {spec: memory(musterv1alpha1.SharedMemory{MemoryPercent: 101}), refused: "memoryPercent"},
		"another class":                       {spec: musterv1alpha1.RuntimeDefaultsSpec{Class: "wish"}, refused: "class"},
		"a runtime of another kind": {
			spec:    musterv1alpha1.RuntimeDefaultsSpec{Match: musterv1alpha1.DefaultsMatch{Runtimes: []musterv1alpha1.RuntimeReference{{Kind: "Runtime", Name: "torch"}}}},
			refused: "kind",
		},
		"a pull policy that does not exist": {
			spec:    musterv1alpha1.RuntimeDefaultsSpec{Containers: musterv1alpha1.ContainerDefaults{ImagePullPolicy: corev1.PullPolicy("Often")}},
			refused: "imagePullPolicy",
		},
	} {
		t.Run(name, func(t *testing.T) {
			object := &musterv1alpha1.RuntimeDefaults{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: tc.spec}
			err := c.Client.Create(t.Context(), object, client.DryRunAll)
			switch {
			case tc.refused == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.refused != "" && (err == nil || !strings.Contains(err.Error(), tc.refused)):
				t.Errorf("the error is %v, want one with %q", err, tc.refused)
			}
			if err == nil {
				if diff := cmp.Diff(musterv1alpha1.ClassDefault, object.Spec.Class); diff != "" && tc.spec.Class == "" {
					t.Errorf("class (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestRuntimeDefaultsThatCannotBeReadKeepNoOthersFromBeingStamped(t *testing.T) {
	c := testcluster.Start(t)
	// The API server takes the size for one, and no Go program does.
	c.Create(t, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": musterv1alpha1.GroupVersion.String(), "kind": "RuntimeDefaults", "metadata": map[string]any{"name": "bad"},
		"spec": map[string]any{"containers": map[string]any{"sharedMemory": map[string]any{"sizeLimit": "1e99999999999999999999"}}},
	}})
	c.Create(t, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000})
	c.Create(t, defaultsOf(t, "gpu", gpuDefaults))
	webhookIn(t, c).stamps(t, "high")
}

const gpuDefaults = `
pod:
  tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
  priorityClassName: high
  schedulerName: muster
  terminationGracePeriodSeconds: 90
containers:
  env: [{name: NCCL_DEBUG, value: WARN}]
  sharedMemory: {sizeLimit: 8Gi}
  capabilities: [IPC_LOCK]
  resources: [{name: rdma/hca, count: 1, perGPU: true}]
  imagePullPolicy: Always
`

// TestRuntimeDefaults runs its parts one after the other against one webhook; the
// last one ends it.
func TestRuntimeDefaults(t *testing.T) {
	e := startWebhook(t)
	e.Create(t, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "usual"}, Value: 1, GlobalDefault: true})
	e.Create(t, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000})
	gpu := defaultsOf(t, "gpu", gpuDefaults)
	e.Create(t, gpu)
	e.stamps(t, "high")

	t.Run("a pod with GPUs gets all of it, and what the API server had computed is computed again", func(t *testing.T) {
		pod := barePod("all", "", "")
		e.Create(t, pod)
		var toleration bool
		for _, tol := range pod.Spec.Tolerations {
			toleration = toleration || tol.Key == "nvidia.com/gpu"
		}
		c := pod.Spec.Containers[0]
		hca := c.Resources.Requests["rdma/hca"]
		got := []any{pod.Spec.PriorityClassName, *pod.Spec.Priority, pod.Spec.SchedulerName, *pod.Spec.TerminationGracePeriodSeconds, toleration,
			c.Env[0].Value, c.VolumeMounts[0].MountPath, c.SecurityContext.Capabilities.Add[0], hca.Value(), c.ImagePullPolicy}
		want := []any{"high", int32(1000), "muster", int64(90), true, "WARN", "/dev/shm", corev1.Capability("IPC_LOCK"), int64(1), corev1.PullAlways}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("pod (-want +got):\n%s", diff)
		}
	})
	t.Run("a pod without GPUs, and one of a namespace that is to be ignored, are left as they are", func(t *testing.T) {
		plain := withoutGPUs(barePod("plain", "", ""))
		e.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "own", Labels: map[string]string{"muster.dev/webhook": "ignore"}}})
		own := in("own", barePod("own", "", "")).(*corev1.Pod)
		for _, pod := range []*corev1.Pod{plain, own} {
			e.Create(t, pod)
			if pod.Spec.PriorityClassName != "usual" || pod.Spec.SchedulerName != corev1.DefaultSchedulerName || len(pod.Annotations) > 0 {
				t.Errorf("%s: %v", pod.Name, pod.Spec)
			}
		}
	})
	t.Run("a capability is left out where the namespace would not take the pod", func(t *testing.T) {
		e.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "safe", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "baseline"}}})
		pod := in("safe", barePod("pod", "", "")).(*corev1.Pod)
		e.Create(t, pod)
		if pod.Spec.Containers[0].SecurityContext != nil || pod.Spec.SchedulerName != "muster" {
			t.Errorf("%v", pod.Spec)
		}
	})
	t.Run("a JobSet keeps what it has got when the Trainer applies it again and resumes it, whatever the RuntimeDefaults are by then", func(t *testing.T) {
		owner := trainJob("owner", "")
		e.Create(t, owner)
		js := func(suspend bool) *unstructured.Unstructured {
			js := childJobSet(owner)
			jobs := js.Object["spec"].(map[string]any)["replicatedJobs"].([]any)
			pod := jobs[0].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
			pod["tolerations"] = []any{map[string]any{"key": "team", "operator": "Exists"}}
			pod["containers"].([]any)[0].(map[string]any)["resources"] = map[string]any{"limits": map[string]any{"nvidia.com/gpu": "8"}}
			js.Object["spec"].(map[string]any)["suspend"] = suspend
			return js
		}
		created := js(true)
		e.apply(t, created, "trainer")
		want := templates(t, created)
		if tolerations := want[0].Spec.Tolerations; len(tolerations) != 2 || want[0].Spec.Containers[0].Env[0].Value != "WARN" {
			t.Fatalf("created with %v", want[0].Spec)
		}
		if len(want[1].Annotations) > 0 {
			t.Errorf("the template without GPUs has %v", want[1].Annotations)
		}
		testobject.Change(t, e.Client, gpu, func(gpu *musterv1alpha1.RuntimeDefaults) {
			gpu.Spec.Pod.Tolerations[0].Key = "other"
			gpu.Spec.Containers.Env[0].Value = "INFO"
			gpu.Spec.Pod.PriorityClassName = "usual"
		})
		e.stamps(t, "usual")
		for _, suspend := range []bool{true, false} {
			again := js(suspend)
			e.apply(t, again, "trainer")
			if diff := cmp.Diff(want, templates(t, again)); diff != "" {
				t.Errorf("applied again with suspend %v (-want +got):\n%s", suspend, diff)
			}
		}
	})
	t.Run("what is required refuses with both values, and both RuntimeDefaults say that they overlap", func(t *testing.T) {
		e.Create(t, defaultsOf(t, "strict", `{class: required, match: {podSelector: {matchLabels: {strict: "yes"}}}, pod: {schedulerName: volcano}, containers: {env: [{name: NCCL_DEBUG, value: TRACE}]}}`))
		pod := barePod("strict", "", "muster")
		pod.Labels = map[string]string{"strict": "yes"}
		const want = `RuntimeDefaults strict: schedulerName must be "volcano", and is "muster"`
		testcluster.Eventually(t, "a pod to be refused", func(ctx context.Context) error {
			if err := e.Client.Create(ctx, pod.DeepCopy(), client.DryRunAll); err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("the error is %v", err)
			}
			return nil
		})
		fields := []string{"env NCCL_DEBUG", "schedulerName"}
		for name, want := range map[string]musterv1alpha1.RuntimeDefaultsStatus{
			"gpu":    {ObservedGeneration: 2, Overlaps: []musterv1alpha1.DefaultsOverlap{{With: "strict", First: "strict", Fields: fields}}},
			"strict": {ObservedGeneration: 1, Overlaps: []musterv1alpha1.DefaultsOverlap{{With: "gpu", First: "strict", Fields: fields}}},
		} {
			testcluster.Eventually(t, "the status of "+name, func(ctx context.Context) error {
				got := &musterv1alpha1.RuntimeDefaults{}
				if err := e.Client.Get(ctx, client.ObjectKey{Name: name}, got); err != nil {
					return err
				}
				if diff := cmp.Diff(want, got.Status); diff != "" {
					return fmt.Errorf("status (-want +got):\n%s", diff)
				}
				return nil
			})
		}
	})
	t.Run("without the webhook a pod is created as it was written", func(t *testing.T) {
		e.stop()
		pod := barePod("later", "", "")
		e.Create(t, pod)
		if pod.Spec.SchedulerName != corev1.DefaultSchedulerName {
			t.Errorf("who named scheduler %s?", pod.Spec.SchedulerName)
		}
	})
}

func defaultsOf(t *testing.T, name, spec string) *musterv1alpha1.RuntimeDefaults {
	t.Helper()
	d := &musterv1alpha1.RuntimeDefaults{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := yaml.UnmarshalStrict([]byte(spec), &d.Spec); err != nil {
		t.Fatal(err)
	}
	return d
}

// stamps waits until the webhook knows of the RuntimeDefaults with the priority.
func (e *webhookEnv) stamps(t *testing.T, priority string) {
	t.Helper()
	testcluster.Eventually(t, "the webhook to know the RuntimeDefaults", func(ctx context.Context) error {
		probe := barePod("probe", "", "")
		if err := e.Client.Create(ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		if probe.Spec.PriorityClassName != priority || probe.Spec.SchedulerName != "muster" {
			return fmt.Errorf("a pod has priority class %s and scheduler %s", probe.Spec.PriorityClassName, probe.Spec.SchedulerName)
		}
		return nil
	})
}

// templates are the pod templates of a JobSet.
func templates(t *testing.T, js *unstructured.Unstructured) []corev1.PodTemplateSpec {
	t.Helper()
	jobs, _, err := unstructured.NestedSlice(js.Object, "spec", "replicatedJobs")
	if err != nil {
		t.Fatal(err)
	}
	all := make([]corev1.PodTemplateSpec, len(jobs))
	for i, j := range jobs {
		fields, _, err := unstructured.NestedMap(j.(map[string]any), "template", "spec", "template")
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &all[i])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}
