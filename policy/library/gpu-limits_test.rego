package muster.gpu_limits_test

import data.muster.gpu_limits

of(requests, limits) := count(v) if {
	v := gpu_limits.violation with input.workload as {"containers": [{"name": "c", "podSet": "p", "requests": requests, "limits": limits}]}
}

test_a_limit_alone if of({}, {"nvidia.com/gpu": "8"}) == 0

test_both if of({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": "8"}) == 0

test_a_request_without_a_limit if of({"nvidia.com/gpu": "8"}, {}) == 1

test_a_request_below_its_limit if of({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "2"}) == 1

test_a_part_of_a_gpu if of({}, {"nvidia.com/gpu": "500m"}) == 1

test_a_large_number if of({}, {"nvidia.com/gpu": "1k"}) == 0
