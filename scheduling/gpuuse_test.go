package scheduling

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/api/v1alpha1"
	"github.com/muster-gpu/muster/workload"
)

// gpusOfPod are as many devices as the pod asks for, of which the same is said.
func gpusOfPod(p *corev1.Pod, says v1alpha1.GPUHolder) []v1alpha1.GPUDevice {
	says.Namespace, says.Pod, says.PodUID = p.Namespace, p.Name, string(p.UID)
	var out []v1alpha1.GPUDevice
	for range workload.GPUs(p.Spec.Containers[0].Resources.Requests) {
		out = append(out, v1alpha1.GPUDevice{UUID: "GPU-of-" + p.Name, Holders: []v1alpha1.GPUHolder{says}})
	}
	return out
}

// hear has the agents of the pods' nodes say the same of all GPUs of these pods, now.
func (s *scene) hear(says v1alpha1.GPUHolder, pods ...*corev1.Pod) {
	devices := map[string][]v1alpha1.GPUDevice{}
	for _, p := range pods {
		devices[p.Spec.NodeName] = append(devices[p.Spec.NodeName], gpusOfPod(p, says)...)
	}
	for node, of := range devices {
		s.gpuNodes.set(gpuNodeOf(node, s.clock.Now(), of...))
	}
}

// idleSince is what is said of GPUs that can be taken away.
func idleSince(t time.Time) v1alpha1.GPUHolder {
	return v1alpha1.GPUHolder{Verdict: v1alpha1.GPUIdle, Since: metav1.NewTime(t), Reclaimable: true}
}

// idles has the pods of an admitted job come, and do nothing with their GPUs.
func (s *scene) idles(j *workload.Job) []*corev1.Pod {
	s.t.Helper()
	s.read(running(j), s.entry(j).workload, nil)
	bound := s.bindAll(pods(j, "node", j.Owner.Name)...)
	s.hear(idleSince(epoch0), bound...)
	return bound
}

func TestWhatAJobDoesWithItsGPUs(t *testing.T) {
	later := epoch0.Add(time.Minute)
	says := func(v v1alpha1.GPUVerdict, since time.Time) v1alpha1.GPUHolder {
		return v1alpha1.GPUHolder{Verdict: v, Since: metav1.NewTime(since), Reclaimable: v == v1alpha1.GPUIdle}
	}
	idle, active := says(v1alpha1.GPUIdle, epoch0), says(v1alpha1.GPUActive, epoch0)
	stalled, unknown := says(v1alpha1.GPUStalled, epoch0), says(v1alpha1.GPUUnknown, epoch0)
	shares := idle
	shares.Share = "4/8"
	tests := map[string]struct {
		// change is done when two pods of 4 GPUs are on node-0 and node-1.
		change func(s *scene, a, b *corev1.Pod)
		want   gpuUse
	}{
		"nothing is said": {change: func(*scene, *corev1.Pod, *corev1.Pod) {}, want: gpuUse{gpus: 8}},
		"all are idle, the last of them since later": {
			change: func(s *scene, a, b *corev1.Pod) { s.hear(idle, a); s.hear(says(v1alpha1.GPUIdle, later), b) },
			want:   gpuUse{state: gpusIdle, gpus: 8, since: later, reclaimable: true},
		},
		"some are in use, and of others nothing is said": {
			change: func(s *scene, a, _ *corev1.Pod) { s.hear(active, a) },
			want:   gpuUse{state: gpusInUse, gpus: 8, since: epoch0},
		},
		"of one node nothing is said": {
			change: func(s *scene, a, _ *corev1.Pod) { s.hear(idle, a) },
			want:   gpuUse{gpus: 8, since: epoch0},
		},
		"one node says that it does not know": {
			change: func(s *scene, a, b *corev1.Pod) { s.hear(idle, a); s.hear(unknown, b) },
			want:   gpuUse{gpus: 8, since: epoch0},
		},
		"one node has been silent for long": {
			change: func(s *scene, a, b *corev1.Pod) {
				s.hear(idle, a)
				s.clock.Step(4 * time.Minute)
				s.hear(idle, b)
			},
			want: gpuUse{gpus: 8, since: epoch0},
		},
		"a node knows of fewer GPUs than its pod has": {
			change: func(s *scene, a, b *corev1.Pod) {
				s.hear(idle, a)
				s.gpuNodes.set(gpuNodeOf(b.Spec.NodeName, s.clock.Now(), gpusOfPod(b, idle)[1:]...))
			},
			want: gpuUse{gpus: 8, since: epoch0},
		},
		"a pod of the same name held them before": {
			change: func(s *scene, a, b *corev1.Pod) {
				before := b.DeepCopy()
				before.UID = "before"
				s.hear(idle, a)
				s.hear(idle, before)
			},
			want: gpuUse{gpus: 8, since: epoch0},
		},
		"a pod has a half of what one GPU is shared out in": {
			change: func(s *scene, a, b *corev1.Pod) {
				s.hear(idle, a)
				s.gpuNodes.set(gpuNodeOf(b.Spec.NodeName, s.clock.Now(), gpusOfPod(b, shares)[:1]...))
			},
			want: gpuUse{state: gpusIdle, gpus: 8, since: epoch0, reclaimable: true},
		},
		"some are stalled, the others idle": {
			change: func(s *scene, a, b *corev1.Pod) { s.hear(idle, a); s.hear(stalled, b) },
			want:   gpuUse{state: gpusStalled, gpus: 8, stalled: 4, since: epoch0},
		},
		"some are idle for less long than one may take them away": {
			change: func(s *scene, a, b *corev1.Pod) {
				s.hear(idle, a)
				s.hear(v1alpha1.GPUHolder{Verdict: v1alpha1.GPUIdle, Since: metav1.NewTime(epoch0)}, b)
			},
			want: gpuUse{state: gpusIdle, gpus: 8, since: epoch0},
		},
		"a pod has gone": {
			change: func(s *scene, a, b *corev1.Pod) {
				s.hear(idle, a, b)
				s.gone(b)
			},
			want: gpuUse{gpus: 8, since: epoch0},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := testScene(t, 64, 4, 4)
			j := s.admitted(job("a", set("node", 0, 2, 4), set("launcher", 1, 1, 0)), []string{"node-0", "node-1"}, []string{"node-0"})
			bound := s.bindAll(pods(j, "node", "first")...)
			test.change(s, bound[0], bound[1])
			s.mu.Lock()
			defer s.mu.Unlock()
			got := s.useOf(s.jobs[j.Owner.UID], s.clock.Now())
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(gpuUse{})); diff != "" {
				t.Errorf("use (-want +got):\n%s", diff)
			}
		})
	}
}
