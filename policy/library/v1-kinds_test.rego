package muster.v1_kinds_test

import data.muster.v1_kinds

test_a_pytorchjob if count(v1_kinds.violation) == 1 with input.workload.kind as "PyTorchJob"
