package defaults

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Restore puts back into the pod templates of a JobSet what an update takes out of
// those of the old one, as far as a suspended JobSet may change it: whoever applies
// a list of tolerations replaces the whole list, and the Trainer does so each time.
// Templates are matched by the names of their replicated jobs. It adds nothing that
// was not added when the JobSet was created.
func (d *Document) Restore(old *Document) error {
	before, err := old.Templates()
	if err != nil {
		return err
	}
	after, err := d.Templates()
	if err != nil {
		return err
	}
	was := map[any]*corev1.PodTemplateSpec{}
	for _, t := range before {
		was[old.job(t)] = t.Pod
	}
	for _, t := range after {
		pod := was[d.job(t)]
		if pod == nil {
			continue
		}
		r := recorded(pod)
		if len(r.Applied) == 0 {
			continue
		}
		var missing []any
		for i := range r.Tolerations {
			if !slices.ContainsFunc(t.Pod.Spec.Tolerations, func(have corev1.Toleration) bool { return covers(&have, &r.Tolerations[i]) }) {
				missing = append(missing, r.Tolerations[i])
			}
		}
		d.extend(t.at.to("spec", "tolerations"), missing...)
		d.putBack(t, "labels", t.Pod.Labels, r.Labels)
		d.putBack(t, "annotations", t.Pod.Annotations, joined(r.Annotations, map[string]string{Annotation: pod.Annotations[Annotation]}))
	}
	return nil
}

// job is the name of the replicated job whose template it is.
func (d *Document) job(t Template) any {
	name, _ := d.get(t.at[:3].to("name"))
	return name
}

func (d *Document) putBack(t Template, field string, have, want map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if _, found := have[key]; !found {
			d.set(t.at.to("metadata", field, key), want[key])
		}
	}
}
