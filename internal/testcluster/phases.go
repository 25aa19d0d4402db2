package testcluster

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/constants"
)

// podName is the fixed name of a pod of a JobSet.
func podName(js *jobset.JobSet, replicated string, job, index int32) string {
	return fmt.Sprintf("%s-%s-%d-%d", js.Name, replicated, job, index)
}

// comes says whether the JobSet controller would make the pods of a replicated
// job now. There is no kubelet: a pod counts as ready when it is on a node.
// have are the pods by namespace and name.
func comes(js *jobset.JobSet, at int, have map[string]*corev1.Pod) bool {
	inOrder := js.Spec.StartupPolicy != nil && js.Spec.StartupPolicy.StartupPolicyOrder == jobset.InOrder
	for i := range js.Spec.ReplicatedJobs[:at] {
		earlier := &js.Spec.ReplicatedJobs[i]
		needs := inOrder
		complete := false
		for _, d := range js.Spec.ReplicatedJobs[at].DependsOn {
			if d.Name == earlier.Name {
				needs, complete = true, d.Status == jobset.DependencyComplete
			}
		}
		if !needs {
			continue
		}
		for job := range earlier.Replicas {
			for index := range parallelism(earlier) {
				pod := have[js.Namespace+"/"+podName(js, earlier.Name, job, index)]
				if pod == nil || pod.Spec.NodeName == "" || complete && pod.Status.Phase != corev1.PodSucceeded {
					return false
				}
			}
		}
	}
	return true
}

func parallelism(rj *jobset.ReplicatedJob) int32 {
	if p := rj.Template.Spec.Parallelism; p != nil {
		return *p
	}
	return 1
}

// exclude does with a pod what JobSet's pod webhooks do for exclusive topology;
// false where they refuse it.
func (j *JobSets) exclude(ctx context.Context, js *jobset.JobSet, pod *corev1.Pod, have map[string]*corev1.Pod) (bool, error) {
	topology, exclusive := js.Annotations[jobset.ExclusiveKey]
	if !exclusive {
		return true, nil
	}
	pod.Annotations = maps.Clone(pod.Annotations)
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[jobset.ExclusiveKey] = topology
	if pod.Labels[batchv1.JobCompletionIndexAnnotation] == "0" {
		key := pod.Labels[jobset.JobKey]
		term := func(requirements ...metav1.LabelSelectorRequirement) []corev1.PodAffinityTerm {
			return []corev1.PodAffinityTerm{{
				LabelSelector: &metav1.LabelSelector{MatchExpressions: requirements},
				TopologyKey:   topology, NamespaceSelector: &metav1.LabelSelector{},
			}}
		}
		pod.Spec.Affinity = &corev1.Affinity{
			PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term(
				metav1.LabelSelectorRequirement{Key: jobset.JobKey, Operator: metav1.LabelSelectorOpIn, Values: []string{key}})},
			PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term(
				metav1.LabelSelectorRequirement{Key: jobset.JobKey, Operator: metav1.LabelSelectorOpExists},
				metav1.LabelSelectorRequirement{Key: jobset.JobKey, Operator: metav1.LabelSelectorOpNotIn, Values: []string{key}},
				metav1.LabelSelectorRequirement{Key: constants.PriorityKey, Operator: metav1.LabelSelectorOpIn, Values: []string{"0"}})},
		}
		return true, nil
	}
	leader := have[pod.Namespace+"/"+js.Name+"-"+pod.Labels[jobset.ReplicatedJobNameKey]+"-"+pod.Labels[jobset.JobIndexKey]+"-0"]
	if leader == nil || leader.Spec.NodeName == "" {
		return false, nil
	}
	node := &corev1.Node{}
	if err := j.client.Get(ctx, client.ObjectKey{Name: leader.Spec.NodeName}, node); err != nil {
		return false, err
	}
	selector := map[string]string{topology: node.Labels[topology]}
	for k, v := range pod.Spec.NodeSelector {
		selector[k] = v
	}
	pod.Spec.NodeSelector = selector
	return true, nil
}

// jobKey is how JobSet names a Job in a label.
func jobKey(js *jobset.JobSet, replicated string, job int32) string {
	sum := sha1.Sum([]byte(fmt.Sprintf("%s/%s-%s-%d", js.Namespace, js.Name, replicated, job)))
	return hex.EncodeToString(sum[:])
}
