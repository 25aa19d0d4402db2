package workload

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/muster-gpu/muster/api/reason"
	"github.com/muster-gpu/muster/workload/identity"
)

// pyTorchJob is what the API server has of a PyTorchJob that its webhook
// suspended, with a field that no version of this program knows.
const pyTorchJob = `
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  namespace: team-nlp
  name: train
  uid: pt-1
  creationTimestamp: "2023-11-14T22:13:20Z"
  labels: {kueue.x-k8s.io/queue-name: main}
spec:
  nprocPerNode: auto
  unheardOf: kept
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: OnFailure
      template:
        metadata:
          labels: {app: llm}
        spec:
          schedulerName: muster
          containers:
          - name: pytorch
            image: example.com/train
            resources: {limits: {nvidia.com/gpu: 4}}
            unheardOf: kept
    Worker:
      replicas: 3
      restartPolicy: ExitCode
      template:
        spec:
          schedulerName: muster
          priorityClassName: high
          nodeSelector: {zone: a}
          containers:
          - name: pytorch
            image: example.com/train
            resources: {limits: {nvidia.com/gpu: 8}}
  runPolicy:
    suspend: true
    cleanPodPolicy: None
`

// tfJob is a TFJob with every type of replicas there is but Master.
const tfJob = `
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {namespace: team-nlp, name: train, uid: tf-1, labels: {kueue.x-k8s.io/queue-name: main}}
spec:
  tfReplicaSpecs:
    evaluator: {template: {spec: {schedulerName: muster, containers: [{name: tensorflow}]}}}
    worker: {replicas: 4, template: {spec: {schedulerName: muster, containers: [{name: tensorflow}]}}}
    PS: {replicas: 2, template: {spec: {schedulerName: muster, containers: [{name: tensorflow}]}}}
    Chief: {replicas: 1, template: {spec: {schedulerName: muster, containers: [{name: tensorflow}]}}}
`

// mpiJobOf is an MPIJob of one of its versions, with what else stands in spec.
func mpiJobOf(version, spec string) string {
	return `
apiVersion: kubeflow.org/` + version + `
kind: MPIJob
metadata: {namespace: team-nlp, name: train, uid: mpi-1, labels: {kueue.x-k8s.io/queue-name: main}}
spec:
  ` + spec + `
  runPolicy: {suspend: true}
  mpiReplicaSpecs:
    Worker: {replicas: 4, template: {spec: {schedulerName: muster, containers: [{name: mpi}]}}}
    Launcher: {replicas: 1, template: {spec: {schedulerName: muster, containers: [{name: mpi}]}}}
`
}

func decoded(t *testing.T, text string, change ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	// As the API's own decoder has numbers.
	u = u.DeepCopy()
	body, err := u.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := u.UnmarshalJSON(body); err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(u)
	}
	return u
}

// put sets a field of an object; nil takes it away.
func put(value any, path ...string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		if value == nil {
			unstructured.RemoveNestedField(u.Object, path...)
		} else if err := unstructured.SetNestedField(u.Object, value, path...); err != nil {
			panic(err)
		}
	}
}

func condition(kind string) func(*unstructured.Unstructured) {
	return put([]any{
		map[string]any{"type": "Running", "status": "False"},
		map[string]any{"type": kind, "status": "True", "message": "as it went"},
	}, "status", "conditions")
}

func readTraining(t *testing.T, u *unstructured.Unstructured, objects ...client.Object) (*Job, bool, *reason.Reason) {
	t.Helper()
	before := u.DeepCopy()
	job, managed, no, err := kindNamed(t, u.GetKind()).Read(t.Context(), fakeClient(t, objects...), u)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, u); diff != "" {
		t.Errorf("reading changed the object (-before +after):\n%s", diff)
	}
	return job, managed, no
}

