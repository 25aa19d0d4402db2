package quota

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestEligibility(t *testing.T) {
	h100 := map[string]string{"nvidiaGPU": "h100"}
	taint := func(effect corev1.TaintEffect) []corev1.Taint {
		return []corev1.Taint{{Key: "spot", Value: "true", Effect: effect}}
	}
	exists := []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}}
	require := func(terms ...corev1.NodeSelectorTerm) *corev1.PodSpec {
		return &corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
		}}}
	}
	in := func(key string, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values},
		}}
	}
	const (
		noTaint    = "taint spot=true:NoSchedule of flavor f is not tolerated"
		noSelector = "node selector or affinity does not match flavor f"
	)
	tests := map[string]struct {
		spec   *corev1.PodSpec
		flavor flavor
		want   string
	}{
		"a pod without requirements may use any labelled flavor": {flavor: flavor{nodeLabels: h100}},
		"no template is a pod without requirements, but taints hold": {
			flavor: flavor{taints: taint(corev1.TaintEffectNoSchedule)}, want: noTaint,
		},
		"a NoSchedule taint must be tolerated": {
			spec: &corev1.PodSpec{}, flavor: flavor{taints: taint(corev1.TaintEffectNoSchedule)}, want: noTaint,
		},
		"a NoExecute taint must be tolerated": {
			spec: &corev1.PodSpec{}, flavor: flavor{taints: taint(corev1.TaintEffectNoExecute)},
			want: "taint spot=true:NoExecute of flavor f is not tolerated",
		},
		"a PreferNoSchedule taint need not be tolerated": {
			spec: &corev1.PodSpec{}, flavor: flavor{taints: taint(corev1.TaintEffectPreferNoSchedule)},
		},
		"the pod tolerates the taint": {
			spec: &corev1.PodSpec{Tolerations: exists}, flavor: flavor{taints: taint(corev1.TaintEffectNoSchedule)},
		},
		"the flavor brings the toleration of its own taint": {
			spec: &corev1.PodSpec{}, flavor: flavor{taints: taint(corev1.TaintEffectNoSchedule), tolerate: exists},
		},
		"a toleration of another taint does not help": {
			spec:   &corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "nvidiaGPU", Operator: corev1.TolerationOpExists}}},
			flavor: flavor{taints: taint(corev1.TaintEffectNoSchedule)}, want: noTaint,
		},
		"the node selector names the flavor's label": {
			spec: &corev1.PodSpec{NodeSelector: h100}, flavor: flavor{nodeLabels: h100},
		},
		"the node selector names another value": {
			spec: &corev1.PodSpec{NodeSelector: map[string]string{"nvidiaGPU": "a100"}}, flavor: flavor{nodeLabels: h100}, want: noSelector,
		},
		"a node selector on a key that the flavor lacks is placement's business": {
			spec: &corev1.PodSpec{NodeSelector: map[string]string{"zone": "z1"}}, flavor: flavor{nodeLabels: h100},
		},
		"required affinity accepts the label": {
			spec: require(in("nvidiaGPU", "h100", "a100")), flavor: flavor{nodeLabels: h100},
		},
		"required affinity refuses the label": {
			spec: require(in("nvidiaGPU", "a100")), flavor: flavor{nodeLabels: h100}, want: noSelector,
		},
		"one of two alternative terms accepts the label": {
			spec: require(in("nvidiaGPU", "a100"), in("nvidiaGPU", "h100")), flavor: flavor{nodeLabels: h100},
		},
		"a term on foreign keys accepts any flavor, for terms are alternatives": {
			spec: require(in("nvidiaGPU", "a100"), in("zone", "z1")), flavor: flavor{nodeLabels: h100},
		},
		"the node selector holds beside a term on foreign keys": {
			spec: func() *corev1.PodSpec {
				s := require(in("zone", "z1"))
				s.NodeSelector = map[string]string{"nvidiaGPU": "a100"}
				return s
			}(),
			flavor: flavor{nodeLabels: h100}, want: noSelector,
		},
		"an unlabelled flavor asks nothing of the selector": {
			spec: &corev1.PodSpec{NodeSelector: h100},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.flavor.name = "f"
			if diff := cmp.Diff(tc.want, ineligible(tc.spec, &tc.flavor)); diff != "" {
				t.Errorf("why not (-want +got):\n%s", diff)
			}
		})
	}
}
