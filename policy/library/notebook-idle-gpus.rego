# METADATA
# title: No new notebooks beside idle GPUs
# description: >-
#   A namespace whose pods hold GPUs that they do not use gets no further notebook with
#   GPUs. What was seen too long ago does not count.
# custom:
#   level: warn
#   parameters:
#     idle: 2
#     maxAgeMinutes: 15
#   match:
#     kinds:
#       - apiGroups: [kubeflow.org]
#         kinds: [Notebook]
#     operations: [CREATE]
package muster.notebook_idle_gpus

violation contains {"msg": msg} if {
	input.workload.gpus > 0
	fresh
	idle := data.inventory.namespaces[input.workload.namespace].idleGPUs
	idle >= input.parameters.idle
	msg := sprintf("the pods of namespace %s leave %s idle: stop what does not use its GPUs first%s", [input.workload.namespace, gpus(idle), pods])
}

fresh if time.now_ns() - time.parse_rfc3339_ns(data.inventory.observedAt) < (input.parameters.maxAgeMinutes * 60) * 1000000000

default pods := ""

pods := sprintf(" (%s)", [concat(", ", sort(names))]) if {
	names := {holder.pod |
		some node in data.inventory.gpuNodes
		some holder in node.idle
		holder.namespace == input.workload.namespace
	}
	count(names) > 0
}

gpus(1) := "1 GPU"

gpus(n) := sprintf("%d GPUs", [n]) if n != 1
