package defaults

import (
	"fmt"
	pathpkg "path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-gpu/muster/api/v1alpha1"
)

const (
	shmPath   = "/dev/shm"
	shmVolume = "muster-shm"
)

// sharedMemory mounts a volume of memory in the containers that have nothing at
// /dev/shm, one volume in all of them. A pod that uses the node's IPC namespace has
// the node's.
func (s *stamper) sharedMemory(targets []*container) {
	want := s.by.Spec.Containers.SharedMemory
	if want == nil {
		return
	}
	const memory = "memory"
	var without []*container
	for _, c := range targets {
		have := ""
		switch mount := shmMount(c.Container); {
		case mount != nil && s.memory(mount.Name) != nil:
			have = memory
		case mount != nil:
			have = "volume " + mount.Name
		case s.pod.Spec.HostIPC:
			have = "the node's"
		}
		if s.decide(fmt.Sprintf("%s of container %s", shmPath, c.Name), memory, have, stateOf(have != "", false)) {
			without = append(without, c)
		}
	}
	if len(without) == 0 {
		return
	}
	volume := s.shmVolume(func() *resource.Quantity { return shmSize(want, without) })
	for _, c := range without {
		mount := corev1.VolumeMount{Name: volume, MountPath: shmPath}
		c.VolumeMounts = append(c.VolumeMounts, mount)
		s.doc.extend(c.at.to("volumeMounts"), mount)
	}
}

// shmMount is what the container mounts at /dev/shm, however the path is written.
func shmMount(c *corev1.Container) *corev1.VolumeMount {
	i := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return pathpkg.Clean(m.MountPath) == shmPath })
	if i < 0 {
		return nil
	}
	return &c.VolumeMounts[i]
}

// memory is the volume of that name if it is memory.
func (s *stamper) memory(name string) *corev1.Volume {
	for i := range s.pod.Spec.Volumes {
		v := &s.pod.Spec.Volumes[i]
		if v.Name == name && v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumMemory {
			return v
		}
	}
	return nil
}

// shmVolume is the name of the volume for /dev/shm, which is added if there is
// none. An author's own volume that has its name by chance is left alone.
func (s *stamper) shmVolume(size func() *resource.Quantity) string {
	name := shmVolume
	for n := 2; slices.ContainsFunc(s.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name }); n++ {
		if s.memory(name) != nil {
			return name
		}
		name = fmt.Sprintf("%s-%d", shmVolume, n)
	}
	v := corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
		Medium: corev1.StorageMediumMemory, SizeLimit: size(),
	}}}
	s.pod.Spec.Volumes = append(s.pod.Spec.Volumes, v)
	s.doc.extend(s.spec("volumes"), v)
	return name
}

// shmSize is the size of a volume that these containers mount; nil where nothing
// limits it but the pod's memory.
func shmSize(want *v1alpha1.SharedMemory, containers []*container) *resource.Quantity {
	var most int64
	for _, c := range containers {
		most = max(most, c.Resources.Limits.Memory().Value())
	}
	size := want.SizeLimit
	if want.MemoryPercent > 0 && most > 0 {
		percent := int64(want.MemoryPercent)
		part := resource.NewQuantity(most/100*percent+most%100*percent/100, resource.BinarySI)
		if size == nil || part.Cmp(*size) < 0 {
			size = part
		}
	}
	return size
}
