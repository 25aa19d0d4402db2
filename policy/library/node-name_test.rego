package muster.node_name_test

import data.muster.node_name

of(gpus, podspec, user, groups) := count(v) if {
	v := node_name.violation with input as {
		"workload": {"podSets": [{"name": "pod", "gpus": gpus}], "specs": {"pod": podspec}},
		"request": {"userInfo": {"username": user, "groups": groups}},
		"parameters": {"exemptUsers": ["daemons"]},
	}
}

test_a_user if of(1, {"nodeName": "n"}, "ann", ["users"]) == 1

test_no_node if of(1, {}, "ann", ["users"]) == 0

test_no_gpus if of(0, {"nodeName": "n"}, "ann", ["users"]) == 0

test_the_daemonset_controller if of(1, {"nodeName": "n"}, "daemons", []) == 0

test_a_kubelet if of(1, {"nodeName": "n"}, "system:node:n", ["system:nodes"]) == 0
