package muster.pinned_runtimes_test

import data.muster.pinned_runtimes

of(name) := count(v) if {
	v := pinned_runtimes.violation with input as {"workload": {"runtime": {"kind": "TrainingRuntime", "name": name}}, "parameters": {"pattern": "[-.]v?[0-9]+([.-][0-9]+)*$"}}
}

test_no_version if of("torch-distributed") == 1

test_a_version if of("torch-distributed-v2.13.0") == 0

test_a_number if of("torch-2") == 0
