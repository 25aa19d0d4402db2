package workload

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// patchOwner keys Muster's entry in spec.runtimePatches.
const patchOwner = "muster.dev/scheduler"

// patchFor is the runtime patch that injects infos into the job's pods; nil if
// they have everything already.
func patchFor(t trainJob, js *jobset.JobSet, infos []PodSetInfo) (*runtimePatch, error) {
	jobs, taken, no := authored(js)
	if no != nil {
		return nil, no
	}
	for i := range jobs {
		// Muster's entry hides what earlier ones say about tolerations, so the
		// JobSet does not show a change that was made to them meanwhile.
		if len(taken[i].Tolerations) > 0 {
			spec := &jobs[i].Template.Spec.Template.Spec
			others, err := othersTolerations(t.patches(), jobs[i].Name)
			if err != nil {
				return nil, err
			}
			spec.Tolerations = union(spec.Tolerations, others)
		}
	}
	injections, err := injectionsFor(jobs, infos)
	if err != nil {
		return nil, err
	}
	patch := &runtimePatch{Manager: patchOwner}
	for i, in := range injections {
		if in.empty() {
			continue
		}
		template, err := in.patchOn(&jobs[i].Template.Spec.Template)
		if err != nil {
			return nil, err
		}
		patch.TrainingRuntimeSpec.Template.Spec.ReplicatedJobs = append(patch.TrainingRuntimeSpec.Template.Spec.ReplicatedJobs,
			replicatedJobPatch{Name: jobs[i].Name, Template: jobTemplatePatch{Spec: jobSpecPatch{Template: template}}})
	}
	if len(patch.TrainingRuntimeSpec.Template.Spec.ReplicatedJobs) == 0 {
		return nil, nil
	}
	return patch, nil
}

// patchOn is the injection as a patch on the author's template. Tolerations
// are replaced by a patch as a whole, so it carries the author's as well.
func (in *injection) patchOn(template *corev1.PodTemplateSpec) (podTemplatePatch, error) {
	noted := &corev1.PodTemplateSpec{}
	if err := in.inject(noted); err != nil {
		return podTemplatePatch{}, err
	}
	patch := podTemplatePatch{
		Metadata: podMetadata{Labels: noted.Labels, Annotations: noted.Annotations},
		Spec:     podSpecPatch{NodeSelector: noted.Spec.NodeSelector},
	}
	if len(in.Tolerations) > 0 {
		patch.Spec.Tolerations = union(template.Spec.Tolerations, in.Tolerations)
	}
	return patch, nil
}

// othersTolerations are the tolerations that the other entries give to the pods
// of a replicated job: those of the last one that speaks of any.
func othersTolerations(entries []any, name string) ([]corev1.Toleration, error) {
	var last []corev1.Toleration
	for _, entry := range entries {
		if patchManager(entry) == patchOwner {
			continue
		}
		p, err := readPatch(entry)
		if err != nil {
			return nil, err
		}
		for _, rj := range p.TrainingRuntimeSpec.Template.Spec.ReplicatedJobs {
			if tolerations := rj.Template.Spec.Template.Spec.Tolerations; rj.Name == name && len(tolerations) > 0 {
				last = tolerations
			}
		}
	}
	return last, nil
}

// ownPatch is Muster's entry and its place in the list; nil and -1 if it has
// none there.
func ownPatch(entries []any) (at int, patch *runtimePatch, err error) {
	at = slices.IndexFunc(entries, func(entry any) bool { return patchManager(entry) == patchOwner })
	if at < 0 {
		return at, nil, nil
	}
	patch, err = readPatch(entries[at])
	return at, patch, err
}

// upsert is the list of entries with Muster's patch in place of its earlier one
// at index at (-1 for none) and behind all others, because the tolerations of a
// later entry would replace it; or without it if there is nothing to inject.
//
// The entry carries its time. One without gets it from the Trainer's webhook,
// which then writes the whole job anew, a quantity 4 as "4": for the API server
// spec.trainer, which is immutable, has changed, and the job never starts.
func upsert(entries []any, at int, patch *runtimePatch) ([]any, error) {
	all := slices.Clone(entries)
	if at >= 0 {
		all = slices.Delete(all, at, at+1)
	}
	if patch == nil {
		return all, nil
	}
	entry, err := patch.toEntry()
	if err != nil {
		return nil, err
	}
	return append(all, entry), nil
}