func TestTrainingJobPodSets(t *testing.T) {
	other := func(kind, specs string) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) {
			all, _, _ := unstructured.NestedMap(u.Object, "spec", "pytorchReplicaSpecs")
			u.SetKind(kind)
			put(all, "spec", specs)(u)
		}
	}
	workers := put(nil, "spec", "pytorchReplicaSpecs", "Master")
	for name, tc := range map[string]struct {
		job  *unstructured.Unstructured
		want []shape
	}{
		"a PyTorchJob is its master and its workers": {decoded(t, pyTorchJob), []shape{{"master", 1, 1, 0}, {"worker", 3, 3, 0}}},
		"a PyTorchJob without a master":              {decoded(t, pyTorchJob, workers), []shape{{"worker", 3, 3, 0}}},
		"an elastic one is charged for what it asks now": {
			decoded(t, pyTorchJob, put(map[string]any{"minReplicas": int64(1), "maxReplicas": int64(8)}, "spec", "elasticPolicy")),
			[]shape{{"master", 1, 1, 0}, {"worker", 3, 3, 0}},
		},
		"no replicas of a type are no pods": {
			decoded(t, pyTorchJob, put(int64(0), "spec", "pytorchReplicaSpecs", "Worker", "replicas")), []shape{{"master", 1, 1, 0}},
		},
		"a TFJob in Kueue's order, whatever the case its types are written in": {
			decoded(t, tfJob), []shape{{"chief", 1, 1, 0}, {"ps", 2, 2, 0}, {"worker", 4, 4, 0}, {"evaluator", 1, 1, 0}},
		},
		"an XGBoostJob": {decoded(t, pyTorchJob, other("XGBoostJob", "xgbReplicaSpecs")), []shape{{"master", 1, 1, 0}, {"worker", 3, 3, 0}}},
		"a PaddleJob":   {decoded(t, pyTorchJob, other("PaddleJob", "paddleReplicaSpecs")), []shape{{"master", 1, 1, 0}, {"worker", 3, 3, 0}}},
		"a JAXJob":      {decoded(t, pyTorchJob, workers, other("JAXJob", "jaxReplicaSpecs")), []shape{{"worker", 3, 3, 0}}},
		"an MPIJob of the Training Operator starts all its pods at once": {
			decoded(t, mpiJobOf("v1", "launcherCreationPolicy: WaitForWorkersReady")), []shape{{"launcher", 1, 1, 0}, {"worker", 4, 4, 0}},
		},
		"an MPIJob of the MPI Operator does so too": {
			decoded(t, mpiJobOf("v2beta1", "launcherCreationPolicy: AtStartup")), []shape{{"launcher", 1, 1, 0}, {"worker", 4, 4, 0}},
		},
		"unless its launcher waits for the workers": {
			decoded(t, mpiJobOf("v2beta1", "launcherCreationPolicy: WaitForWorkersReady")), []shape{{"launcher", 1, 1, 1}, {"worker", 4, 4, 0}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			job, managed, no := readTraining(t, tc.job)
			if !managed || no != nil {
				t.Fatalf("managed %v, no %v", managed, no)
			}
			if diff := cmp.Diff(tc.want, shapes(job)); diff != "" {
				t.Errorf("pod sets (-want +got):\n%s", diff)
			}
			if job.Owner.GroupVersionKind != tc.job.GroupVersionKind() || job.PodOwnerUID != tc.job.GetUID() || job.Queue != "main" {
				t.Errorf("read %+v", job)
			}
		})
	}
}

func TestTrainingJobWorkloadIsKueues(t *testing.T) {
	job, _, _ := readTraining(t, decoded(t, pyTorchJob))
	wl := NewWorkload(job, 0, nil)
	if !strings.HasPrefix(wl.Name, "pytorchjob-train-") || !SamePodSets(wl, job) || job.PodPriorityClass != "high" {
		t.Errorf("Workload %s, the same %v, priority class %q", wl.Name, SamePodSets(wl, job), job.PodPriorityClass)
	}
	want := &kueue.PodSetTopologyRequest{PodIndexLabel: new("training.kubeflow.org/replica-index")}
	if diff := cmp.Diff(want, wl.Spec.PodSets[1].TopologyRequest); diff != "" {
		t.Errorf("topology request (-want +got):\n%s", diff)
	}
	job, _, _ = readTraining(t, decoded(t, pyTorchJob, put("urgent", "spec", "runPolicy", "schedulingPolicy", "priorityClass")))
	if job.PodPriorityClass != "urgent" {
		t.Errorf("the scheduling policy's class does not come first: %q", job.PodPriorityClass)
	}
}

