package facts

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-gpu/muster/workload"
)

// Group is a group of pods that start together, which the pods of a pod set name.
type Group struct {
	PodSet string `json:"podSet"`
	// API is the API group by which they name it.
	API  string `json:"api"`
	Name string `json:"name"`
	// Of is whose owners the group's are: its object's, as "PodGroup/x", or where only
	// labels make the group, those of its oldest pod that has not ended, as "Pod/x". It is
	// empty if the group has no pods yet, or an object that nobody owns.
	Of string `json:"of"`
	// UID is that object's, which may itself be the controller of the group's other pods.
	UID string `json:"uid"`
	// Owners are the controllers of that, the next one first; none for a pod of its own.
	Owners []Owner `json:"owners"`
}

// groups are those that the pods of the job name, each once for a pod set.
func (r *Reader) groups(ctx context.Context, w *Workload, namespace string, job *workload.Job) []Group {
	var out []Group
	for i := range job.PodSets {
		set := &job.PodSets[i]
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: set.Template.Labels, Annotations: set.Template.Annotations}, Spec: set.Template.Spec,
		}
		gvk, name := workload.GroupOf(pod)
		if name == "" {
			continue
		}
		group := Group{PodSet: set.Name, API: gvk.Group, Name: name, Owners: []Owner{}}
		if r.Around != nil {
			of, err := r.Around.Group(ctx, namespace, gvk, name)
			if err != nil {
				w.unsure("whose group %s is: %v", name, err)
			}
			if of != nil {
				group.Of, group.UID, group.Owners = of.Kind+"/"+of.Name, string(of.UID), r.owners(ctx, namespace, of)
			}
		}
		out = append(out, group)
	}
	return out
}
