# METADATA
# title: The pods of a group have one owner
# description: >-
#   A pod that names the group of another owner's pods takes the place of one of them, or
#   keeps them from starting. Pods belong together that have a controller in common, or of
#   which one is the controller of the others, or that all have none. A PodGroup that no
#   controller has is for whoever names it.
# custom:
#   level: deny
#   parameters: {}
#   match:
#     kinds:
#       - apiGroups: [""]
#         kinds: [Pod]
#       - apiGroups: [batch]
#         kinds: [Job, CronJob]
#       - apiGroups: [apps]
#         kinds: [Deployment, StatefulSet]
#       - apiGroups: [jobset.x-k8s.io, trainer.kubeflow.org, kubeflow.org, ray.io, leaderworkerset.x-k8s.io]
package muster.pod_groups

violation contains {"msg": msg, "details": {"key": concat("/", [group.api, group.name])}} if {
	some group in input.workload.groups
	group.of != ""
	not together(group)
	msg := sprintf(
		"the pods of %s name the group %s, which belongs to %s by %s: the pods of a group have one owner, so name another group",
		[group.podSet, group.name, owner(group), group.of],
	)
}

# A job is among the owners of its own pods, and a driver that is a pod among those of its
# workers.
together(group) if {
	some uid in ({owner.uid | some owner in group.owners} | {group.uid})
	uid != ""
	uid in (mine | {object.get(input.request.object.metadata, "uid", "")})
}

together(group) if {
	count(group.owners) == 0
	count(mine) == 0
	input.workload.kind == "Pod"
}

# The API server has not told all owners: that is no reason to keep a job's own pods out.
together(group) if {
	some owner in array.concat(input.workload.owners, group.owners)
	owner.unread
}

mine := {owner.uid | some owner in input.workload.owners}

owner(group) := "no controller" if count(group.owners) == 0

owner(group) := sprintf("%s %s", [top.kind, top.name]) if {
	top := group.owners[count(group.owners) - 1]
}
