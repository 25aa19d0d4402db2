# METADATA
# title: GPU requests have limits and are whole
# description: >-
#   A GPU is not shared by asking for a part of it, and a request without a limit, or
#   with another one, is refused when the pod is created, which is late for a job.
# custom:
#   level: deny
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
package muster.gpu_limits

violation contains {"msg": msg} if {
	some container in input.workload.containers
	some resource, quantity in container.requests
	object.get(container.limits, resource, "") != quantity
	msg := sprintf("container %s of %s requests %s of %s%s", [container.name, container.podSet, quantity, resource, but(container.limits, resource)])
}

but(limits, resource) := " without a limit" if not limits[resource]

but(limits, resource) := sprintf(", and its limit is %s: they must be the same", [limits[resource]])

violation contains {"msg": msg} if {
	count(parts) > 0
	some container in input.workload.containers
	some field in ["requests", "limits"]
	some resource, quantity in container[field]
	quantity in parts
	msg := sprintf("container %s of %s has %s of %s in its %s, which is no whole number", [container.name, container.podSet, quantity, resource, field])
}

# Many containers ask for the same: each quantity is looked at once.
parts := {quantity |
	some quantity in {quantity |
		some container in input.workload.containers
		some field in ["requests", "limits"]
		some quantity in container[field]
	}
	not regex.match(`^[0-9]+[kMGTPE]?i?$`, quantity)
}
