package muster.notebook_idle_gpus_test

import data.muster.notebook_idle_gpus

now := time.now_ns()

at(minutes) := time.format(now - ((minutes * 60) * 1000000000))

of(gpus, idle, minutes) := count(v) if {
	v := notebook_idle_gpus.violation with input as {"workload": {"gpus": gpus, "namespace": "a"}, "parameters": {"idle": 2, "maxAgeMinutes": 15}}
		with data.inventory as {"observedAt": at(minutes), "namespaces": {"a": {"idleGPUs": idle}}}
}

test_two_idle_gpus if of(1, 2, 1) == 1

test_one_idle_gpu if of(1, 1, 1) == 0

test_a_notebook_without_gpus if of(0, 9, 1) == 0

test_what_was_seen_long_ago if of(1, 9, 20) == 0

test_the_pods_are_named if {
	some v in notebook_idle_gpus.violation with input as {"workload": {"gpus": 1, "namespace": "a"}, "parameters": {"idle": 2, "maxAgeMinutes": 15}}
		with data.inventory as {
			"observedAt": at(1),
			"namespaces": {"a": {"idleGPUs": 3}},
			"gpuNodes": {"n": {"idle": [{"namespace": "a", "pod": "p"}, {"namespace": "b", "pod": "q"}]}},
		}
	endswith(v.msg, "(p)")
}

test_how_many_gpus_are_idle if {
	says(1) == "the pods of namespace a leave 1 GPU idle: stop what does not use its GPUs first"
	says(3) == "the pods of namespace a leave 3 GPUs idle: stop what does not use its GPUs first"
}

says(idle) := v.msg if {
	some v in notebook_idle_gpus.violation with input as {"workload": {"gpus": 1, "namespace": "a"}, "parameters": {"idle": 1, "maxAgeMinutes": 15}}
		with data.inventory as {"observedAt": at(1), "namespaces": {"a": {"idleGPUs": idle}}}
}
