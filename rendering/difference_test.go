package rendering

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

func TestDifference(t *testing.T) {
	term := func(key string, more ...metav1.LabelSelectorRequirement) corev1.PodAffinityTerm {
		return corev1.PodAffinityTerm{
			TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}, MatchExpressions: more},
		}
	}
	near := func(terms ...corev1.PodAffinityTerm) *corev1.Affinity {
		return &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
	}
	apart := func(terms ...corev1.PodAffinityTerm) *corev1.Affinity {
		return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
	}
	nodes := func(terms ...corev1.NodeSelectorTerm) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
	}
	zoneA := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}}
	pinned := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"node-0"}}}}
	claim := func(name string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
	}
	for name, c := range map[string]struct {
		planned, real func(*corev1.Pod)
		want          []string
	}{
		"an equal pod": {},
		"a sidecar that requests something": {
			real: func(p *corev1.Pod) {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "proxy", Resources: corev1.ResourceRequirements{Requests: amountsOf("cpu", "500m", "memory", "1Gi")}})
			},
			want: []string{"request 500m more cpu and 1Gi more memory (injected: proxy)"},
		},
		"a sidecar that requests nothing": {
			real: func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "proxy"}) },
		},
		"overhead": {
			real: func(p *corev1.Pod) { p.Spec.Overhead = amountsOf("cpu", "1") },
			want: []string{"request 1 more cpu"},
		},
		"fewer requests": {
			planned: func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = amountsOf("cpu", "2") },
			real:    func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = amountsOf("cpu", "1") },
		},
		"another node selector": {
			planned: func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "a"} },
			real:    func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "b", "gpu": "h100"} },
			want:    []string{"select nodes with gpu=h100 and zone=b"},
		},
		"a node selector that is gone": {
			planned: func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "a"} },
		},
		"the node selector of JobSet's exclusive placement": {
			real: func(p *corev1.Pod) {
				p.Annotations = map[string]string{"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
				p.Spec.NodeSelector = map[string]string{"rack": "r1"}
			},
		},
		"the affinity of JobSet's exclusive placement, and a term of the pod's own": {
			real: func(p *corev1.Pod) {
				p.Annotations = map[string]string{"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
				jobs := term("rack", metav1.LabelSelectorRequirement{Key: "jobset.sigs.k8s.io/job-key", Operator: metav1.LabelSelectorOpExists})
				p.Spec.Affinity = near(jobs)
				p.Spec.Affinity.PodAntiAffinity = apart(jobs, term("rack")).PodAntiAffinity
			},
			want: []string{"must be apart from other pods by rack"},
		},
		"node affinity": {
			real: func(p *corev1.Pod) { p.Spec.Affinity = nodes(zoneA) },
			want: []string{"have another node affinity"},
		},
		"a pin to a node": {
			planned: func(p *corev1.Pod) { p.Spec.Affinity = nodes(zoneA) },
			real:    func(p *corev1.Pod) { p.Spec.Affinity = nodes(zoneA, pinned) },
		},
		"pod affinity": {
			planned: func(p *corev1.Pod) { p.Spec.Affinity = near(term("zone")) },
			real:    func(p *corev1.Pod) { p.Spec.Affinity = near(term("zone"), term("rack")) },
			want:    []string{"must be near other pods by rack"},
		},
		"affinity whose label keys the API server has resolved": {
			planned: func(p *corev1.Pod) {
				own := term("zone")
				own.MatchLabelKeys = []string{"job"}
				p.Spec.Affinity = near(own)
			},
			real: func(p *corev1.Pod) {
				own := term("zone", metav1.LabelSelectorRequirement{Key: "job", Operator: metav1.LabelSelectorOpIn, Values: []string{"7"}})
				own.MatchLabelKeys = []string{"job"}
				p.Spec.Affinity = near(own)
			},
		},
		"a spread that is required, and one that is not": {
			real: func(p *corev1.Pod) {
				p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
					{TopologyKey: "zone", MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule},
					{TopologyKey: "rack", MaxSkew: 1, WhenUnsatisfiable: corev1.ScheduleAnyway},
				}
			},
			want: []string{"must be spread by zone"},
		},
		"a toleration that is gone": {
			planned: func(p *corev1.Pod) {
				p.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Value: "a", Effect: corev1.TaintEffectNoSchedule}, {Key: "x", Operator: corev1.TolerationOpExists}}
			},
			real: func(p *corev1.Pod) {
				p.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
			},
			want: []string{"do not tolerate x"},
		},
		"default tolerations that a cluster does not add": {
			planned: func(p *corev1.Pod) {
				p.Spec.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}
			},
		},
		"more tolerations": {
			real: func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} },
		},
		"a host port": {
			planned: func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "a", HostPort: 80}} },
			real: func(p *corev1.Pod) {
				p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80, Protocol: corev1.ProtocolTCP}, {HostPort: 81}, {ContainerPort: 82}}
			},
			want: []string{"use host port 81/TCP"},
		},
		"a volume claim, and volumes that are anywhere": {
			planned: func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{claim("data")} },
			real: func(p *corev1.Pod) {
				p.Spec.Volumes = []corev1.Volume{claim("data"), claim("scratch"), {Name: "shm", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			},
			want: []string{"mount volume scratch"},
		},
		"a resource claim": {
			real: func(p *corev1.Pod) {
				p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("gpu-0")}}
			},
			want: []string{"ask for resource claim gpu"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := func(change func(*corev1.Pod)) *corev1.Pod {
				p := bare(namespace, template())
				if change != nil {
					change(p)
				}
				return p
			}
			if diff := cmp.Diff(c.want, Difference(&pod(c.planned).Spec, Asked(pod(c.real)))); diff != "" {
				t.Errorf("differences (-want +got):\n%s", diff)
			}
			real := pod(c.real)
			if left := Difference(Asked(real), Asked(real)); len(left) > 0 {
				t.Errorf("a pod that was planned with itself differs: %v", left)
			}
		})
	}
}

// However pods of one set differ in what they request, no pod differs any more
// once each has been seen.
func TestCoveredPodsDifferNoMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pod := rapid.Custom(func(t *rapid.T) *corev1.PodSpec {
			s := &template().Spec
			s.Containers[0].Resources.Requests = corev1.ResourceList{}
			for _, name := range []string{"cpu", "memory", "nvidia.com/gpu"} {
				if n := rapid.IntRange(0, 3).Draw(t, name); n > 0 {
					s.Containers[0].Resources.Requests[corev1.ResourceName(name)] = amountsOf(name, string(rune('0'+n)))[corev1.ResourceName(name)]
				}
			}
			return s
		})
		planned := pod.Draw(t, "template")
		pods := rapid.SliceOfN(pod, 1, 5).Draw(t, "pods")
		for range 2 {
			for _, p := range pods {
				if len(Difference(planned, p)) > 0 {
					next := p.DeepCopy()
					Cover(next, planned)
					planned = next
				}
			}
		}
		for _, p := range pods {
			if left := Difference(planned, p); len(left) > 0 {
				t.Fatalf("a pod still differs: they %v", left)
			}
		}
	})
}