func TestTrainingJobThatCannotRun(t *testing.T) {
	for name, tc := range map[string]struct {
		job  *unstructured.Unstructured
		want reason.Class
		says string
	}{
		"no replicas":   {decoded(t, pyTorchJob, put(nil, "spec", "pytorchReplicaSpecs")), reason.Misconfigured, "no replicas"},
		"fewer than no": {decoded(t, pyTorchJob, put(int64(-1), "spec", "pytorchReplicaSpecs", "Worker", "replicas")), reason.Misconfigured, "-1 pods"},
		"a type that the operator does not know": {
			decoded(t, pyTorchJob, put(map[string]any{}, "spec", "pytorchReplicaSpecs", "Chief")), reason.Misconfigured, `"Chief"`,
		},
		"a type that is written twice": {
			decoded(t, pyTorchJob, put(map[string]any{}, "spec", "pytorchReplicaSpecs", "worker")), reason.Misconfigured, "both Worker and worker",
		},
		"a spoiled note of an injection": {
			decoded(t, pyTorchJob, put("{", "spec", "pytorchReplicaSpecs", "Worker", "template", "metadata", "annotations", "muster.dev/injected")),
			reason.Misconfigured, "replicas Worker",
		},
		"pods for one node": {
			decoded(t, pyTorchJob, put("node-1", "spec", "pytorchReplicaSpecs", "Worker", "template", "spec", "nodeName")), reason.Misconfigured, "node-1",
		},
		"no scheduler's name": {
			decoded(t, pyTorchJob, put(nil, "spec", "pytorchReplicaSpecs", "Master", "template", "spec", "schedulerName")), reason.ForeignScheduler, "create the PyTorchJob anew",
		},
	} {
		t.Run(name, func(t *testing.T) {
			job, managed, no := readTraining(t, tc.job)
			if !managed || no == nil || no.Class != tc.want || !strings.Contains(no.Message, tc.says) {
				t.Fatalf("managed %v, no %v", managed, no)
			}
			if job.Queue != "main" || !job.Suspended || job.Owner.UID != tc.job.GetUID() {
				t.Errorf("read %+v", job)
			}
			condition("Failed")(tc.job)
			if _, _, no := readTraining(t, tc.job); no != nil {
				t.Errorf("it has failed, and still: %v", no)
			}
		})
	}
}

func TestTrainingJobThatIsNotOurs(t *testing.T) {
	managedBy := func(who string) func(*unstructured.Unstructured) { return put(who, "spec", "runPolicy", "managedBy") }
	for name, tc := range map[string]struct {
		job  *unstructured.Unstructured
		want bool
	}{
		"no queue":                         {decoded(t, pyTorchJob, func(u *unstructured.Unstructured) { u.SetLabels(nil) }), false},
		"another cluster's":                {decoded(t, pyTorchJob, managedBy("kueue.x-k8s.io/multikueue")), false},
		"its own operator's":               {decoded(t, pyTorchJob, managedBy("kubeflow.org/training-operator")), true},
		"an MPIJob of its own operator":    {decoded(t, mpiJobOf("v2beta1", "slotsPerWorker: 1"), managedBy("kubeflow.org/mpi-operator")), true},
		"an MPIJob of the other operator":  {decoded(t, mpiJobOf("v1", "slotsPerWorker: 1"), managedBy("kubeflow.org/mpi-operator")), false},
		"an old one of the other operator": {decoded(t, mpiJobOf("v2beta1", "slotsPerWorker: 1"), managedBy("kubeflow.org/training-operator")), false},
	} {
		t.Run(name, func(t *testing.T) {
			if _, managed, _ := readTraining(t, tc.job); managed != tc.want {
				t.Errorf("managed %v, want %v", managed, tc.want)
			}
		})
	}
}

