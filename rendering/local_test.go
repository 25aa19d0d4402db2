package rendering

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/api/reason"
)

func TestLocalRequests(t *testing.T) {
	vm := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "vm"}, Overhead: &nodev1.Overhead{PodFixed: amountsOf("cpu", "250m")}}
	for name, c := range map[string]struct {
		change func(*corev1.PodSpec)
		add    Additions
		want   corev1.ResourceList
	}{
		"without a LimitRange nothing is requested": {
			change: func(*corev1.PodSpec) {}, want: corev1.ResourceList{},
		},
		"a limit is requested": {
			change: func(s *corev1.PodSpec) {
				s.Containers[0].Resources.Limits = amountsOf("nvidia.com/gpu", "2", "cpu", "3")
			},
			want: amountsOf("nvidia.com/gpu", "2", "cpu", "3"),
		},
		"a LimitRange's default request is taken by every container": {
			change: func(s *corev1.PodSpec) { s.Containers = append(s.Containers, corev1.Container{Name: "log"}) },
			add:    Additions{LimitRanges: []corev1.LimitRange{limitRange("a", amountsOf("cpu", "2"), nil)}},
			want:   amountsOf("cpu", "4"),
		},
		"a limit of the template wins over a LimitRange's default request": {
			change: func(s *corev1.PodSpec) { s.Containers[0].Resources.Limits = amountsOf("cpu", "8") },
			add:    Additions{LimitRanges: []corev1.LimitRange{limitRange("a", amountsOf("cpu", "2"), nil)}},
			want:   amountsOf("cpu", "8"),
		},
		"the first of two LimitRanges wins": {
			change: func(*corev1.PodSpec) {},
			add: Additions{LimitRanges: []corev1.LimitRange{
				limitRange("a", amountsOf("cpu", "2"), nil), limitRange("b", amountsOf("cpu", "7", "memory", "1Gi"), nil),
			}},
			want: amountsOf("cpu", "2", "memory", "1Gi"),
		},
		"the overhead of a RuntimeClass is requested beside": {
			change: func(s *corev1.PodSpec) {
				s.RuntimeClassName = new("vm")
				s.Containers[0].Resources.Requests = amountsOf("cpu", "1")
			},
			add:  Additions{RuntimeClass: vm},
			want: amountsOf("cpu", "1250m"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod, err := Local(namespace, template(c.change), c.add)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, requests(&pod.Spec)); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLocalLeavesItsInputsAsTheyAre(t *testing.T) {
	in, ranges := template(), []corev1.LimitRange{limitRange("a", amountsOf("cpu", "2"), amountsOf("cpu", "4"))}
	class := &nodev1.RuntimeClass{Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"vm": "yes"}}, Overhead: &nodev1.Overhead{PodFixed: amountsOf("cpu", "1")}}
	pod, err := Local(namespace, in, Additions{LimitRanges: ranges, RuntimeClass: class})
	if err != nil {
		t.Fatal(err)
	}
	pod.Spec.NodeSelector["vm"], pod.Labels["app"] = "no", "other"
	pod.Spec.Overhead["cpu"] = amountsOf("cpu", "9")["cpu"]
	if diff := cmp.Diff(template(), in); diff != "" {
		t.Errorf("the template has changed (-want +got):\n%s", diff)
	}
	if cpu := class.Overhead.PodFixed["cpu"]; class.Scheduling.NodeSelector["vm"] != "yes" || cpu.String() != "1" {
		t.Errorf("the RuntimeClass has changed: %+v", class)
	}
}

func TestLocalPriority(t *testing.T) {
	for name, c := range map[string]struct {
		class *schedulingv1.PriorityClass
		want  int32
		never bool
	}{
		"no class is priority 0": {},
		"a class gives its value": {
			class: &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000}, want: 1000,
		},
		"a class may forbid preemption": {
			class: &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "meek"}, Value: 5, PreemptionPolicy: new(corev1.PreemptNever)}, want: 5, never: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod, err := Local(namespace, template(), Additions{PriorityClass: c.class})
			if err != nil {
				t.Fatal(err)
			}
			if *pod.Spec.Priority != c.want || (*pod.Spec.PreemptionPolicy == corev1.PreemptNever) != c.never {
				t.Errorf("priority %d, policy %s", *pod.Spec.Priority, *pod.Spec.PreemptionPolicy)
			}
		})
	}
}

func TestLocalNodes(t *testing.T) {
	vm := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "vm"}, Scheduling: &nodev1.Scheduling{
		NodeSelector: map[string]string{"vm": "yes"}, Tolerations: []corev1.Toleration{{Key: "vm", Operator: corev1.TolerationOpExists}},
	}}
	t.Run("a RuntimeClass adds its node selector and tolerations", func(t *testing.T) {
		pod, err := Local(namespace, template(func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"zone": "a"} }), Additions{RuntimeClass: vm})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{"zone": "a", "vm": "yes"}, pod.Spec.NodeSelector); diff != "" {
			t.Errorf("node selector (-want +got):\n%s", diff)
		}
		got := names(pod.Spec.Tolerations, func(t corev1.Toleration) string { return t.Key })
		if diff := cmp.Diff([]string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, "vm"}, got); diff != "" {
			t.Errorf("tolerations (-want +got):\n%s", diff)
		}
	})
	t.Run("a pod that selects what its RuntimeClass excludes is refused with a reason", func(t *testing.T) {
		_, err := Local(namespace, template(func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"vm": "no"} }), Additions{RuntimeClass: vm})
		var no *reason.Reason
		if !errors.As(err, &no) || no.Message != "RuntimeClass vm selects nodes with vm=yes, but the pods select vm=no" {
			t.Errorf("the answer is %v", err)
		}
	})
	t.Run("default tolerations are not added where a broader one is there", func(t *testing.T) {
		pod, err := Local(namespace, template(func(s *corev1.PodSpec) {
			s.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}), Additions{})
		if err != nil || len(pod.Spec.Tolerations) != 1 {
			t.Errorf("tolerations are %v (%v)", pod.Spec.Tolerations, err)
		}
	})
}
