# METADATA
# title: Jobs of Kubeflow's version 1 can become TrainJobs
# description: >-
#   PyTorchJobs and the like are followed by the TrainJob.
# custom:
#   level: off
#   parameters: {}
#   match:
#     kinds:
#       - apiGroups: [kubeflow.org]
#         kinds: [PyTorchJob, TFJob, MPIJob, XGBoostJob, PaddleJob, JAXJob]
#     operations: [CREATE]
package muster.v1_kinds

violation contains {"msg": msg, "details": {"key": "v1"}} if {
	msg := sprintf("%s is a kind of Kubeflow's version 1: a TrainJob does the same", [input.workload.kind])
}
