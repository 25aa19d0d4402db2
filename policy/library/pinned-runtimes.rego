# METADATA
# title: Training runtimes are named with their version
# description: >-
#   A runtime that is changed in place changes all jobs that name it.
# custom:
#   level: off
#   parameters:
#     pattern: '[-.]v?[0-9]+([.-][0-9]+)*$'
#   match:
#     kinds:
#       - apiGroups: [trainer.kubeflow.org]
#         kinds: [TrainJob]
package muster.pinned_runtimes

violation contains {"msg": msg, "details": {"key": input.workload.runtime.name}} if {
	runtime := input.workload.runtime
	not regex.match(input.parameters.pattern, runtime.name)
	msg := sprintf("%s %s has no version in its name (%s)", [runtime.kind, runtime.name, input.parameters.pattern])
}
