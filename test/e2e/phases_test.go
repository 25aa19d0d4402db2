package e2e

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-gpu/muster/internal/testobject"
	"github.com/muster-gpu/muster/workload"
)

const rackLabel = "example.com/rack"

// TestPhases tells stories of JobSets whose pods do not all come at once, or
// choose their nodes by what the JobSet controller writes on them. The four
// nodes of the sandbox are in two racks.
func TestPhases(t *testing.T) {
	c := up(t, "phases")
	for i := range 4 {
		c.node(t, i, func(n *corev1.Node) { n.Labels[rackLabel] = []string{"r0", "r0", "r1", "r1"}[i] })
	}
	tellAll(t, c, "team", withQueue, []story[team]{
		{"exclusive topology gives each Job a rack of its own, leaders first", exclusive},
		{"exclusive topology with more Jobs than racks waits, and holds nothing", tooExclusive},
		{"a running exclusive job keeps another away until it has ended", exclusiveInTurn},
		{"a TrainJob whose runtime asks for exclusive topology has a rack to itself", exclusiveTrainJob},
		{"four pods that must be on nodes of their own wait for a fourth node", onePodPerNode},
		{"pods that are told apart by a label of their Job are planned Job by Job", apartByJob},
		{"a phase that comes after the scheduler was killed goes to its own nodes", inOrder},
		{"a JobSet that restarts in its second phase runs through both again", restarted},
		{"a replicated job does not wait for one that depends on something else", unlikeDependencies},
		{"Jobs with more completions than parallel pods run them all", manyCompletions},
		{"a JobSet that requires a rack of a Topology is in one, its ranks node by node", inOneRack},
	})
}

// inOneRack has a queue besides whose flavor names a Topology.
func inOneRack(t *testing.T, tm team) {
	const levels = "racks"
	for _, obj := range []client.Object{
		&kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: levels}, Spec: kueue.TopologySpec{
			Levels: []kueue.TopologyLevel{{NodeLabel: rackLabel}, {NodeLabel: corev1.LabelHostname}},
		}},
		&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: levels}, Spec: kueue.ResourceFlavorSpec{
			NodeLabels: map[string]string{corev1.LabelOSStable: "linux"}, TopologyName: new(kueue.TopologyReference(levels)),
		}},
	} {
		if err := tm.client.Create(t.Context(), obj); err != nil {
			t.Fatalf("creating %T: %v", obj, err)
		}
	}
	testobject.Change(t, tm.client, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: tm.namespace + "-q"}}, func(queue *kueue.ClusterQueue) {
		queue.Spec.ResourceGroups[0].Flavors[0].Name = levels
	})
	create := func(name string, rj jobset.ReplicatedJob) {
		rj.Template.Spec.CompletionMode = new(batchv1.IndexedCompletion)
		rj.Template.Spec.Template.Annotations = map[string]string{kueue.PodSetRequiredTopologyAnnotation: rackLabel}
		tm.createJobSet(t, tm.jobSet(name, rj))
	}
	create("wide", replicated("node", 1, 3, 8))
	tm.jobSetWaits(t, "wide", "ExceedsCluster", "needs 3 pods of 8 GPUs in one "+rackLabel+"; even empty, the largest, r0, has room for 2")
	create("small", replicated("node", 1, 1, 8))
	tm.runs(t, "small", 1)
	create("train", replicated("node", 2, 2, 4))
	tm.kill(t, "muster-scheduler")
	tm.restart(t, "muster-scheduler")
	byRank := map[string]string{}
	for _, p := range tm.runs(t, "train", 4) {
		byRank[p.Labels[jobset.JobIndexKey]+"/"+p.Labels[batchv1.JobCompletionIndexAnnotation]] = p.Spec.NodeName
	}
	want := map[string]string{"0/0": "node-2", "0/1": "node-2", "1/0": "node-3", "1/1": "node-3"}
	if diff := cmp.Diff(want, byRank); diff != "" {
		t.Errorf("nodes by rank (-want +got):\n%s", diff)
	}
}

func withQueue(t *testing.T, tm team) team {
	t.Helper()
	tm.queueUp(t, "q", 64)
	return tm
}

