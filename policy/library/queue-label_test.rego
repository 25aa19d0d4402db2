package muster.queue_label_test

import data.muster.queue_label

workload := {"kind": "Job", "name": "j", "namespace": "a", "gpus": 8, "queue": "", "owners": []}

test_a_job_without_a_queue if {
	count(queue_label.violation) == 1 with input.workload as workload
}

test_the_queues_of_the_namespace_are_named if {
	some v in queue_label.violation with input.workload as workload
		with data.inventory.queues as {"a": {"x": {}, "b": {}}, "c": {"d": {}}}
	endswith(v.msg, "to one of b, x")
}

test_how_many_gpus_it_asks_for if {
	says(1) == "Job j asks for 1 GPU and names no queue: set the label kueue.x-k8s.io/queue-name"
	says(8) == "Job j asks for 8 GPUs and names no queue: set the label kueue.x-k8s.io/queue-name"
}

says(n) := v.msg if {
	some v in queue_label.violation with input.workload as object.union(workload, {"gpus": n})
}

test_a_job_with_a_queue if {
	count(queue_label.violation) == 0 with input.workload as object.union(workload, {"queue": "x"})
}

test_a_job_without_gpus if {
	count(queue_label.violation) == 0 with input.workload as object.union(workload, {"gpus": 0})
}

test_a_part_of_a_job if {
	count(queue_label.violation) == 0 with input.workload as object.union(workload, {"owners": [{"exists": true}]})
}

test_an_owner_that_could_not_be_read if {
	count(queue_label.violation) == 0 with input.workload as object.union(workload, {"owners": [{"exists": false, "unread": true}]})
}

test_an_owner_that_does_not_exist if {
	count(queue_label.violation) == 1 with input.workload as object.union(workload, {"owners": [{"exists": false}]})
}
