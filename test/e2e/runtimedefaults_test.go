package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	musterv1alpha1 "github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/internal/testobject"
)

// TestRuntimeDefaults tells what becomes of RuntimeDefaults beside the Trainer and
// JobSet with their webhooks. The sandbox has the example ones, gpu.
func TestRuntimeDefaults(t *testing.T) {
	c := up(t, "runtimedefaults")
	tellAll(t, c, "platform", anyJobs, []story[team]{
		{"a job keeps what it and its runtime say, and gets the rest beside what its flavor gives", merged},
		{"a job of four nodes of the Trainer's own torch-distributed starts as one, with the defaults", torchDistributed},
		{"RuntimeDefaults that change while a job waits change nothing of it, and it starts", changedMeanwhile},
		{"the ranks of an MPI job are given the variables", ranks},
		{"without the webhook pods with GPUs are made as they are, and with it the next ones get theirs", defaultsWithoutWebhook},
	})
}

// wants creates RuntimeDefaults for the namespace of the team.
func (tm team) wants(t *testing.T, spec string) *musterv1alpha1.RuntimeDefaults {
	t.Helper()
	d := &musterv1alpha1.RuntimeDefaults{ObjectMeta: metav1.ObjectMeta{Name: tm.namespace}}
	if err := yaml.UnmarshalStrict([]byte(spec), &d.Spec); err != nil {
		t.Fatal(err)
	}
	d.Spec.Match.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: tm.namespace}}
	if err := tm.client.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tm.client.Delete(context.Background(), d); err != nil {
			t.Error(err)
		}
	})
	tm.wanted(t, d.Spec.Containers.Env[0].Value)
	return d
}

// wanted waits until a new pod gets the value of the variable NCCL_NET.
func (tm team) wanted(t *testing.T, value string) {
	t.Helper()
	eventually(t, "the webhook to know the RuntimeDefaults", func(ctx context.Context) error {
		pod := tm.alone("probe", 1, nil, nil)
		if err := tm.client.Create(ctx, pod, client.DryRunAll); err != nil {
			return err
		}
		if got := variables(&pod.Spec.Containers[0])["NCCL_NET"]; got != value {
			return fmt.Errorf("a pod gets NCCL_NET=%q", got)
		}
		return nil
	})
}

// variables are those of a container, but for the one that every Indexed Job adds.
func variables(c *corev1.Container) map[string]string {
	all := map[string]string{}
	for _, e := range c.Env {
		if e.Name != "JOB_COMPLETION_INDEX" {
			all[e.Name] = e.Value
		}
	}
	return all
}

// runtimeOf creates a runtime like torch-distributed whose pods have a toleration
// and variables, and a sidecar without GPUs.
func (tm team) runtimeOf(t *testing.T) string {
	t.Helper()
	runtime := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime",
		"metadata": map[string]any{"name": tm.namespace + "-torch", "labels": map[string]any{"trainer.kubeflow.org/framework": "torch"}},
		"spec": map[string]any{
			"mlPolicy": map[string]any{"numNodes": int64(1), "torch": map[string]any{}},
			"template": map[string]any{"spec": map[string]any{"replicatedJobs": []any{map[string]any{
				"name": "node", "replicas": int64(1),
				"template": map[string]any{
					"metadata": map[string]any{"labels": map[string]any{"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
					"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
						"tolerations": []any{map[string]any{"key": "runtime", "operator": "Exists"}},
						"containers": []any{
							map[string]any{"name": "node", "image": "example.com/train", "env": []any{
								map[string]any{"name": "FROM_RUNTIME", "value": "runtime"}, map[string]any{"name": "TORCH_NCCL_ASYNC_ERROR_HANDLING", "value": "3"},
							}},
							map[string]any{"name": "sidecar", "image": "example.com/sidecar"},
						},
					}}},
				},
			}}}},
		},
	}}
	if err := tm.client.Create(t.Context(), runtime); err != nil {
		t.Fatal(err)
	}
	return runtime.GetName()
}

// createWith creates a TrainJob with variables of its author's.
func (tm team) createWith(t *testing.T, j job, env map[string]string) {
	t.Helper()
	u := tm.object(j)
	var list []any
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, map[string]any{"name": name, "value": env[name]})
	}
	if err := unstructured.SetNestedSlice(u.Object, list, "spec", "trainer", "env"); err != nil {
		t.Fatal(err)
	}
	if err := tm.client.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
}

