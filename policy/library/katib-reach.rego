# METADATA
# title: An Experiment's trials fit their queue
# description: >-
#   Trials that together ask for more GPUs than their queue can ever have never run in
#   parallel as they say.
# custom:
#   level: deny
#   parameters: {}
#   match:
#     kinds:
#       - apiGroups: [kubeflow.org]
#         kinds: [Experiment]
package muster.katib_reach

violation contains {"msg": msg, "details": {"key": "gpus", "value": input.workload.gpus}} if {
	trials := input.workload.trials
	reach := data.inventory.queues[input.workload.namespace][queue].reach
	input.workload.gpus > reach
	msg := sprintf("%s, and queue %s reaches %d: %s", [asked, queue, reach, advice(floor(reach / trials.gpusPerTrial))])
}

asked := sprintf("a trial asks for %s", [gpus(input.workload.gpus)]) if input.workload.trials.parallel == 1

asked := sprintf("%d parallel trials of %s are %s", [trials.parallel, gpus(trials.gpusPerTrial), gpus(input.workload.gpus)]) if {
	trials := input.workload.trials
	trials.parallel != 1
}

advice(0) := "let a trial ask for fewer GPUs"

advice(fit) := sprintf("lower parallelTrialCount to %d", [fit]) if fit > 0

gpus(1) := "1 GPU"

gpus(n) := sprintf("%d GPUs", [n]) if n != 1

queue := input.workload.queue if input.workload.queue != ""

queue := "default" if input.workload.queue == ""
