# METADATA
# title: Notebooks have few GPUs
# description: >-
#   A notebook holds its GPUs while nobody looks at it.
# custom:
#   level: warn
#   parameters:
#     max: 1
#   match:
#     kinds:
#       - apiGroups: [kubeflow.org]
#         kinds: [Notebook]
package muster.notebook_gpus

violation contains {"msg": msg, "details": {"key": "gpus", "value": input.workload.gpus}} if {
	input.workload.gpus > input.parameters.max
	msg := sprintf("the notebook asks for %s, and may have %d", [gpus(input.workload.gpus), input.parameters.max])
}

gpus(1) := "1 GPU"

gpus(n) := sprintf("%d GPUs", [n]) if n != 1