const platform = `
pod:
  tolerations: [{key: platform, operator: Exists}]
containers:
  env: [{name: NCCL_NET, value: IB}, {name: FROM_RUNTIME, value: platform}, {name: FROM_JOB, value: platform}]
`

func merged(t *testing.T, tm team) {
	tm.queueUp(t, "q", 32)
	testobject.Change(t, tm.client, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: tm.namespace + "-q"}}, func(flavor *kueue.ResourceFlavor) {
		flavor.Spec.Tolerations = []corev1.Toleration{{Key: "flavor", Operator: corev1.TolerationOpExists}}
	})
	runtime := tm.runtimeOf(t)
	tm.wants(t, platform)
	tm.createWith(t, job{name: "llm", queue: "q", runtime: runtime, nodes: 4, gpus: 8}, map[string]string{"FROM_JOB": "job", "NCCL_DEBUG": "INFO"})
	pods := tm.runs(t, "llm", 4)
	tm.usage(t, "q", 32, 1, 0)
	wl, err := tm.workload(t.Context(), "llm")
	if err != nil || wl == nil || len(wl.Spec.PodSets) != 1 || wl.Spec.PodSets[0].Count != 4 {
		t.Errorf("the gang is %+v (%v)", wl, err)
	}
	for _, pod := range pods {
		node, sidecar := pod.Spec.Containers[0], pod.Spec.Containers[1]
		got := variables(&node)
		maps.DeleteFunc(got, func(name, _ string) bool { return strings.HasPrefix(name, "PET_") })
		want := map[string]string{
			"FROM_JOB": "job", "NCCL_DEBUG": "INFO", "FROM_RUNTIME": "runtime", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3", "NCCL_NET": "IB",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("variables of the node (-want +got):\n%s", diff)
		}
		if variables(&node)["PET_NNODES"] != "4" {
			t.Errorf("the Trainer's own variables are gone: %v", node.Env)
		}
		inMemory := func(m corev1.VolumeMount) bool {
			return m.MountPath == "/dev/shm" && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
				return v.Name == m.Name && v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumMemory
			})
		}
		mounts := func(c corev1.Container) bool { return slices.ContainsFunc(c.VolumeMounts, inMemory) }
		if !mounts(node) || mounts(sidecar) || len(variables(&sidecar)) > 0 {
			t.Errorf("/dev/shm of the node %v, of the sidecar %v, whose variables are %v", mounts(node), mounts(sidecar), sidecar.Env)
		}
		if got := tolerated(&pod); got != "flavor nvidia.com/gpu platform runtime" {
			t.Errorf("tolerations %s", got)
		}
		if pod.Spec.SchedulerName != "muster" {
			t.Errorf("scheduler %s", pod.Spec.SchedulerName)
		}
	}
}

// torchDistributed is about the runtime as the Trainer comes with it, which says nothing but
// an image.
func torchDistributed(t *testing.T, tm team) {
	tm.queueUp(t, "q", 32)
	tm.wants(t, platform)
	tm.createWith(t, job{name: "llm", queue: "q", runtime: "torch-distributed", nodes: 4, gpus: 8}, map[string]string{"FROM_JOB": "job"})
	pods := tm.runs(t, "llm", 4)
	tm.usage(t, "q", 32, 1, 0)
	nodes := map[string]bool{}
	for i := range pods {
		pod := &pods[i]
		nodes[pod.Spec.NodeName] = true
		got := variables(&pod.Spec.Containers[0])
		if got["PET_NNODES"] != "4" {
			t.Errorf("the Trainer's own variables are gone: %v", got)
		}
		maps.DeleteFunc(got, func(name, _ string) bool { return strings.HasPrefix(name, "PET_") })
		want := map[string]string{"FROM_JOB": "job", "FROM_RUNTIME": "platform", "NCCL_DEBUG": "WARN", "NCCL_NET": "IB", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("variables of the node (-want +got):\n%s", diff)
		}
		if got := tolerated(pod); got != "nvidia.com/gpu platform" {
			t.Errorf("tolerations %s", got)
		}
		if pod.Spec.SchedulerName != "muster" {
			t.Errorf("scheduler %s", pod.Spec.SchedulerName)
		}
	}
	if len(nodes) != 4 {
		t.Errorf("pods of all GPUs of a node are on %v", nodes)
	}
}

// tolerated are the keys that a pod tolerates, but for those of the control plane.
func tolerated(pod *corev1.Pod) string {
	var keys []string
	for _, t := range pod.Spec.Tolerations {
		if !strings.HasPrefix(t.Key, "node.kubernetes.io/") {
			keys = append(keys, t.Key)
		}
	}
	slices.Sort(keys)
	return strings.Join(keys, " ")
}

