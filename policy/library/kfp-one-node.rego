# METADATA
# title: A step of a pipeline fits one node
# description: >-
#   A step of Kubeflow Pipelines is one pod, which no node takes if it asks for more GPUs
#   than the largest has.
# custom:
#   level: deny
#   parameters:
#     labels: ["pipeline/runid", "workflows.argoproj.io/workflow"]
#   match:
#     kinds:
#       - apiGroups: [""]
#         kinds: [Pod]
package muster.kfp_one_node

violation contains {"msg": msg, "details": {"key": "gpus", "value": input.workload.gpusPerPod}} if {
	some label in input.parameters.labels
	input.request.object.metadata.labels[label]
	largest := max([node.gpus | some node in data.inventory.gpuNodes])
	input.workload.gpusPerPod > largest
	msg := sprintf(
		"the step asks for %s, and the largest node has %d: train on several nodes with a TrainJob",
		[gpus(input.workload.gpusPerPod), largest],
	)
}

gpus(1) := "1 GPU"

gpus(n) := sprintf("%d GPUs", [n]) if n != 1
