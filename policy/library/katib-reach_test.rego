package muster.katib_reach_test

import data.muster.katib_reach

of(parallel, gpus, queue) := v if {
	v := {x.msg | some x in katib_reach.violation} with input.workload as {
		"namespace": "a", "queue": queue, "gpus": parallel * gpus,
		"trials": {"parallel": parallel, "gpusPerTrial": gpus},
	}
		with data.inventory.queues as {"a": {"main": {"reach": 32}, "default": {"reach": 8}, "none": {"reach": 0}}}
}

test_three_trials_of_sixteen_gpus if {
	of(3, 16, "main") == {"3 parallel trials of 16 GPUs are 48 GPUs, and queue main reaches 32: lower parallelTrialCount to 2"}
}

test_many_trials_of_one_gpu if {
	of(33, 1, "main") == {"33 parallel trials of 1 GPU are 33 GPUs, and queue main reaches 32: lower parallelTrialCount to 32"}
}

test_one_trial_that_is_too_large if {
	of(1, 16, "default") == {"a trial asks for 16 GPUs, and queue default reaches 8: let a trial ask for fewer GPUs"}
}

test_two_trials_that_are_too_large if {
	of(2, 16, "default") == {"2 parallel trials of 16 GPUs are 32 GPUs, and queue default reaches 8: let a trial ask for fewer GPUs"}
}

test_a_queue_without_gpus if {
	of(1, 1, "none") == {"a trial asks for 1 GPU, and queue none reaches 0: let a trial ask for fewer GPUs"}
}

test_two_trials_of_sixteen_gpus if count(of(2, 16, "main")) == 0

test_trials_without_a_queue_are_in_the_default_one if count(of(3, 4, "")) == 1

test_a_queue_that_is_not_known if count(of(30, 16, "unknown")) == 0
