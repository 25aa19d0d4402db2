# METADATA
# title: Jobs that may be preempted write checkpoints
# description: >-
#   In a queue whose jobs may be stopped for others, a job names where its checkpoints go
#   (a variable of its containers or an annotation), not in a volume that goes with the
#   pod, and has time to write one.
# custom:
#   level: warn
#   parameters:
#     env: [CHECKPOINT_DIR, CHECKPOINT_URI, CHECKPOINT_PATH]
#     annotations: [muster.dev/checkpoint]
#     minGraceSeconds: 60
#   match:
#     kinds:
#       - apiGroups: [""]
#         kinds: [Pod]
#       - apiGroups: [batch]
#         kinds: [Job, CronJob]
#       - apiGroups: [apps]
#         kinds: [Deployment, StatefulSet]
#       - apiGroups: [jobset.x-k8s.io, trainer.kubeflow.org, kubeflow.org, ray.io, leaderworkerset.x-k8s.io]
package muster.checkpoints

violation contains {"msg": msg, "details": {"key": "checkpoint"}} if {
	preemptible
	not named
	not annotated
	msg := sprintf(
		"queue %s may stop its jobs for others, and the job does not say where its checkpoints go: set one of the variables %s, to no volume that goes with the pod, or one of the annotations %s",
		[input.workload.queue, concat(", ", input.parameters.env), concat(", ", input.parameters.annotations)],
	)
}

violation contains {"msg": msg, "details": {"key": concat("/", ["grace", set.name])}} if {
	preemptible
	some set in input.workload.podSets
	set.gpus > 0
	grace := object.get(input.workload.specs[set.name], "terminationGracePeriodSeconds", 30)
	grace < input.parameters.minGraceSeconds
	msg := sprintf(
		"queue %s may stop its jobs for others, and the pods of %s have %d s to write a checkpoint: set terminationGracePeriodSeconds to %d or more",
		[input.workload.queue, set.name, grace, input.parameters.minGraceSeconds],
	)
}

preemptible if {
	input.workload.gpus > 0
	data.inventory.queues[input.workload.namespace][input.workload.queue].preemptible
}

named if {
	some container in input.workload.containers
	some name in input.parameters.env
	value := container.env[name]
	value != ""
	not lost(container, value)
}

lost(container, directory) if {
	some path in container.scratch
	below(directory, path)
}

below(directory, path) if directory == path

below(directory, path) if startswith(directory, concat("", [trim_suffix(path, "/"), "/"]))

annotated if {
	some key in input.parameters.annotations
	input.request.object.metadata.annotations[key]
}
