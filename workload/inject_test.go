package workload

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

// TestRestoreIsTheInverseOfInject: whatever a template has and whatever is
// injected, taking it out gives the author's template back.
func TestRestoreIsTheInverseOfInject(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		pairs := rapid.MapOfN(words, rapid.SampledFrom([]string{"1", "2"}), 0, 4)
		toleration := rapid.Custom(func(t *rapid.T) corev1.Toleration {
			tol := corev1.Toleration{Key: words.Draw(t, "key"), Operator: corev1.TolerationOpExists}
			if rapid.Bool().Draw(t, "timed") {
				tol.TolerationSeconds = new(rapid.Int64Range(0, 2).Draw(t, "seconds"))
			}
			return tol
		})
		var template corev1.PodTemplateSpec
		template.Labels = pairs.Draw(t, "labels")
		template.Annotations = pairs.Draw(t, "annotations")
		template.Spec.NodeSelector = pairs.Draw(t, "selector")
		template.Spec.Tolerations = rapid.SliceOfN(toleration, 0, 5).Draw(t, "tolerations")
		author := template.DeepCopy()
		info := PodSetInfo{
			NodeSelector: pairs.Draw(t, "its selector"),
			Labels:       pairs.Draw(t, "its labels"),
			Annotations:  pairs.Draw(t, "its annotations"),
			Tolerations:  rapid.SliceOfN(toleration, 0, 5).Draw(t, "its tolerations"),
		}
		in, err := injectionOf(&info, &template)
		if err != nil {
			t.Skip("the infos contradict the template")
		}
		if err := in.inject(&template); err != nil {
			t.Fatal(err)
		}
		for _, tol := range info.Tolerations {
			if !hasToleration(template.Spec.Tolerations, tol) {
				t.Fatalf("toleration %v is missing", tol)
			}
		}
		for key, value := range info.NodeSelector {
			if template.Spec.NodeSelector[key] != value {
				t.Fatalf("node selector %s=%s is missing", key, value)
			}
		}
		if _, err := restore(&template); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(author, &template, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("restored (-author +got):\n%s", diff)
		}
	})
}