func exclusive(t *testing.T, tm team) {
	js := tm.jobSet("train", replicated("node", 2, 2, 8))
	js.Annotations = map[string]string{jobset.ExclusiveKey: rackLabel}
	tm.createJobSet(t, js)
	pods := tm.runs(t, "train", 4)
	tm.usage(t, "q", 32, 1, 0)
	racks := tm.racksOf(t, pods)
	if len(racks["0"]) != 1 || len(racks["1"]) != 1 || racks["0"].Equal(racks["1"]) {
		t.Errorf("the racks of the Jobs are %v", racks)
	}
	for i := range pods {
		p := &pods[i]
		rack := p.Spec.NodeSelector[rackLabel]
		if leads := p.Labels[batchv1.JobCompletionIndexAnnotation] == "0"; leads != (rack == "") {
			t.Errorf("pod %s has the node selector %q; JobSet's webhook was not asked", p.Name, rack)
		}
	}
	tm.wrote(t, js, pods)
}

// wrote checks that the controllers wrote on pods what they were planned with.
func (tm team) wrote(t *testing.T, js *jobset.JobSet, pods []corev1.Pod) {
	t.Helper()
	if err := tm.client.Get(t.Context(), client.ObjectKeyFromObject(js), js); err != nil {
		t.Fatal(err)
	}
	for _, kind := range workload.Kinds(workload.Options{SchedulerNames: sets.New("muster", corev1.DefaultSchedulerName)}) {
		if kind.GroupVersionKind().Kind != "JobSet" {
			continue
		}
		job, _, no, err := kind.Read(t.Context(), tm.client, js)
		if err != nil || no != nil {
			t.Fatalf("reading the JobSet: %v %v", no, err)
		}
		for i := range pods {
			_, slot, _ := workload.SlotOf(&pods[i])
			ps := job.PodSet(slot.PodSet)
			template := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: ps.Template.Labels}, Spec: *ps.Template.Spec.DeepCopy()}
			want, got := ps.Stamped(template, slot), pods[i].DeepCopy()
			// The UID of the Job is not known before.
			maps.DeleteFunc(got.Labels, func(key, _ string) bool { return strings.HasSuffix(key, "controller-uid") })
			if diff := cmp.Diff(want.Labels, got.Labels); diff != "" {
				t.Errorf("the labels of %s are not those that were planned (-planned +real):\n%s", got.Name, diff)
			}
			if diff := cmp.Diff(want.Spec.Affinity, got.Spec.Affinity); diff != "" && slot.Completion == 0 {
				t.Errorf("the affinity of leader %s is not that which was planned (-planned +real):\n%s", got.Name, diff)
			}
		}
	}
}

func tooExclusive(t *testing.T, tm team) {
	js := tm.jobSet("train", replicated("node", 3, 1, 1))
	js.Annotations = map[string]string{jobset.ExclusiveKey: rackLabel}
	tm.createJobSet(t, js)
	tm.jobSetWaits(t, "train", "NoPlacement", `pod set "node[2]": no node with a free GPU passes: 4 node(s) didn't match pod anti-affinity rules`)
	tm.usage(t, "q", 0, 0, 1)
	// Everything is free for others.
	tm.createJobSet(t, tm.jobSet("all", replicated("node", 1, 4, 8)))
	tm.runs(t, "all", 4)
}

func exclusiveInTurn(t *testing.T, tm team) {
	for _, name := range []string{"first", "second"} {
		rj := replicated("node", 2, 2, 1)
		rj.Template.Annotations = map[string]string{jobset.ExclusiveKey: rackLabel}
		tm.createJobSet(t, tm.jobSet(name, rj))
		if name == "first" {
			tm.runs(t, name, 4)
		}
	}
	tm.jobSetWaits(t, "second", "NoPlacement", "anti-affinity")
	tm.end(t, "first")
	tm.completes(t, "first")
	racks := tm.racksOf(t, tm.runs(t, "second", 4))
	if len(racks["0"]) != 1 || len(racks["1"]) != 1 || racks["0"].Equal(racks["1"]) {
		t.Errorf("the racks of the Jobs are %v", racks)
	}
}

