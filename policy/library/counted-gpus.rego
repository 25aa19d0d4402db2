# METADATA
# title: GPUs can be counted
# description: >-
#   An object whose pods, GPUs or images are not known, for want of a runtime or of a
#   template of claims, is checked by no other policy.
# custom:
#   level: off
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
package muster.counted_gpus

violation contains {"msg": msg, "details": {"key": "unknown"}} if {
	input.workload.unknown
	msg := sprintf("what it asks for is not known: %s", [input.workload.unknown])
}
