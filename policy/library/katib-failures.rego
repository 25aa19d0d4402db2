# METADATA
# title: An Experiment ends when its trials fail
# description: >-
#   Without maxFailedTrialCount an Experiment with an error in it goes on to its last
#   trial.
# custom:
#   level: warn
#   parameters: {}
#   match:
#     kinds:
#       - apiGroups: [kubeflow.org]
#         kinds: [Experiment]
package muster.katib_failures

violation contains {"msg": msg, "details": {"key": "maxFailedTrialCount"}} if {
	input.workload.trials.maxFailedTrialCount == null
	msg := "set maxFailedTrialCount: without it trials go on however many have failed"
}
