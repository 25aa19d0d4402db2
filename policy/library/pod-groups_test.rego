package muster.pod_groups_test

import data.muster.pod_groups

owner(uid) := {"kind": "Job", "name": uid, "uid": uid}

of(kind, uid, owners, group) := {v.msg | some v in violations} if {
	violations := pod_groups.violation with input as {
		"request": {"object": {"metadata": {"uid": uid}}},
		"workload": {"kind": kind, "owners": [owner(o) | some o in owners], "groups": [group]},
	}
}

group(whose, owners) := {"podSet": "pod", "api": "kueue.x-k8s.io", "name": "g", "of": whose, "uid": "x", "owners": [owner(o) | some o in owners]}

test_the_first_pod if of("Pod", "u", ["a"], group("", [])) == set()

test_pods_of_one_job if of("Pod", "u", ["a"], group("Pod/x", ["a"])) == set()

test_pods_of_two_jobs_of_one_jobset if of("Pod", "u", ["a", "s"], group("Pod/x", ["b", "s"])) == set()

test_a_pod_of_another_job if {
	of("Pod", "u", ["b"], group("Pod/x", ["a", "s"])) == {"the pods of pod name the group g, which belongs to Job s by Pod/x: the pods of a group have one owner, so name another group"}
}

test_a_pod_of_another_job_as_far_as_its_owners_could_be_read if {
	count(pod_groups.violation) == 0 with input as {
		"request": {"object": {"metadata": {}}},
		"workload": {"kind": "Pod", "owners": [object.union(owner("b"), {"unread": true})], "groups": [group("Pod/x", ["a", "s"])]},
	}
}

test_pods_without_controllers if of("Pod", "u", [], group("Pod/x", [])) == set()

test_workers_of_a_driver_that_is_a_pod if of("Pod", "u", ["x"], group("Pod/x", [])) == set()

test_the_driver_is_changed if of("Pod", "x", ["a"], group("Pod/x", [])) == set()

test_a_pod_without_a_controller_beside_those_of_a_job if count(of("Pod", "u", [], group("Pod/x", ["a"]))) == 1

test_a_pod_of_a_job_beside_those_without_controllers if {
	of("Pod", "u", ["a"], group("Pod/x", [])) == {"the pods of pod name the group g, which belongs to no controller by Pod/x: the pods of a group have one owner, so name another group"}
}

test_a_job_that_is_changed_while_its_pods_are_there if of("Job", "a", [], group("Pod/x", ["a"])) == set()

test_a_job_that_names_the_group_of_another if count(of("Job", "b", [], group("Pod/x", ["a"]))) == 1

test_a_job_that_names_a_group_of_pods_without_controllers if count(of("Job", "b", [], group("Pod/x", []))) == 1

test_a_job_that_has_no_uid_yet if {
	count(pod_groups.violation) == 1 with input as {
		"request": {"object": {"metadata": {"name": "j"}}},
		"workload": {"kind": "Job", "owners": [], "groups": [group("Pod/x", ["a"])]},
	}
}
