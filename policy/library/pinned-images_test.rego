package muster.pinned_images_test

import data.muster.pinned_images

problems(image, require) := result if {
	result := {v.msg | some v in pinned_images.violation} with input.workload as {"containers": [{"name": "c", "type": "initContainer", "podSet": "node", "image": image}]}
		with input.parameters as {"require": require, "exemptImages": ["ok.example/*", "pytorch/pytorch"]}
}

sixty_four := "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

test_latest if count(problems("repo/x:latest", "tag")) == 1

test_no_tag_is_latest if problems("repo/x", "tag") == {`initContainer c of node has the image "repo/x", whose tag is latest: name a version, or a digest`}

test_a_port_is_no_tag if count(problems("registry:5000/x", "tag")) == 1

test_a_tag_behind_a_port if count(problems("registry:5000/x:1", "tag")) == 0

test_a_tag_is_no_digest if problems("repo/x:1", "digest") == {`initContainer c of node has the image "repo/x:1", which has no digest (@sha256:...)`}

test_a_digest if count(problems(concat("", ["repo/x@sha256:", sixty_four]), "digest")) == 0

test_a_tag_and_a_digest if count(problems(concat("", ["repo/x:latest@sha256:", sixty_four]), "digest")) == 0

test_what_only_looks_like_a_digest if count(problems("repo/x:1@x:y", "digest")) == 1

test_a_digest_in_the_middle if count(problems(concat("", ["repo/x@sha256:", sixty_four, "0"]), "digest")) == 1

test_an_exempt_registry if count(problems("ok.example/a/b", "digest")) == 0

test_a_registry_that_begins_like_an_exempt_one if count(problems("ok.example.evil.com/b", "digest")) == 1

test_an_exempt_repository_with_a_tag if count(problems("pytorch/pytorch:2.13.0", "digest")) == 0

test_an_exempt_repository_of_any_registry if count(problems("any.example:5000/pytorch/pytorch:2.13.0", "digest")) == 0

test_an_exempt_repository_below_another if count(problems("other/pytorch/pytorch:2.13.0", "digest")) == 1

test_a_repository_that_begins_like_an_exempt_one if count(problems("pytorch/pytorch-evil:1", "digest")) == 1

test_all_kinds_of_containers if {
	count(pinned_images.violation) == 3 with input.workload as {"containers": [
		{"name": "a", "type": "container", "podSet": "p", "image": "x:latest"},
		{"name": "b", "type": "initContainer", "podSet": "p", "image": "x:latest"},
		{"name": "c", "type": "ephemeralContainer", "podSet": "p", "image": "x:latest"},
	]}
		with input.parameters as {"require": "tag", "exemptImages": []}
}

test_an_image_that_is_not_known if {
	count(pinned_images.violation) == 0 with input.workload as {"unknown": "the runtime", "containers": [{"name": "a", "type": "container", "podSet": "p", "image": ""}]}
		with input.parameters as {"require": "digest", "exemptImages": []}
}
