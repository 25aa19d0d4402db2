package defaults

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-gpu/muster/api/v1alpha1"
)

// torch is the JobSet of a TrainJob of four nodes on the torch runtime, with the
// variables of the runtime and of the job, a sidecar, and a step before it that
// needs no GPU. tolerations are those of the runtime.
func torch(tolerations string) string {
	return `
metadata: {name: llm}
spec:
  suspend: true
  replicatedJobs:
  - name: dataset-initializer
    template: {spec: {template: {spec: {containers: [{name: dataset-initializer}]}}}}
  - name: node
    template:
      spec:
        parallelism: 4
        template:
          spec:
            tolerations: ` + tolerations + `
            containers:
            - name: node
              env: [{name: NCCL_DEBUG, value: INFO}, {name: PET_NNODES, value: "4"}]
              resources: {limits: {nvidia.com/gpu: 8}}
            - {name: sidecar}
  - name: empty
`
}

const fabric = `{pod: {tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}], labels: {fabric: ib}},
	containers: {env: [{name: NCCL_DEBUG, value: WARN}, {name: NCCL_IB_HCA, value: mlx5}], sharedMemory: {sizeLimit: 1Gi}}}`

// stampJobSet stamps all templates of a JobSet and returns it as it is then.
func stampJobSet(t *testing.T, raw []byte, all ...*v1alpha1.RuntimeDefaults) []byte {
	t.Helper()
	d, err := Read(raw)
	if err != nil {
		t.Fatal(err)
	}
	templates, err := d.Templates()
	if err != nil {
		t.Fatal(err)
	}
	for _, template := range templates {
		d.Stamp(template, all, Around{})
	}
	return applied(t, raw, lines(t, d))
}

// pod is the pod of a replicated job of a JobSet.
func podOf(t *testing.T, raw []byte, i int) *corev1.PodTemplateSpec {
	t.Helper()
	d, err := Read(raw)
	if err != nil {
		t.Fatal(err)
	}
	templates, err := d.Templates()
	if err != nil {
		t.Fatal(err)
	}
	return templates[i].Pod
}

func TestTheTemplatesOfAJobSetWithGPUsAreStamped(t *testing.T) {
	before := asJSON(t, torch(`[{key: team, value: nlp}]`))
	after := stampJobSet(t, before, named(t, "ib", fabric))
	if diff := cmp.Diff(podOf(t, before, 0), podOf(t, after, 0)); diff != "" {
		t.Errorf("the step without GPUs (-want +got):\n%s", diff)
	}
	want := podOf(t, before, 1)
	shared := *resourceOf("1Gi")
	want.Labels = map[string]string{"fabric": "ib"}
	want.Annotations = map[string]string{Annotation: `{"applied":["ib@1"],"tolerations":[{"key":"nvidia.com/gpu","operator":"Exists","effect":"NoSchedule"}],"labels":{"fabric":"ib"}}`}
	want.Spec.Tolerations = append(want.Spec.Tolerations, corev1.Toleration{Key: "nvidia.com/gpu", Operator: "Exists", Effect: "NoSchedule"})
	want.Spec.Volumes = []corev1.Volume{{Name: "muster-shm", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: "Memory", SizeLimit: &shared}}}}
	node := &want.Spec.Containers[0]
	node.Env = append(node.Env, corev1.EnvVar{Name: "NCCL_IB_HCA", Value: "mlx5"})
	node.VolumeMounts = []corev1.VolumeMount{{Name: "muster-shm", MountPath: "/dev/shm"}}
	if diff := cmp.Diff(want, podOf(t, after, 1)); diff != "" {
		t.Errorf("the nodes (-want +got):\n%s", diff)
	}
}

func TestWhatAnApplierTakesOutOfASuspendedJobSetIsPutBack(t *testing.T) {
	stamped := stampJobSet(t, asJSON(t, torch(`[{key: team, value: nlp}]`)), named(t, "ib", fabric))
	gpus := corev1.Toleration{Key: "nvidia.com/gpu", Operator: "Exists", Effect: "NoSchedule"}
	for name, tc := range map[string]struct {
		after string
		want  []corev1.Toleration
	}{
		"the same as before": {torch(`[{key: team, value: nlp}]`), []corev1.Toleration{{Key: "team", Value: "nlp"}, gpus}},
		"another toleration": {torch(`[{key: flavor, operator: Exists}]`), []corev1.Toleration{{Key: "flavor", Operator: "Exists"}, gpus}},
		"no tolerations":     {torch(`null`), []corev1.Toleration{gpus}},
		"a wider one":        {torch(`[{operator: Exists}]`), []corev1.Toleration{{Operator: "Exists"}}},
	} {
		t.Run(name, func(t *testing.T) {
			raw := asJSON(t, tc.after)
			restore := func(raw []byte) []string {
				old, err := Read(stamped)
				if err != nil {
					t.Fatal(err)
				}
				d, err := Read(raw)
				if err != nil {
					t.Fatal(err)
				}
				if err := d.Restore(old); err != nil {
					t.Fatal(err)
				}
				return lines(t, d)
			}
			after := applied(t, raw, restore(raw))
			pod := podOf(t, after, 1)
			if diff := cmp.Diff(tc.want, pod.Spec.Tolerations); diff != "" {
				t.Errorf("tolerations (-want +got):\n%s", diff)
			}
			was := podOf(t, stamped, 1)
			if diff := cmp.Diff(was.Labels, pod.Labels); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(was.Annotations, pod.Annotations); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
			if again := restore(after); len(again) > 0 {
				t.Errorf("a second run changes: %v", again)
			}
			// What a suspended JobSet may not change, an update must not bring.
			if diff := cmp.Diff(podOf(t, raw, 1).Spec.Containers, pod.Spec.Containers); diff != "" {
				t.Errorf("containers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNothingIsPutBackIntoAJobSetThatWasNotStamped(t *testing.T) {
	raw := asJSON(t, torch(`[]`))
	old, _ := Read(asJSON(t, torch(`[{key: nvidia.com/gpu, operator: Exists}]`)))
	d, _ := Read(raw)
	if err := d.Restore(old); err != nil {
		t.Fatal(err)
	}
	if len(d.Patch()) > 0 {
		t.Errorf("changes: %v", lines(t, d))
	}
}

func TestAnObjectThatCannotBeReadSaysWhere(t *testing.T) {
	d, err := Read(asJSON(t, `{spec: {replicatedJobs: [{template: {spec: {template: {spec: {containers: 7}}}}}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Templates(); err == nil {
		t.Error("containers: 7 was read")
	}
}

func resourceOf(quantity string) *resource.Quantity {
	q := resource.MustParse(quantity)
	return &q
}
