package muster.notebook_gpus_test

import data.muster.notebook_gpus

of(gpus) := above(1, gpus)

above(maximum, gpus) := v if {
	v := notebook_gpus.violation with input as {"workload": {"gpus": gpus}, "parameters": {"max": maximum}}
}

test_one_gpu if count(of(1)) == 0

test_four_gpus if of(4) == {{"msg": "the notebook asks for 4 GPUs, and may have 1", "details": {"key": "gpus", "value": 4}}}

test_one_gpu_where_there_are_none if above(0, 1) == {{"msg": "the notebook asks for 1 GPU, and may have 0", "details": {"key": "gpus", "value": 1}}}