func changedMeanwhile(t *testing.T, tm team) {
	tm.queueUp(t, "q", 32)
	runtime := tm.runtimeOf(t)
	d := tm.wants(t, platform)
	tm.create(t, job{name: "first", queue: "q", runtime: runtime, nodes: 4, gpus: 8})
	tm.runs(t, "first", 4)
	tm.create(t, job{name: "second", queue: "q", runtime: runtime, nodes: 4, gpus: 8})
	tm.waits(t, "second", "WaitingForQuota", "needs 32 GPUs in queue q, 0 of 32 free")

	testobject.Change(t, tm.client, d, func(d *musterv1alpha1.RuntimeDefaults) {
		d.Spec.Pod.Tolerations[0].Key = "changed"
		d.Spec.Pod.PriorityClassName = "system-node-critical"
		d.Spec.Containers.Env[0].Value = "Socket"
		d.Spec.Containers.Capabilities = []string{"IPC_LOCK"}
	})
	tm.wanted(t, "Socket")
	tm.end(t, "first")
	tm.finishes(t, "first")
	for _, pod := range tm.runs(t, "second", 4) {
		c := pod.Spec.Containers[0]
		if got := variables(&c)["NCCL_NET"]; got != "IB" || pod.Spec.PriorityClassName != "" || c.SecurityContext != nil || tolerated(&pod) != "nvidia.com/gpu platform runtime" {
			t.Errorf("pod %s has NCCL_NET=%s, priority class %q, security context %v, tolerations %s", pod.Name, got, pod.Spec.PriorityClassName, c.SecurityContext, tolerated(&pod))
		}
	}
	// Stopped and started again it is still the same.
	tm.activate(t, "second", false)
	tm.waits(t, "second", "Deactivated", "spec.active is false")
	tm.activate(t, "second", true)
	for _, pod := range tm.runs(t, "second", 4) {
		if got := tolerated(&pod); got != "nvidia.com/gpu platform runtime" {
			t.Errorf("started again, pod %s has tolerations %s", pod.Name, got)
		}
	}
}

func ranks(t *testing.T, tm team) {
	tm.queueUp(t, "q", 32)
	tm.wants(t, platform)
	tm.create(t, job{name: "mpi", queue: "q", runtime: "deepspeed-distributed", nodes: 4, gpus: 8})
	launchers := 0
	for _, pod := range tm.runs(t, "mpi", 4) {
		got := variables(&pod.Spec.Containers[0])
		if _, launches := got["OMPI_MCA_orte_default_hostfile"]; !launches {
			continue
		}
		launchers++
		const want = "NCCL_NET;FROM_RUNTIME;FROM_JOB;NCCL_DEBUG;TORCH_NCCL_ASYNC_ERROR_HANDLING"
		if got["OMPI_MCA_mca_base_env_list"] != want || got["NCCL_NET"] != "IB" {
			t.Errorf("the launcher has %v", got)
		}
	}
	if launchers != 1 {
		t.Errorf("%d launchers", launchers)
	}
}

func defaultsWithoutWebhook(t *testing.T, tm team) {
	tm.wants(t, platform)
	tm.kill(t, "muster-webhook")
	tm.forgoPolicies(t)
	missed := tm.alone("missed", 1, nil, nil)
	err := tm.client.Create(t.Context(), missed)
	tm.restart(t, "muster-webhook")
	if err != nil || len(missed.Spec.Containers[0].Env) > 0 {
		t.Fatalf("without the webhook a pod is made with %v (%v)", missed.Spec.Containers, err)
	}
	// The next one is ready once it has read all, so nothing is missed then.
	stamped := tm.alone("stamped", 1, nil, nil)
	if err := tm.client.Create(t.Context(), stamped); err != nil {
		t.Fatal(err)
	}
	if got := variables(&stamped.Spec.Containers[0])["NCCL_NET"]; got != "IB" {
		t.Errorf("with the webhook NCCL_NET=%q", got)
	}
	for _, pod := range []*corev1.Pod{missed, stamped} {
		eventually(t, "pod "+pod.Name+" to run", func(ctx context.Context) error {
			if err := tm.client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil || pod.Status.Phase == corev1.PodRunning {
				return err
			}
			return fmt.Errorf("it is %s", pod.Status.Phase)
		})
	}
}
