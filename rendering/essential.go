package rendering

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// essential is a pod without what neither quota nor a scheduler reads, so that
// two renderings of a template are equal, and many are kept in little memory.
// The API server gives every pod a name, and a volume whose name is random.
func essential(pod *corev1.Pod) *corev1.Pod {
	pod.ObjectMeta = metav1.ObjectMeta{Namespace: pod.Namespace, Labels: pod.Labels, Annotations: pod.Annotations}
	pod.TypeMeta, pod.Status = metav1.TypeMeta{}, corev1.PodStatus{}
	s := &pod.Spec
	s.NodeName, s.SchedulingGates, s.EphemeralContainers = "", nil, nil
	s.Containers, s.InitContainers = sized(s.Containers), sized(s.InitContainers)
	var volumes []corev1.Volume
	for _, v := range s.Volumes {
		if v.Projected == nil && v.ConfigMap == nil && v.Secret == nil && v.DownwardAPI == nil && v.EmptyDir == nil {
			volumes = append(volumes, v)
		}
	}
	s.Volumes = volumes
	return pod
}

// sized are containers as a scheduler sees them.
func sized(containers []corev1.Container) []corev1.Container {
	var out []corev1.Container
	for _, c := range containers {
		out = append(out, corev1.Container{
			Name: c.Name, Image: c.Image, Ports: c.Ports, Resources: c.Resources, RestartPolicy: c.RestartPolicy,
		})
	}
	return out
}
