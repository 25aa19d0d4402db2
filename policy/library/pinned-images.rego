# METADATA
# title: Images are pinned
# description: >-
#   An image without a digest can change under a job that starts again. Exempt images end
#   in * for all that begin so; others are compared without tag and digest. One that names
#   no registry is exempt in all of them.
# custom:
#   level: warn
#   parameters:
#     require: digest
#     exemptImages: [pytorch/pytorch, kubeflow/*]
#   match:
#     kinds:
#       - apiGroups: [""]
#         kinds: [Pod]
#       - apiGroups: [batch]
#         kinds: [Job, CronJob]
#       - apiGroups: [apps]
#         kinds: [Deployment, StatefulSet]
#       - apiGroups: [jobset.x-k8s.io, trainer.kubeflow.org, kubeflow.org, ray.io, leaderworkerset.x-k8s.io]
package muster.pinned_images

violation contains {"msg": msg} if {
	some container in input.workload.containers
	problem := problems[container.image]
	msg := sprintf("%s %s of %s has the image %q, %s", [container.type, container.name, container.podSet, container.image, problem])
}

# Many containers have the same image: each is looked at once.
problems := {image: problem |
	some image in {container.image | some container in input.workload.containers}
	problem := wrong(image)
	not exempt(image)
}

wrong("") := "which names no image" if not input.workload.unknown

wrong(image) := problem if {
	image != ""
	not has_digest(image)
	problem := without_digest(tag(image))
}

without_digest("latest") := "whose tag is latest: name a version, or a digest"

without_digest(version) := "which has no digest (@sha256:...)" if {
	version != "latest"
	input.parameters.require == "digest"
}

has_digest(image) if regex.match(`@sha256:[0-9a-f]{64}$`, image)

# A registry's port is no tag. An image without a tag has the tag latest.
tag(image) := split(last(image), ":")[1] if contains(last(image), ":")

tag(image) := "latest" if not contains(last(image), ":")

last(image) := name if {
	parts := split(split(image, "@")[0], "/")
	name := parts[count(parts) - 1]
}

repository(image) := trim_suffix(split(image, "@")[0], concat("", [":", tag(image)]))

exempt(image) if strings.any_prefix_match({image, path(image)}, exempt_prefixes)

exempt(image) if {
	some name in {image, path(image)}
	some exempt_name in {name, repository(name)}
	exempt_name in input.parameters.exemptImages
}

exempt_prefixes := {trim_suffix(pattern, "*") |
	some pattern in input.parameters.exemptImages
	endswith(pattern, "*")
}

# The first part is a registry if it has a dot or a port.
path(image) := regex.replace(image, `^[^/]*[.:][^/]*/`, "")
