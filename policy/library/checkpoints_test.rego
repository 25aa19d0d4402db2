package muster.checkpoints_test

import data.muster.checkpoints

spec := {"terminationGracePeriodSeconds": 120}

of(queue, env, annotations, podspec) := {x.details.key | some x in v} if {
	v := checkpoints.violation with input as {
		"request": {"object": {"metadata": {"annotations": annotations}}},
		"workload": {
			"namespace": "a", "queue": queue, "gpus": 8,
			"podSets": [{"name": "node", "gpus": 8}, {"name": "init", "gpus": 0}],
			"specs": {"node": podspec, "init": {}},
			"containers": [{"name": "c", "podSet": "node", "env": env, "scratch": ["/scratch/"]}],
		},
		"parameters": {"env": ["CHECKPOINT_DIR"], "annotations": ["muster.dev/checkpoint"], "minGraceSeconds": 60},
	}
		with data.inventory.queues as {"a": {"low": {"preemptible": true}, "high": {"preemptible": false}}}
}

test_a_directory_on_a_disk if of("low", {"CHECKPOINT_DIR": "/disk/x"}, {}, spec) == set()

test_an_address if of("low", {"CHECKPOINT_DIR": "s3://x"}, {}, spec) == set()

test_nothing if of("low", {}, {}, spec) == {"checkpoint"}

test_an_empty_variable if of("low", {"CHECKPOINT_DIR": ""}, {}, spec) == {"checkpoint"}

test_a_directory_that_goes_with_the_pod if of("low", {"CHECKPOINT_DIR": "/scratch/x"}, {}, spec) == {"checkpoint"}

test_a_directory_beside_one_that_goes_with_the_pod if of("low", {"CHECKPOINT_DIR": "/scratchy"}, {}, spec) == set()

test_an_annotation if of("low", {}, {"muster.dev/checkpoint": "s3://x"}, spec) == set()

test_little_time if of("low", {"CHECKPOINT_DIR": "/disk"}, {}, object.union(spec, {"terminationGracePeriodSeconds": 10})) == {"grace/node"}

test_the_time_that_pods_have_if_nothing_is_said if {
	of("low", {"CHECKPOINT_DIR": "/disk"}, {}, object.remove(spec, ["terminationGracePeriodSeconds"])) == {"grace/node"}
}

test_a_queue_that_is_not_preempted if of("high", {}, {}, {}) == set()
