# METADATA
# title: Pods with GPUs do not choose their node
# description: >-
#   A pod that names its node passes quota, holds and taints by.
# custom:
#   level: deny
#   parameters:
#     exemptUsers: ['system:serviceaccount:kube-system:daemon-set-controller']
#   match:
#     kinds:
#       - apiGroups: [""]
#         kinds: [Pod]
#       - apiGroups: [batch]
#         kinds: [Job, CronJob]
#       - apiGroups: [apps]
#         kinds: [Deployment, StatefulSet]
#       - apiGroups: [jobset.x-k8s.io, trainer.kubeflow.org, kubeflow.org, ray.io, leaderworkerset.x-k8s.io]
#     operations: [CREATE]
package muster.node_name

violation contains {"msg": msg} if {
	some set in input.workload.podSets
	set.gpus > 0
	node := object.get(input.workload.specs[set.name], "nodeName", "")
	node != ""
	not input.request.userInfo.username in input.parameters.exemptUsers
	not kubelet
	msg := sprintf("the pods of %s ask for GPUs and name the node %s in spec.nodeName, which passes the scheduler by: use a nodeSelector", [set.name, node])
}

kubelet if "system:nodes" in input.request.userInfo.groups
