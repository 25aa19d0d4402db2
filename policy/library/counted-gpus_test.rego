package muster.counted_gpus_test

import data.muster.counted_gpus

test_unknown if count(counted_gpus.violation) == 1 with input.workload as {"unknown": "the runtime"}

test_known if count(counted_gpus.violation) == 0 with input.workload as {"gpus": 1}
