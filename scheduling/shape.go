package scheduling

import (
	"crypto/sha256"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-gpu/muster/workload"
)

// shape stands for all that quota and placement look at in a job, so that what
// is refused to one job is refused to all of its shape in the same queue. The
// zero shape is that of no job.
type shape [sha256.Size / 2]byte

// shapeOf hashes the pod sets of a job, and how long it may run. What only the kubelet reads is left
// out, because it tends to be different in every job: commands, environment,
// images, configuration that is mounted. So are annotations; those that
// matter are in the topology request. And so are the labels that are different
// in every batch Job.
func shapeOf(job *workload.Job) shape {
	type podSet struct {
		Name     string
		Count    int32
		Least    int32
		Topology any
		Charge   corev1.ResourceList
		Shared   corev1.ResourceList
		Labels   map[string]string
		Spec     corev1.PodSpec
		Written  written
		Deadline *int64
	}
	sets := make([]podSet, len(job.PodSets))
	for i := range job.PodSets {
		ps := &job.PodSets[i]
		t := ps.PlacedTemplate()
		sets[i] = podSet{Name: ps.Name, Count: ps.Count, Least: ps.MinCount, Topology: ps.Topology, Charge: ps.PerPod(), Shared: ps.Claimed.Shared, Labels: sharedLabels(t.Labels), Spec: t.Spec, Written: writtenOn(job, ps), Deadline: ps.Deadline}
		s := &sets[i].Spec
		s.Containers, s.InitContainers = scheduled(s.Containers), scheduled(s.InitContainers)
		s.EphemeralContainers = nil
		s.Volumes = scheduledVolumes(s.Volumes)
		s.PriorityClassName, s.Priority = "", nil
		s.ServiceAccountName, s.DeprecatedServiceAccount, s.ImagePullSecrets = "", "", nil
		s.Hostname, s.Subdomain, s.DNSConfig, s.HostAliases = "", "", nil, nil
	}
	// How long a job runs decides whether it may pass one for which nodes are
	// reserved.
	data, err := json.Marshal(struct {
		Sets        []podSet
		MaxExecTime *string
		TimeLimit   *int64
	}{sets, job.MaxExecTime, job.TimeLimit})
	if err != nil {
		// Pod templates were decoded from JSON. Should one not go back, its job
		// is only like itself.
		data = []byte(job.Owner.UID)
	}
	sum := sha256.Sum256(data)
	return shape(sum[:len(shape{})])
}

// sharedLabels are the labels that jobs may have in common.
func sharedLabels(labels map[string]string) map[string]string {
	shared := maps.Clone(labels)
	maps.DeleteFunc(shared, func(key, _ string) bool { return workload.IsJobTracking(key) })
	return shared
}

func scheduled(containers []corev1.Container) []corev1.Container {
	out := make([]corev1.Container, len(containers))
	for i, c := range containers {
		c.Name, c.Image, c.ImagePullPolicy = "", "", ""
		c.Command, c.Args, c.WorkingDir = nil, nil, ""
		c.Env, c.EnvFrom = nil, nil
		c.VolumeMounts, c.VolumeDevices = nil, nil
		c.LivenessProbe, c.ReadinessProbe, c.StartupProbe, c.Lifecycle = nil, nil, nil, nil
		c.TerminationMessagePath, c.TerminationMessagePolicy = "", ""
		out[i] = c
	}
	return out
}

// scheduledVolumes are the volumes that can tie a pod to nodes.
func scheduledVolumes(volumes []corev1.Volume) []corev1.Volume {
	var out []corev1.Volume
	for _, v := range volumes {
		if v.ConfigMap == nil && v.Secret == nil && v.EmptyDir == nil && v.DownwardAPI == nil && v.Projected == nil {
			out = append(out, v)
		}
	}
	return out
}

// needsClaims says that volumes or devices which come, or are bound, may let the
// job start: its pods claim some.
func needsClaims(job *workload.Job) bool {
	for i := range job.PodSets {
		t := job.PodSets[i].PlacedTemplate()
		claims := func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil }
		if len(t.Spec.ResourceClaims) > 0 || slices.ContainsFunc(t.Spec.Volumes, claims) {
			return true
		}
	}
	return false
}

// extendedOf are the resources that pods of the job ask for and behind which there may
// be devices, now or when there is a class for them.
func extendedOf(job *workload.Job) []corev1.ResourceName {
	var out []corev1.ResourceName
	for i := range job.PodSets {
		t := job.PodSets[i].PlacedTemplate()
		for name, quantity := range workload.Requests(&t) {
			if strings.Contains(string(name), "/") && !quantity.IsZero() && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// needsOthers says that pods which come to their nodes may let the job start: it
// must be near others, or spread evenly among them.
func needsOthers(job *workload.Job) bool {
	for i := range job.PodSets {
		t := job.PodSets[i].PlacedTemplate()
		s := &t.Spec
		if s.Affinity != nil && s.Affinity.PodAffinity != nil && len(s.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
			return true
		}
		for _, c := range s.TopologySpreadConstraints {
			if c.WhenUnsatisfiable == corev1.DoNotSchedule {
				return true
			}
		}
	}
	return false
}