func TestTrainingJobThatIsOver(t *testing.T) {
	for kind, want := range map[string]*Finish{
		"Succeeded": {Succeeded: true, Message: "as it went"}, "Failed": {Message: "as it went"}, "Restarting": nil, "Suspended": nil,
	} {
		job, _, _ := readTraining(t, decoded(t, pyTorchJob, condition(kind)))
		if diff := cmp.Diff(want, job.Finish); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
	}
}

func TestTrainingJobResumeAndSuspend(t *testing.T) {
	template := func(u *unstructured.Unstructured, replicas string) map[string]any {
		m, _, _ := unstructured.NestedMap(u.Object, "spec", "pytorchReplicaSpecs", replicas, "template")
		return m
	}
	suspended := func(u *unstructured.Unstructured) bool {
		s, _, _ := unstructured.NestedBool(u.Object, "spec", "runPolicy", "suspend")
		return s
	}
	infos := []PodSetInfo{
		{Name: "master"}, {Name: "worker", NodeSelector: map[string]string{"pool": "h100"}, Tolerations: tolerations("gpu"), Labels: map[string]string{"l": "1"}},
	}
	ctx, kind := t.Context(), kindNamed(t, "PyTorchJob")
	c := fakeClient(t, decoded(t, pyTorchJob))
	u := get(t, c, decoded(t, pyTorchJob))
	authors := template(u, "Worker")
	if err := kind.Resume(ctx, c, u.DeepCopy(), infos); err != nil {
		t.Fatal(err)
	}
	u = get(t, c, u)
	got := template(u, "Worker")
	selector, _, _ := unstructured.NestedStringMap(got, "spec", "nodeSelector")
	if suspended(u) || !maps.Equal(selector, map[string]string{"zone": "a", "pool": "h100"}) {
		t.Errorf("resumed with template %v", got)
	}
	if diff := cmp.Diff(template(decoded(t, pyTorchJob), "Master"), template(u, "Master")); diff != "" {
		t.Errorf("the master was changed, to which nothing is injected (-want +got):\n%s", diff)
	}
	if unheard, _, _ := unstructured.NestedString(u.Object, "spec", "unheardOf"); unheard != "kept" {
		t.Error("a field was lost that this version does not know")
	}
	job, _, no := readTraining(t, u)
	if no != nil || job.Suspended || len(job.PodSets[1].Template.Spec.Tolerations) != 0 || len(job.PodSets[1].Template.Annotations) != 0 {
		t.Errorf("what was injected is read as the author's: %v, %+v", no, job.PodSets[1].Template)
	}

	if err := kind.Resume(ctx, c, u.DeepCopy(), infos); err != nil {
		t.Errorf("a second resume: %v", err)
	}
	if err := kind.Resume(ctx, c, u.DeepCopy(), infos[:1]); !errors.Is(err, ErrNotSuspended) {
		t.Errorf("a resume with other infos: %v", err)
	}
	stale := u.DeepCopy()
	if err := kind.Suspend(ctx, c, u.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	if u = get(t, c, u); !suspended(u) {
		t.Error("it is not suspended")
	}
	again, _, _ := readTraining(t, u)
	if diff := cmp.Diff(authors["spec"], template(u, "Worker")["spec"]); diff != "" || len(again.PodSets[1].Template.Labels) != 0 {
		t.Errorf("the template is not the author's again (-want +got):\n%s", diff)
	}
	if err := kind.Suspend(ctx, c, u.DeepCopy()); err != nil {
		t.Errorf("a second suspension: %v", err)
	}
	if err := kind.Suspend(ctx, c, stale); err == nil {
		t.Error("a template was restored in a version that is not the newest")
	}
}

func TestTrainingJobWithoutARunPolicy(t *testing.T) {
	c := fakeClient(t, decoded(t, tfJob))
	u := get(t, c, decoded(t, tfJob))
	if err := kindNamed(t, "TFJob").Suspend(t.Context(), c, u); err != nil {
		t.Fatal(err)
	}
	if job, _, _ := readTraining(t, get(t, c, u)); !job.Suspended {
		t.Error("it is not suspended")
	}
}

func TestTrainingJobResumeRefuses(t *testing.T) {
	c := fakeClient(t, decoded(t, pyTorchJob))
	u := get(t, c, decoded(t, pyTorchJob))
	kind := kindNamed(t, "PyTorchJob")
	var no *reason.Reason
	if err := kind.Resume(t.Context(), c, u, []PodSetInfo{{Name: "worker", NodeSelector: map[string]string{"zone": "b"}}}); !errors.As(err, &no) {
		t.Errorf("a flavor that contradicts the template: %v", err)
	}
	if err := kind.Resume(t.Context(), c, u, []PodSetInfo{{Name: "chief"}}); err == nil {
		t.Error("a pod set that it does not have was injected")
	}
}

// trainingPod is a pod of a training job as its operator made it.
func trainingPod(name, apiVersion, kind, owner string, uid types.UID, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(name), Labels: labels,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: owner, UID: uid, Controller: new(true)}},
	}}
}