func exclusiveTrainJob(t *testing.T, tm team) {
	runtime := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime",
		"metadata": map[string]any{"name": tm.namespace + "-exclusive", "labels": map[string]any{"trainer.kubeflow.org/framework": "torch"}},
		"spec": map[string]any{
			"mlPolicy": map[string]any{"numNodes": int64(1), "torch": map[string]any{}},
			"template": map[string]any{
				"metadata": map[string]any{"annotations": map[string]any{jobset.ExclusiveKey: rackLabel}},
				"spec": map[string]any{"replicatedJobs": []any{map[string]any{
					"name": "node", "replicas": int64(1), "template": map[string]any{
						"metadata": map[string]any{"labels": map[string]any{"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
						"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
							"containers": []any{map[string]any{"name": "node", "image": "example.com/node"}},
						}}},
					},
				}}},
			},
		},
	}}
	if err := tm.client.Create(t.Context(), runtime); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"first", "second"} {
		tm.create(t, job{name: name, queue: "q", runtime: runtime.GetName(), nodes: 2, gpus: 1})
	}
	first, second := tm.racksOf(t, tm.runs(t, "first", 2)), tm.racksOf(t, tm.runs(t, "second", 2))
	if len(first["0"]) != 1 || len(second["0"]) != 1 || first["0"].Equal(second["0"]) {
		t.Errorf("the racks of the jobs are %v and %v", first, second)
	}
	tm.create(t, job{name: "third", queue: "q", runtime: runtime.GetName(), nodes: 2, gpus: 1})
	tm.waits(t, "third", "NoPlacement", "no node with a free GPU passes: 4 node(s) didn't match pod anti-affinity rules")
	tm.usage(t, "q", 4, 2, 1)
	tm.end(t, "first")
	tm.finishes(t, "first")
	tm.runs(t, "third", 2)
}

func onePodPerNode(t *testing.T, tm team) {
	tm.node(t, 3, func(n *corev1.Node) { n.Spec.Unschedulable = true })
	t.Cleanup(func() { tm.node(t, 3, func(n *corev1.Node) { n.Spec.Unschedulable = false }) })
	rj := replicated("node", 1, 4, 1)
	rj.Template.Spec.Template.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{jobset.JobSetNameKey: "train"}},
		}},
	}}
	tm.createJobSet(t, tm.jobSet("train", rj))
	tm.jobSetWaits(t, "train", "NoPlacement", "finds nodes for 3 of 4 pods; for the rest no node with a free GPU passes: 3 node(s) didn't match pod anti-affinity rules")
	tm.usage(t, "q", 0, 0, 1)

	tm.node(t, 3, func(n *corev1.Node) { n.Spec.Unschedulable = false })
	nodes := sets.New[string]()
	for _, p := range tm.runs(t, "train", 4) {
		nodes.Insert(p.Spec.NodeName)
	}
	if len(nodes) != 4 {
		t.Errorf("four pods are on %v", sets.List(nodes))
	}
}

func apartByJob(t *testing.T, tm team) {
	rj := replicated("node", 2, 2, 2)
	rj.Template.Spec.Template.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: rackLabel, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{jobset.JobSetNameKey: "train"}},
			MismatchLabelKeys: []string{jobset.JobIndexKey},
		}},
	}}
	js := tm.jobSet("train", rj)
	tm.createJobSet(t, js)
	pods := tm.runs(t, "train", 4)
	racks := tm.racksOf(t, pods)
	if racks["0"].HasAny(racks["1"].UnsortedList()...) {
		t.Errorf("the racks of the Jobs are %v", racks)
	}
	tm.wrote(t, js, pods)
}

