package owner_test

import data.owner

messages(gpus, labels) := count(said) if {
	said := owner.violation with input as {
		"request": {"object": {"metadata": {"labels": labels}}},
		"workload": {"kind": "Job", "name": "j", "gpus": gpus},
		"parameters": {"label": "example.com/owner", "from": 8},
	}
}

test_a_large_job_without_an_owner if messages(8, {}) == 1

test_a_large_job_with_an_owner if messages(8, {"example.com/owner": "ann"}) == 0

test_a_small_job if messages(7, {}) == 0
