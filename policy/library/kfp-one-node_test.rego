package muster.kfp_one_node_test

import data.muster.kfp_one_node

of(labels, gpus) := count(on({"a": {"gpus": 4}, "b": {"gpus": 8}}, labels, gpus))

on(nodes, labels, gpus) := v if {
	v := kfp_one_node.violation with input as {
		"request": {"object": {"metadata": {"labels": labels}}},
		"workload": {"gpusPerPod": gpus},
		"parameters": {"labels": ["pipeline/runid"]},
	}
		with data.inventory.gpuNodes as nodes
}

test_a_step_of_one_node if of({"pipeline/runid": "1"}, 8) == 0

test_a_step_of_two_nodes if of({"pipeline/runid": "1"}, 16) == 1

test_a_pod_of_no_pipeline if of({}, 16) == 0

test_no_nodes_are_known if {
	count(kfp_one_node.violation) == 0 with input as {"request": {"object": {"metadata": {"labels": {"pipeline/runid": "1"}}}}, "workload": {"gpusPerPod": 16}, "parameters": {"labels": ["pipeline/runid"]}}
}

test_how_many_gpus_the_step_asks_for if {
	says(16) == "the step asks for 16 GPUs, and the largest node has 0: train on several nodes with a TrainJob"
	says(1) == "the step asks for 1 GPU, and the largest node has 0: train on several nodes with a TrainJob"
}

says(gpus) := v.msg if some v in on({"a": {"gpus": 0}}, {"pipeline/runid": "1"}, gpus)