func inOrder(t *testing.T, tm team) {
	driver := replicated("driver", 1, 1, 0)
	driver.Template.Spec.Template.Annotations = map[string]string{"sim.muster.dev/start-delay": "5s"}
	js := tm.jobSet("train", driver, replicated("node", 2, 2, 8))
	js.Spec.StartupPolicy = &jobset.StartupPolicy{StartupPolicyOrder: jobset.InOrder}
	tm.createJobSet(t, js)
	eventually(t, "the driver to be on its node", func(ctx context.Context) error {
		pods, err := tm.pods(ctx, "train")
		if err != nil || len(pods) != 1 || pods[0].Spec.NodeName == "" {
			return fmt.Errorf("%d pods are there (%v)", len(pods), err)
		}
		return nil
	})
	tm.kill(t, "muster-scheduler")
	// It may not be alone with the room any more when it comes back.
	tm.createJobSet(t, tm.jobSet("other", replicated("node", 1, 4, 8)))
	tm.restart(t, "muster-scheduler")
	tm.runs(t, "train", 4, "node")
	tm.jobSetWaits(t, "other", "NoPlacement", "0 GPUs are free")
	tm.end(t, "train", "node")
	tm.end(t, "train", "driver")
	tm.completes(t, "train")
	tm.runs(t, "other", 4)
}

func restarted(t *testing.T, tm team) {
	node := replicated("node", 2, 2, 8)
	node.DependsOn = []jobset.DependsOn{{Name: "init", Status: jobset.DependencyComplete}}
	js := tm.jobSet("train", replicated("init", 1, 2, 0), node)
	js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1}
	tm.createJobSet(t, js)
	tm.runs(t, "train", 2, "init")
	tm.end(t, "train", "init")
	first := tm.runs(t, "train", 4, "node")

	tm.behave(t, &first[0], map[string]string{"sim.muster.dev/exit-code": "1", "sim.muster.dev/run-for": "0s"})
	eventually(t, "the first phase to run again", func(ctx context.Context) error {
		pods, err := tm.pods(ctx, "train")
		if err != nil {
			return err
		}
		again := 0
		for i := range pods {
			if workload.AttemptOf(&pods[i]) == 1 && pods[i].Labels[jobset.ReplicatedJobNameKey] == "init" && pods[i].Status.Phase == corev1.PodRunning {
				again++
			}
		}
		if again != 2 {
			return fmt.Errorf("%d pods do; %s", again, tm.describe(ctx, "train"))
		}
		return nil
	})
	tm.end(t, "train", "init")
	for _, p := range tm.runs(t, "train", 4, "node") {
		if workload.AttemptOf(&p) != 1 {
			t.Errorf("pod %s is of attempt %d", p.Name, workload.AttemptOf(&p))
		}
	}
	tm.end(t, "train", "node")
	tm.completes(t, "train")
	tm.usage(t, "q", 0, 0, 0)
}

func unlikeDependencies(t *testing.T, tm team) {
	ready := replicated("ready", 1, 2, 4)
	ready.DependsOn = []jobset.DependsOn{{Name: "server", Status: jobset.DependencyReady}}
	last := replicated("last", 1, 2, 4)
	last.DependsOn = []jobset.DependsOn{{Name: "data", Status: jobset.DependencyComplete}}
	tm.createJobSet(t, tm.jobSet("train", replicated("server", 1, 1, 0), replicated("data", 1, 1, 0), ready, last))
	// The data are never complete before those that are ready have run.
	tm.runs(t, "train", 2, "ready")
	tm.end(t, "train", "data")
	tm.runs(t, "train", 2, "last")
	tm.end(t, "train")
	tm.completes(t, "train")
}

func manyCompletions(t *testing.T, tm team) {
	rj := replicated("node", 2, 2, 4)
	rj.Template.Spec.Completions = new(int32(5))
	rj.Template.Spec.Template.Annotations = map[string]string{"sim.muster.dev/run-for": "100ms"}
	js := tm.jobSet("train", rj)
	js.Annotations = map[string]string{jobset.ExclusiveKey: rackLabel}
	tm.createJobSet(t, js)
	tm.completes(t, "train")
	tm.usage(t, "q", 0, 0, 0)
}

// jobSet is a JobSet in queue q.
func (tm team) jobSet(name string, jobs ...jobset.ReplicatedJob) *jobset.JobSet {
	return &jobset.JobSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: tm.namespace, Name: name, Labels: map[string]string{workload.QueueLabel: "q"}},
		Spec:       jobset.JobSetSpec{ReplicatedJobs: jobs},
	}
}