func TestSlotsOfTrainingPods(t *testing.T) {
	v1 := func(set, index string) map[string]string {
		m := map[string]string{TrainingJobLabel: "train", identity.TrainingOperatorLabel: "x-controller", identity.ReplicaTypeLabel: set}
		if index != "" {
			m[identity.ReplicaIndexLabel] = index
		}
		return m
	}
	v2 := func(role, index string) map[string]string {
		return map[string]string{TrainingJobLabel: "train", identity.TrainingOperatorLabel: identity.MPIOperator, identity.JobRoleLabel: role, identity.ReplicaIndexLabel: index}
	}
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want Slot
		none bool
	}{
		"a worker":                  {pod: trainingPod("train-worker-2", "kubeflow.org/v1", "PyTorchJob", "train", "pt-1", v1("worker", "2")), want: Slot{PodSet: "worker", Replica: 0, Completion: 2}},
		"a master":                  {pod: trainingPod("train-master-0", "kubeflow.org/v1", "PyTorchJob", "train", "pt-1", v1("master", "0")), want: Slot{PodSet: "master", Replica: 0, Completion: 0}},
		"a launcher has no number":  {pod: trainingPod("train-launcher", "kubeflow.org/v1", "MPIJob", "train", "pt-1", v1("launcher", "")), want: Slot{PodSet: "launcher", Replica: 0, Completion: 0}},
		"no number":                 {pod: trainingPod("train-worker-x", "kubeflow.org/v1", "TFJob", "train", "pt-1", v1("worker", "x")), none: true},
		"labels that were taken":    {pod: trainingPod("train-worker-0", "kubeflow.org/v1", "TFJob", "train", "pt-1", nil), none: true},
		"another owner":             {pod: trainingPod("train-worker-0", "apps/v1", "ReplicaSet", "train", "pt-1", v1("worker", "0")), none: true},
		"another kind of the group": {pod: trainingPod("train-worker-0", "kubeflow.org/v1", "Notebook", "train", "pt-1", v1("worker", "0")), none: true},
		"a worker of the MPI Operator, by its name": {
			pod: trainingPod("train-worker-1", "kubeflow.org/v2beta1", "MPIJob", "train", "pt-1", v2("worker", "2")), want: Slot{PodSet: "worker", Replica: 0, Completion: 1},
		},
		"its launcher, by the Job's name": {
			pod: trainingPod("train-launcher-x7k2p", "batch/v1", "Job", "train-launcher", "pt-1", v2("launcher", "0")), want: Slot{PodSet: "launcher", Replica: 0, Completion: 0},
		},
		"a Job whose author copied the labels": {
			pod: trainingPod("mine-x7k2p", "batch/v1", "Job", "mine", "pt-1", v2("launcher", "0")), want: Slot{PodSet: "main", Replica: 0, Completion: -1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			owner, slot, ok := SlotOf(tc.pod)
			if ok == tc.none || (ok && (owner != "pt-1" || slot != tc.want)) {
				t.Errorf("slot %+v of %q, %v", slot, owner, ok)
			}
		})
	}
}

