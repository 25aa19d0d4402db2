package workload

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/muster-gpu/muster/api/reason"
)

// readSet is a pod set of a JobSet, as it is read.
func readSet(t *testing.T, js *jobset.JobSet, name string) *PodSet {
	t.Helper()
	job, managed, no, err := kindNamed(t, "JobSet").Read(t.Context(), fakeClient(t), js)
	if err != nil || !managed || no != nil {
		t.Fatalf("Read: managed %v, no %v, err %v", managed, no, err)
	}
	return job.PodSet(name)
}

func group(name string) func(*jobset.ReplicatedJob) {
	return func(rj *jobset.ReplicatedJob) { rj.GroupName = name }
}

func nonIndexed(rj *jobset.ReplicatedJob) {
	rj.Template.Spec.CompletionMode = new(batchv1.NonIndexedCompletion)
}

func jobAnnotation(key, value string) func(*jobset.ReplicatedJob) {
	return func(rj *jobset.ReplicatedJob) {
		rj.Template.Annotations = joined(rj.Template.Annotations, map[string]string{key: value})
	}
}

func annotated(pairs ...string) func(*jobset.JobSet) {
	return func(js *jobset.JobSet) {
		js.Annotations = map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			js.Annotations[pairs[i]] = pairs[i+1]
		}
	}
}

