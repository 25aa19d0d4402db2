package identity

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// The packages of these names are not linked with this one.
func TestNamesAreThoseOfTheirAPIs(t *testing.T) {
	for name, pair := range map[string][2]string{
		"a JobSet's UID":               {jobSetUID, jobset.JobSetUIDKey},
		"a replicated job's name":      {jobSetReplicated, jobset.ReplicatedJobNameKey},
		"a replicated job's number":    {jobSetJobIndex, jobset.JobIndexKey},
		"a Job's completion index":     {completionIndex, batchv1.JobCompletionIndexAnnotation},
		"a StatefulSet's pod's number": {statefulIndex, appsv1.PodIndexLabel},
		"Kubernetes' own PodGroup":     {NativePodGroupGVK.String(), schedulingv1beta1.SchemeGroupVersion.WithKind("PodGroup").String()},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %s, want %s", name, pair[0], pair[1])
		}
	}
}