func TestLabelsOfTrainingPods(t *testing.T) {
	labels := func(text, set string, completion int32, change ...func(*unstructured.Unstructured)) map[string]string {
		job, _, _ := readTraining(t, decoded(t, text, change...))
		return job.PodSet(set).LabelsOf(Slot{PodSet: set, Completion: completion})
	}
	works := mpiJobOf("v2beta1", "runLauncherAsWorker: true")
	for name, tc := range map[string]struct{ got, want map[string]string }{
		"a PyTorchJob's worker": {labels(pyTorchJob, "worker", 2), map[string]string{
			"training.kubeflow.org/operator-name": "pytorchjob-controller", "training.kubeflow.org/job-name": "train",
			"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "2",
		}},
		"its master": {labels(pyTorchJob, "master", 0), map[string]string{
			"training.kubeflow.org/operator-name": "pytorchjob-controller", "training.kubeflow.org/job-name": "train", "training.kubeflow.org/job-role": "master",
			"training.kubeflow.org/replica-type": "master", "training.kubeflow.org/replica-index": "0",
		}},
		"a launcher of the Training Operator": {labels(mpiJobOf("v1", "slotsPerWorker: 1"), "launcher", 0), map[string]string{
			"training.kubeflow.org/operator-name": "mpijob-controller", "training.kubeflow.org/job-name": "train", "training.kubeflow.org/job-role": "master",
			"training.kubeflow.org/replica-type": "launcher",
		}},
		"a worker beside a launcher that works": {labels(works, "worker", 1), map[string]string{
			"training.kubeflow.org/operator-name": "mpi-operator", "training.kubeflow.org/job-name": "train",
			"training.kubeflow.org/job-role": "worker", "training.kubeflow.org/replica-index": "2",
		}},
		"a launcher that works": {labels(works, "launcher", 0), map[string]string{
			"training.kubeflow.org/operator-name": "mpi-operator", "training.kubeflow.org/job-name": "train", "batch.kubernetes.io/job-name": "train-launcher", "job-name": "train-launcher",
			"training.kubeflow.org/job-role": "launcher", "training.kubeflow.org/replica-index": "0",
		}},
	} {
		if diff := cmp.Diff(tc.want, tc.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestMPIJobSpeaksForItsLaunchersJob(t *testing.T) {
	u := decoded(t, mpiJobOf("v2beta1", "slotsPerWorker: 1"))
	launcher := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "train-launcher", UID: "launcher-1", Labels: map[string]string{QueueLabel: "main"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "kubeflow.org/v2beta1", Kind: "MPIJob", Name: "train", UID: "mpi-1", Controller: new(true)}},
	}}
	job, _, _ := readTraining(t, u, launcher)
	if diff := cmp.Diff([]types.UID{"mpi-1", "launcher-1"}, job.PodOwners()); diff != "" {
		t.Errorf("owners of its pods (-want +got):\n%s", diff)
	}
	if _, managed, _, err := kindNamed(t, "Job").Read(t.Context(), fakeClient(t), launcher); managed || err != nil {
		t.Errorf("the launcher's Job is a job of its own: %v, %v", managed, err)
	}
	launcher.OwnerReferences[0].UID = "mpi-0"
	if job, _, _ := readTraining(t, u, launcher); len(job.OtherPodOwners) != 0 {
		t.Errorf("the Job of an earlier MPIJob of the same name is its own: %v", job.OtherPodOwners)
	}
}