// replicated is a replicated job of replicas Jobs with pods pods of gpus GPUs
// each. A pod that fails fails its Job.
func replicated(name string, replicas, pods int32, gpus int64) jobset.ReplicatedJob {
	resources := corev1.ResourceRequirements{}
	if gpus > 0 {
		resources.Limits = corev1.ResourceList{gpu: *resource.NewQuantity(gpus, resource.DecimalSI)}
	}
	return jobset.ReplicatedJob{Name: name, Replicas: replicas, Template: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
		Parallelism: &pods, Completions: &pods, BackoffLimit: new(int32(0)),
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "node", Image: "example.com/train", Resources: resources}},
		}},
	}}}
}

func (tm team) createJobSet(t *testing.T, js *jobset.JobSet) {
	t.Helper()
	if err := tm.client.Create(t.Context(), js); err != nil {
		t.Fatalf("creating JobSet %s: %v", js.Name, err)
	}
}

// node changes a node.
func (c *cluster) node(t *testing.T, number int, change func(*corev1.Node)) {
	t.Helper()
	testobject.Change(t, c.client, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", number)}}, change)
}

// racksOf are the racks in which the pods of each Job are, by its index.
func (tm team) racksOf(t *testing.T, pods []corev1.Pod) map[string]sets.Set[string] {
	t.Helper()
	out := map[string]sets.Set[string]{}
	for i := range pods {
		node := &corev1.Node{}
		if err := tm.client.Get(t.Context(), client.ObjectKey{Name: pods[i].Spec.NodeName}, node); err != nil {
			t.Fatal(err)
		}
		job := pods[i].Labels[jobset.JobIndexKey]
		if out[job] == nil {
			out[job] = sets.New[string]()
		}
		out[job].Insert(node.Labels[rackLabel])
	}
	return out
}

// behave tells the simulator how a running pod goes on.
func (tm team) behave(t *testing.T, pod *corev1.Pod, annotations map[string]string) {
	t.Helper()
	changed := pod.DeepCopy()
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	maps.Copy(changed.Annotations, annotations)
	if err := tm.client.Patch(t.Context(), changed, client.MergeFrom(pod)); err != nil {
		t.Fatal(err)
	}
}

// jobSetWaits waits until a JobSet is suspended and its Workload says why, and
// checks that it has no pods and no admission.
func (tm team) jobSetWaits(t *testing.T, name, class, part string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s to wait because of %s, %q", name, class, part), func(ctx context.Context) error {
		js := &jobset.JobSet{}
		if err := tm.client.Get(ctx, client.ObjectKey{Namespace: tm.namespace, Name: name}, js); err != nil || js.Spec.Suspend == nil || !*js.Spec.Suspend {
			return fmt.Errorf("it is not suspended (%v)", err)
		}
		wl, err := tm.workload(ctx, name)
		if err != nil || wl == nil || wl.Status.Admission != nil {
			return fmt.Errorf("it has no Workload, or is admitted (%v)", err)
		}
		c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != class || !strings.Contains(c.Message, part) {
			return fmt.Errorf("%s", tm.describe(ctx, name))
		}
		if pods, err := tm.pods(ctx, name); err != nil || len(pods) > 0 {
			return fmt.Errorf("it has %d pods (%v)", len(pods), err)
		}
		return nil
	})
}

// completes waits until a JobSet is complete and its Workload is finished.
func (tm team) completes(t *testing.T, name string) {
	t.Helper()
	eventually(t, name+" to be complete", func(ctx context.Context) error {
		js := &jobset.JobSet{}
		if err := tm.client.Get(ctx, client.ObjectKey{Namespace: tm.namespace, Name: name}, js); err != nil {
			return err
		}
		if !apimeta.IsStatusConditionTrue(js.Status.Conditions, string(jobset.JobSetCompleted)) {
			return fmt.Errorf("its conditions are %+v; %s", js.Status.Conditions, tm.describe(ctx, name))
		}
		wl, err := tm.workload(ctx, name)
		if err != nil || wl == nil || !apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished) {
			return fmt.Errorf("%s (%v)", tm.describe(ctx, name), err)
		}
		return nil
	})
}