func TestLabelsOf(t *testing.T) {
	coordinated := func(js *jobset.JobSet) {
		js.Spec.Coordinator = &jobset.Coordinator{ReplicatedJob: "driver", JobIndex: 0, PodIndex: 1}
		js.Status.Restarts = 2
	}
	js := newJobSet(coordinated,
		replicated("driver", 1, 2, group("default")), replicated("prep", 3, 1, group("cpu")), replicated("node", 2, 4, group("default")),
		replicated("heap", 1, 4, group("default"), nonIndexed))
	const prefix = "jobset.sigs.k8s.io/"
	shared := map[string]string{
		prefix + "jobset-name": "train", prefix + "jobset-uid": "js-1", prefix + "restart-attempt": "2", prefix + "global-replicas": "7",
		prefix + "group-name": "default", prefix + "group-replicas": "4", prefix + "coordinator": "train-driver-0-1.train",
	}
	for name, tc := range map[string]struct {
		slot Slot
		want map[string]string
	}{
		"a pod of the second of two Jobs": {Slot{PodSet: "node", Replica: 1, Completion: 3}, map[string]string{
			prefix + "replicatedjob-name": "node", prefix + "replicatedjob-replicas": "2",
			prefix + "job-index": "1", prefix + "job-global-index": "5", prefix + "job-group-index": "2",
			// The SHA-1 of team-nlp/train-node-1.
			prefix + "job-key":             "7b41b5451cffecefffbd9d5f5d092b26dae3b77f",
			"batch.kubernetes.io/job-name": "train-node-1", "job-name": "train-node-1", "batch.kubernetes.io/job-completion-index": "3",
		}},
		"a pod that its Job does not number": {Slot{PodSet: "heap", Replica: 0, Completion: 0}, map[string]string{
			prefix + "replicatedjob-name": "heap", prefix + "replicatedjob-replicas": "1",
			prefix + "job-index": "0", prefix + "job-global-index": "6", prefix + "job-group-index": "3",
			prefix + "job-key":             "209d442890d627bad537c4bcb48cd909bd7e63c2",
			"batch.kubernetes.io/job-name": "train-heap-0", "job-name": "train-heap-0",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			want := maps.Clone(shared)
			maps.Copy(want, tc.want)
			if diff := cmp.Diff(want, readSet(t, js, tc.slot.PodSet).LabelsOf(tc.slot)); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("the coordinator is under the JobSet's own subdomain", func(t *testing.T) {
		js := js.DeepCopy()
		js.Spec.Network = &jobset.Network{Subdomain: "nodes"}
		if got := readSet(t, js, "node").LabelsOf(Slot{})[prefix+"coordinator"]; got != "train-driver-0-1.nodes" {
			t.Errorf("it is %s", got)
		}
	})
	t.Run("what differs between pods is known by its name", func(t *testing.T) {
		set := readSet(t, js, "node")
		first, sibling, other := set.LabelsOf(Slot{PodSet: "node", Replica: 0, Completion: 0}), set.LabelsOf(Slot{PodSet: "node", Replica: 0, Completion: 1}), set.LabelsOf(Slot{PodSet: "node", Replica: 1, Completion: 0})
		for label, value := range first {
			if got := DiffersByPod(label); got != (sibling[label] != value) {
				t.Errorf("DiffersByPod(%s) = %v", label, got)
			}
			if got := DiffersByReplica(label); got != (other[label] != value) {
				t.Errorf("DiffersByReplica(%s) = %v", label, got)
			}
		}
	})
	t.Run("a set on which no controller writes has none", func(t *testing.T) {
		if got := (&PodSet{Name: "node", Count: 2, PodsPerReplica: 1}).LabelsOf(Slot{PodSet: "node", Replica: 1, Completion: 0}); len(got) > 0 {
			t.Errorf("labels are %v", got)
		}
	})
}

func TestExclusiveTopologyIsReadFromWhereJobSetReadsIt(t *testing.T) {
	for name, tc := range map[string]struct {
		js   *jobset.JobSet
		want Exclusive
	}{
		"none": {newJobSet(nil, replicated("node", 2, 2)), Exclusive{}},
		"of the JobSet, for all its replicated jobs": {
			newJobSet(annotated(jobset.ExclusiveKey, "rack"), replicated("node", 2, 2)), Exclusive{TopologyKey: "rack"}},
		"of one replicated job": {
			newJobSet(nil, replicated("driver", 1, 1), replicated("node", 2, 2, jobAnnotation(jobset.ExclusiveKey, "rack"))), Exclusive{TopologyKey: "rack"}},
		"of another replicated job": {
			newJobSet(nil, replicated("driver", 1, 1, jobAnnotation(jobset.ExclusiveKey, "rack")), replicated("node", 2, 2)), Exclusive{}},
		"the replicated job's own goes before the JobSet's": {
			newJobSet(annotated(jobset.ExclusiveKey, "zone"), replicated("node", 2, 2, jobAnnotation(jobset.ExclusiveKey, "rack"))), Exclusive{TopologyKey: "rack"}},
		"of the pod template, which JobSet's webhook reads too": {
			newJobSet(nil, replicated("node", 2, 2, podAnnotation(jobset.ExclusiveKey, "rack"))), Exclusive{TopologyKey: "rack"}},
		"with nodes that are labelled in advance": {
			newJobSet(annotated(jobset.ExclusiveKey, "rack", jobset.NodeSelectorStrategyKey, "true"), replicated("node", 2, 2)),
			Exclusive{TopologyKey: "rack", ByNodeSelector: true}},
		"labelled nodes alone make nothing exclusive": {
			newJobSet(annotated(jobset.NodeSelectorStrategyKey, "true"), replicated("node", 2, 2)), Exclusive{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, readSet(t, tc.js, "node").Exclusive); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for name, tc := range map[string]struct {
		js   *jobset.JobSet
		want string
	}{
		"no label is named": {newJobSet(annotated(jobset.ExclusiveKey, ""), replicated("node", 2, 2)),
			`replicated job "node" has the annotation alpha.jobset.sigs.k8s.io/exclusive-topology without the node label that it should name`},
		"no pod leads the others": {newJobSet(annotated(jobset.ExclusiveKey, "rack"), replicated("node", 2, 2, nonIndexed)),
			`replicated job "node" has the annotation alpha.jobset.sigs.k8s.io/exclusive-topology, which needs completionMode Indexed: else no pod leads the others`},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, no, err := kindNamed(t, "JobSet").Read(t.Context(), fakeClient(t), tc.js)
			if diff := cmp.Diff(&reason.Reason{Class: reason.Misconfigured, Message: tc.want}, no); diff != "" || err != nil {
				t.Errorf("reason (-want +got, err %v):\n%s", err, diff)
			}
		})
	}
}

func TestFollows(t *testing.T) {
	for name, tc := range map[string]struct {
		exclusive Exclusive
		want      []bool
	}{
		"the first pod of each replica leads": {Exclusive{TopologyKey: "rack"}, []bool{false, true, false, true}},
		"nobody leads on labelled nodes":      {Exclusive{TopologyKey: "rack", ByNodeSelector: true}, []bool{false, false, false, false}},
		"nobody leads elsewhere":              {Exclusive{}, []bool{false, false, false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			set := &PodSet{Count: 4, PodsPerReplica: 2, Exclusive: tc.exclusive}
			var got []bool
			for i := range set.Count {
				got = append(got, set.Follows(i))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestStamped(t *testing.T) {
	near := func(key string) *corev1.Affinity {
		return &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}},
			MatchLabelKeys: []string{key}, MismatchLabelKeys: []string{"none", jobset.JobKey},
		}}}}
	}
	exclusive := func(js *jobset.JobSet) { js.Annotations = map[string]string{jobset.ExclusiveKey: "rack"} }
	in := func(key string, op metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: key, Operator: op, Values: values}
	}
	// The SHA-1 of team-nlp/train-node-1.
	const key = "7b41b5451cffecefffbd9d5f5d092b26dae3b77f"
	for name, tc := range map[string]struct {
		js   *jobset.JobSet
		pod  corev1.Pod
		want func(*corev1.Pod)
	}{
		"labels of the template stay, and those of the controllers win": {
			newJobSet(nil, replicated("node", 2, 2)),
			corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x", jobset.JobIndexKey: "7"}}},
			func(p *corev1.Pod) { p.Labels["app"] = "x"; p.Labels["jobset.sigs.k8s.io/priority"] = "0" }},
		"the priority is written down": {
			newJobSet(nil, replicated("node", 2, 2)), corev1.Pod{Spec: corev1.PodSpec{Priority: new(int32(1000)), PriorityClassName: "high"}},
			func(p *corev1.Pod) { p.Labels["jobset.sigs.k8s.io/priority"] = "1000" }},
		"a priority that is not known is not": {
			newJobSet(nil, replicated("node", 2, 2)), corev1.Pod{Spec: corev1.PodSpec{PriorityClassName: "high"}}, func(*corev1.Pod) {}},
		"label keys get their values": {
			newJobSet(nil, replicated("node", 2, 2)),
			corev1.Pod{Spec: corev1.PodSpec{Affinity: near(jobset.JobIndexKey), TopologySpreadConstraints: []corev1.TopologySpreadConstraint{
				{TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{}, MatchLabelKeys: []string{jobset.JobSetNameKey}},
				{TopologyKey: "zone", MatchLabelKeys: []string{jobset.JobSetNameKey}},
			}}},
			func(p *corev1.Pod) {
				p.Labels["jobset.sigs.k8s.io/priority"] = "0"
				p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector.MatchExpressions = []metav1.LabelSelectorRequirement{
					in(jobset.JobIndexKey, metav1.LabelSelectorOpIn, "1"), in(jobset.JobKey, metav1.LabelSelectorOpNotIn, key)}
				p.Spec.TopologySpreadConstraints[0].LabelSelector.MatchExpressions = []metav1.LabelSelectorRequirement{
					in(jobset.JobSetNameKey, metav1.LabelSelectorOpIn, "train")}
			}},
		"exclusive pods are near their own Job and away from others of their priority": {
			newJobSet(exclusive, replicated("node", 2, 2)), corev1.Pod{},
			func(p *corev1.Pod) {
				p.Labels["jobset.sigs.k8s.io/priority"] = "0"
				term := func(of ...metav1.LabelSelectorRequirement) []corev1.PodAffinityTerm {
					return []corev1.PodAffinityTerm{{TopologyKey: "rack", NamespaceSelector: &metav1.LabelSelector{}, LabelSelector: &metav1.LabelSelector{MatchExpressions: of}}}
				}
				p.Spec.Affinity = &corev1.Affinity{
					PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term(in(jobset.JobKey, metav1.LabelSelectorOpIn, key))},
					PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term(
						in(jobset.JobKey, metav1.LabelSelectorOpExists), in(jobset.JobKey, metav1.LabelSelectorOpNotIn, key),
						in("jobset.sigs.k8s.io/priority", metav1.LabelSelectorOpIn, "0"))},
				}
			}},
		"with labelled nodes they select them, and no priority is written": {
			newJobSet(annotated(jobset.ExclusiveKey, "rack", jobset.NodeSelectorStrategyKey, "true"), replicated("node", 2, 2)),
			corev1.Pod{Spec: corev1.PodSpec{NodeSelector: map[string]string{"model": "h200"}}},
			func(p *corev1.Pod) {
				p.Spec.NodeSelector["alpha.jobset.sigs.k8s.io/namespaced-job"] = "team-nlp_train-node-1"
				p.Spec.Tolerations = []corev1.Toleration{{Key: "alpha.jobset.sigs.k8s.io/no-schedule", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			set := readSet(t, tc.js, "node")
			slot := Slot{PodSet: "node", Replica: 1, Completion: 0}
			want := tc.pod.DeepCopy()
			before := tc.pod.DeepCopy()
			want.Labels = set.LabelsOf(slot)
			tc.want(want)
			if diff := cmp.Diff(want, set.Stamped(&tc.pod, slot)); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, &tc.pod); diff != "" {
				t.Errorf("the prototype has changed (-before +after):\n%s", diff)
			}
		})
	}
}
