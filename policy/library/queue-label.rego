# METADATA
# title: GPU workloads name a queue
# description: >-
#   What asks for GPUs without a queue is charged to nobody. A LocalQueue named default
#   in the namespace names itself.
# custom:
#   level: warn
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
package muster.queue_label

violation contains {"msg": msg, "details": {"key": "queue"}} if {
	input.workload.gpus > 0
	input.workload.queue == ""
	not owned
	msg := sprintf(
		"%s %s asks for %s and names no queue: set the label kueue.x-k8s.io/queue-name%s",
		[input.workload.kind, input.workload.name, gpus(input.workload.gpus), queues],
	)
}

# A part of another object is in the queue of that. An owner that does not exist is
# one that somebody made up, and one that could not be read is not.
owned if {
	some owner in input.workload.owners
	some field in ["exists", "unread"]
	owner[field]
}

default queues := ""

queues := sprintf(" to one of %s", [concat(", ", sort(names))]) if {
	names := [name | some name, _ in data.inventory.queues[input.workload.namespace]]
	count(names) > 0
}

gpus(1) := "1 GPU"

gpus(n) := sprintf("%d GPUs", [n]) if n != 1
